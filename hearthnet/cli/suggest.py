"""What somebody may have meant."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from hearthnet.cli.text import one_line, shorten
from hearthnet.errors import HearthNetError

_MOST: Final = 12


def nearest(name: str, known: Collection[str]) -> list[str]:
    """Up to three of `known` that look like `name`, the likeliest first."""
    from difflib import get_close_matches

    return get_close_matches(name, sorted(known), n=3, cutoff=0.5)


def unknown(what: str, name: str, known: Collection[str], empty: str) -> HearthNetError:
    """`not_found` for a `what` called `name`: with the nearest names, else all there are, else `empty`."""
    near = nearest(name, known)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif known:
        hint = f"there is {', '.join(sorted(known)[:_MOST])}"
    else:
        hint = empty
    return HearthNetError(
        "not_found", f"there is no {what} {one_line(shorten(name, 80))!r}; {one_line(hint)}", alt=near
    )
