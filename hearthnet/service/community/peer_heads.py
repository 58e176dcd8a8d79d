"""Record of the heads that other nodes announced, and choice of a node to fetch from.

Decisions without I/O, about nodes that announced more than is held here:

    fetch returned new events    eligible again at once while it is ahead
    fetch returned nothing       not for 30 s, and not for the same heads for 5 minutes; what there was no
                                 room for, here or there, may fit by then
    fetch failed                 again after 1 s, 2 s, 4 s ... 30 s

An announcement counts for a minute; each node repeats it every 20 s.

See: docs/decisions/0043.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Generic, Protocol, Self, TypeVar

CLAIM_SECONDS: Final = 60.0
FRUITLESS_SECONDS: Final = 30.0
SAME_HEADS_SECONDS: Final = 300.0
_AGAIN_SECONDS: Final = 1.0


class Comparable(Protocol):
    """What a node holds, as it announces it: equal heads mean the same events."""

    def is_behind(self, other: Self) -> bool:
        """Return whether to fetch from the other; of two that differ at least one is behind."""
        ...


Extent = TypeVar("Extent", bound=Comparable)


@dataclass
class _Claim(Generic[Extent]):
    """The last announcement of one node, its expiry, and the results of fetches from it."""

    heads: Extent
    until: float
    not_before: float = 0.0
    failures: int = 0
    holds_more: bool = False
    fruitless: Extent | None = None
    fruitless_until: float = 0.0


class Neighbours(Generic[Extent]):
    """The announcements of other nodes. Times are seconds of a steady clock."""

    def __init__(self) -> None:
        self._claims: dict[str, _Claim[Extent]] = {}

    def record(self, node: str, heads: Extent, now: float) -> None:
        """Record that `node` announced `heads`."""
        claim = self._claims.setdefault(node, _Claim(heads, 0.0))
        claim.heads, claim.until = heads, now + CLAIM_SECONDS

    def holds_more(self, node: str, now: float) -> None:
        """Record that `node` has shown that it holds events that are not held here, however few it has."""
        claim = self._claims.get(node)
        if claim is not None:
            claim.holds_more, claim.until = True, now + CLAIM_SECONDS

    def due(self, ours: Extent, now: float) -> str | None:
        """Return a random node that is ahead and may be fetched from now, or None."""
        found = [node for node, claim in self._ahead(ours, now) if claim.not_before <= now]
        return random.choice(found) if found else None

    def pause(self, ours: Extent, now: float) -> float | None:
        """Return the seconds until a node is due, or None if no node is ahead."""
        return min((max(0.0, claim.not_before - now) for _, claim in self._ahead(ours, now)), default=None)

    def gave(self, node: str, anything: bool, now: float) -> None:
        """Record that a fetch from `node` succeeded; `anything` tells if it returned new events."""
        claim = self._claims[node]
        claim.failures, claim.holds_more = 0, False
        if not anything:
            claim.fruitless, claim.not_before = claim.heads, now + FRUITLESS_SECONDS
            claim.fruitless_until = now + SAME_HEADS_SECONDS

    def silent(self, node: str, now: float) -> None:
        """Record that a fetch from `node` failed."""
        claim = self._claims[node]
        claim.not_before = now + min(FRUITLESS_SECONDS, _AGAIN_SECONDS * 2**claim.failures)
        claim.failures += 1

    def _ahead(self, ours: Extent, now: float) -> list[tuple[str, _Claim[Extent]]]:
        self._claims = {node: claim for node, claim in self._claims.items() if self._counts(claim, now)}
        return [
            (node, claim)
            for node, claim in self._claims.items()
            if claim.until > now
            and (claim.fruitless != claim.heads or claim.fruitless_until <= now)
            and (claim.holds_more or ours.is_behind(claim.heads))
        ]

    def _counts(self, claim: _Claim[Extent], now: float) -> bool:
        """Return whether `claim` is still needed, as an announcement or for its retry time."""
        return max(claim.until, claim.not_before) > now
