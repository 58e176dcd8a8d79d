"""Errors for names that nothing has, or several things have, with suggestions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from hearthnet.cli.output.text import one_line, shorten
from hearthnet.core.errors import HearthNetError

_MOST: Final = 12


def ambiguous(what: str, name: str, ids: Collection[str], alt: Collection[str] = ()) -> HearthNetError:
    """Return the error for several `what` called `name`, which have the `ids`."""
    return HearthNetError(
        "bad_request",
        f"{len(ids)} {what}s are called {one_line(name)!r}: {', '.join(ids)}; name one by its id",
        alt=list(alt),
    )


def unknown(what: str, name: str, known: Collection[str], empty: str) -> HearthNetError:
    """Return the error for an unknown `what` called `name`.

    It names up to three of `known` that are similar, else all of them, else has the text `empty`.
    """
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif known:
        hint = f"there is {', '.join(sorted(known)[:_MOST])}"
    else:
        hint = empty
    return HearthNetError(
        "not_found", f"there is no {what} {one_line(shorten(name, 80))!r}; {one_line(hint)}", alt=near
    )
