"""Display names of homes: which a home may give itself, and how each is shown. Pure.

A name is a home's own statement. So a name that is invisible in part, that stands for a role ("this node"),
or that looks like an id is refused where a home joins, and is never shown where a roster holds one from
before. Of names that look alike, the first one's home keeps it, and the others are shown with their ids.

See: docs/protocol/community.md#display-names.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Final

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError

MAX_LENGTH: Final = 64
"""Characters of a name; also the limit of the events that hold one."""
RESERVED: Final = (
    "this node",
    "this home",
    "another node",
    "another home",
    "own node",
    "own home",
    "me",
    "you",
    "owner",
    "admin",
    "administrator",
    "system",
    "hearthnet",
    "everybody",
    "nobody",
    "dieser knoten",
    "dieses zuhause",
    "ich",
    "du",
    "besitzer",
    "besitzerin",
    "alle",
    "niemand",
)
"""Words that the page and the command line use for roles, in their languages."""
_INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks by category that are nevertheless invisible."""


def skeleton(name: str) -> str:
    """Return the key that all names which look like `name` share (Unicode TR 39)."""
    import disarm  # takes 60 ms; most commands show no names

    return disarm.skeleton_key(name)


def check_name(name: str) -> None:
    """Check that a home may call itself `name`.

    Raises:
        HearthNetError: `bad_request` if it may not, with the reason.
    """
    if not 1 <= len(name) <= MAX_LENGTH:
        reason = f"has {len(name)} characters; give it 1 to {MAX_LENGTH}"
    elif any(map(_is_hidden, name)):
        reason = "has characters that nobody sees, or that change how others are shown; leave them out"
    elif name != " ".join(name.split()):
        reason = "begins or ends with a blank, or has several in a row; leave them out"
    elif _is_taken(name):
        reason = "is a word for a role, or looks like one, or like an id; choose another one"
    else:
        return
    raise HearthNetError("bad_request", f"the display name {name[:MAX_LENGTH]!r} {reason}", rule="name")


def usable(name: str, node: str) -> str:
    """Return `name` if the home of `node` may call itself so, else a name made of its id."""
    try:
        check_name(name)
    except HearthNetError:
        return f"home {ids.short_id(node).removeprefix(ids.PREFIX)}"
    return name


def shown_names(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return how the home of each node is called here.

    `named` are nodes and the names they gave themselves, in the order of joining.
    """
    shown: dict[str, str] = {}
    seen: set[str] = set()
    for node, name in named:
        short = ids.short_id(node)
        clean = " ".join("".join(letter for letter in name if not _is_hidden(letter)).split())
        key = skeleton(clean)
        if not key or _is_taken(clean):
            shown[node] = short
        else:
            shown[node] = clean if key not in seen else f"{clean} ({short})"
        seen.add(key)
    return shown


def _is_hidden(letter: str) -> bool:
    selects = "\ufe00" <= letter <= "\ufe0f" or "\U000e0100" <= letter <= "\U000e01ef"
    return not letter.isprintable() or letter in _INVISIBLE or selects


def _is_taken(name: str) -> bool:
    return skeleton(name) in _reserved() or unicodedata.normalize("NFKC", name).casefold().startswith(
        ids.PREFIX
    )


@cache
def _reserved() -> frozenset[str]:
    return frozenset(map(skeleton, RESERVED))
