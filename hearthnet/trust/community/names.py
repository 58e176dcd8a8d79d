"""Display names of homes: which a home may give itself, and how each is shown. Pure.

A name is a home's own statement. So a name that is invisible in part, that stands for a role ("this node"),
or that looks like an id is refused where a home joins, and is never shown where a roster holds one from
before. Names that look alike are all shown with their ids: which home was there first is no more than what
its events claim, so that none of them keeps the plain name.

See: docs/protocol/community.md#display-names.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Final

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.visible import MAX_MARKS, is_hidden, marked

MAX_LENGTH: Final = 64
"""Characters of a name; also the limit of the events that hold one."""
SHOWN_LENGTH: Final = 36
"""Characters by which a name has to differ from all others: a terminal and the page cut longer ones."""
ROLES: Final = (
    "this node",
    "this home",
    "another node",
    "another home",
    "any node",
    "own node",
    "own home",
    "your node",
    "your home",
    "carried out by",
    "dieser knoten",
    "diesem knoten",
    "diesen knoten",
    "dieses zuhause",
    "diesem zuhause",
    "dieser haushalt",
    "diesem haushalt",
    "anderen haushalt",
    "anderer haushalt",
    "irgendeinem knoten",
    "ausgeführt von",
)
"""Phrases by which the page and the command line tell homes apart, in their languages: no part of a name."""
RESERVED: Final = (
    "me",
    "self",
    "own",
    "my node",
    "my home",
    "local",
    "local node",
    "local home",
    "localhost",
    "you",
    "here",
    "owner",
    "the owner",
    "admin",
    "administrator",
    "system",
    "hearthnet",
    "everybody",
    "nobody",
    "ich",
    "selbst",
    "eigen",
    "eigener knoten",
    "eigenes zuhause",
    "mein knoten",
    "mein zuhause",
    "mein haushalt",
    "unser knoten",
    "lokaler knoten",
    "der besitzer",
    "die besitzerin",
    "du",
    "sie",
    "hier",
    "besitzer",
    "besitzerin",
    "alle",
    "niemand",
)
"""Words that stand for a role, most of them for the own node, in the page's languages: no whole name."""
_LOOKS_LIKE: Final = str.maketrans("012345789i", "olzeastbgl")
"""Digits and the letter that are read as another letter; the library's tables have none of them."""
_READ_AS_ONE: Final = (("rn", "m"), ("vv", "w"), ("cl", "d"))
"""Pairs of letters that are read as one; the library's tables leave them out."""
_SHORT_ID: Final = re.compile(r"[a-z0-9]{4}(?:\s*[^\w\s]\s*[a-z0-9]{4}){3}")


def skeleton(name: str) -> str:
    """Return the key that all names which look like `name` share (Unicode TR 39)."""
    import disarm  # takes 60 ms; most commands show no names

    return disarm.skeleton_key(name)


@lru_cache(maxsize=4_096)
def words(name: str) -> tuple[str, ...]:
    """Return the words of `name` as a reader may take them: without marks, case and punctuation.

    Digits that are read as letters are letters here.
    """
    plain = unicodedata.normalize("NFKD", skeleton(name))
    letters = (letter for letter in plain if not unicodedata.name(letter, "").startswith("COMBINING"))
    # The vowel signs of many scripts are marks by category.
    kept = (one if one.isalnum() or unicodedata.category(one).startswith("M") else " " for one in letters)
    return tuple("".join(kept).translate(_LOOKS_LIKE).split())


def check_name(name: str) -> None:
    """Check that a home may call itself `name`.

    Raises:
        HearthNetError: `bad_request` if it may not, with the reason.
    """
    if not 1 <= len(name) <= MAX_LENGTH:
        reason = f"has {len(name)} characters; give it 1 to {MAX_LENGTH}"
    elif any(map(is_hidden, name)):
        reason = "has characters that nobody sees, or that change how others are shown; leave them out"
    elif name != " ".join(name.split()):
        reason = "begins or ends with a blank, or has several in a row; leave them out"
    elif any(marked(name)):
        reason = f"has a mark without a letter, or more than {MAX_MARKS} on one; leave them out"
    elif _is_taken(name):
        reason = "is a word for a role, or looks like one, or like an id; choose another one"
    else:
        return
    raise HearthNetError("bad_request", f"the display name {name[:MAX_LENGTH]!r} {reason}", rule="name")


def usable(name: str, node: str) -> str:
    """Return `name` if the home of `node` may call itself so, else a name made of the beginning of its id."""
    try:
        check_name(name)
    except HearthNetError:
        return f"home {'-'.join(ids.short_id(node).removeprefix(ids.PREFIX).split('-')[:2])}"
    return name


def shown_names(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return how the home of each node is called here.

    `named` are nodes and the names they gave themselves. Their order is of no importance.
    """
    clean = {node: _clean(name) for node, name in named}
    keys = {node: _key(name) for node, name in clean.items()}
    count = Counter(keys.values())
    shown: dict[str, str] = {}
    for node, name in clean.items():
        short = ids.short_id(node)
        if not keys[node] or _is_taken(name):
            shown[node] = short
        else:
            shown[node] = name if count[keys[node]] == 1 else with_id(name, node)
    return shown


def with_id(name: str, node: str) -> str:
    """Return a shown name with the short id of its node behind it, which is there once."""
    end = f" ({ids.short_id(node)})"
    return name if name.endswith((end, ids.short_id(node))) else f"{name}{end}"


def look_alike(name: str, other: str) -> bool:
    """Return whether two names are shown with ids where both are in a community."""
    return _key(_clean(name)) == _key(_clean(other))


def nodes_called(text: str, shown: Mapping[str, str]) -> list[str]:
    """Return the nodes that a person or a model may mean by `text`; `shown` are the names they are shown by.

    A full id, or a short one with or without its prefix, means its node alone, whatever others call
    themselves. Names are found as they are shown, then in any case, then by their looks among those that are
    shown with ids: several nodes are never told apart here.
    """
    wanted = text.strip()
    by_id = [node for node in shown if wanted == node or wanted.upper() in _short_forms(node)]
    if by_id or not wanted:
        return by_id
    for found in (
        [node for node, name in shown.items() if name == wanted],
        [node for node, name in shown.items() if name.casefold() == wanted.casefold()],
    ):
        if found:
            return found
    ends = {node: f" ({ids.short_id(node)})" for node in shown}
    return [
        node
        for node, name in shown.items()
        if name.endswith(ends[node]) and look_alike(wanted, name.removesuffix(ends[node]))
    ]


def _short_forms(node: str) -> tuple[str, str]:
    short = ids.short_id(node).upper()
    return short, short.removeprefix(ids.PREFIX.upper())


def _clean(name: str) -> str:
    """Return `name` without what is not shown as it is."""
    seen = " ".join("".join(letter for letter in name if letter.isspace() or not is_hidden(letter)).split())
    return "".join(letter for letter, is_code in zip(seen, marked(seen), strict=True) if not is_code).strip()


def _key(name: str) -> str:
    """Return the key that all names share which a reader may take for `name`."""
    start = name[:SHOWN_LENGTH]
    key = "".join(words(start)) or skeleton(start)
    for pair, letter in _READ_AS_ONE:
        key = key.replace(pair, letter)
    return key


def _is_taken(name: str) -> bool:
    """Return whether `name` is, or has in it, a word for a role, or looks like an id."""
    found, plain = words(name), unicodedata.normalize("NFKC", skeleton(name))
    whole = "".join(found)
    if not whole and not any(unicodedata.category(letter) == "So" for letter in name):
        return True  # "-" and "*" stand for no name and for any home
    if whole in _reserved() or _key(ids.PREFIX) in whole or _SHORT_ID.search(plain):
        return True
    text = f" {' '.join(found)} "
    return any(f" {role} " in text or f" {role.replace(' ', '')} " in text for role in _roles())


@cache
def _reserved() -> frozenset[str]:
    return frozenset("".join(words(one)) for one in (*RESERVED, *ROLES))


@cache
def _roles() -> tuple[str, ...]:
    return tuple(" ".join(words(one)) for one in ROLES)
