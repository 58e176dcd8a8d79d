"""Suggestions near a pair that no provider offers, for the rule `pair` of a match table.

See: docs/protocol/discovery.md#matching.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

_SHOWN: Final = 12
Pair = tuple[str, str]


def pairs_in(values: Iterable[Any]) -> set[Pair]:
    """Return the well-formed pairs in the values of offers."""
    return {
        (value[0], value[1])
        for value in values
        if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)
    }


def nearest(first: str | None, second: str, pairs: Collection[Pair]) -> tuple[str, dict[str, list[str]]]:
    """Describe the pairs that begin with `first` or end with `second`, and two-step ways.

    Returns a text and the same as data. `first` None means any.
    """
    leads_to = sorted({b for a, b in pairs if first in (None, a)})
    comes_from = sorted({a for a, b in pairs if b == second})
    through = [] if first in (None, second) else [step for step in leads_to if step in comes_from]
    words = [
        f"from {first or 'any'} into: {_listed(leads_to)}",
        f"into {second} from: {_listed(comes_from)}",
    ]
    if through:
        words.append(f"in two steps by way of: {_listed(through)}")
    return "; ".join(words), {"from": leads_to, "to": comes_from, "through": through}


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more
