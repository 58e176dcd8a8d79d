"""What other nodes say they know, and whom to ask when: decisions without I/O (docs/decisions/0043).

    heard, and it knows more --> asked --> it had something      asked on while it knows more
                                   |-----> it had nothing        not again for the same, nor for 30 s
                                   `-----> no answer             again after 1 s, 2 s, 4 s ... 30 s

What a node said counts for a minute: it says it again every 20 s.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from hearthnet.bus.event_frames import Heads

CLAIM_SECONDS: Final = 60.0
FRUITLESS_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 1.0


@dataclass
class _Claim:
    """What one node said last, until when it counts, and how asking it went."""

    heads: Heads
    until: float
    not_before: float = 0.0
    failures: int = 0
    fruitless: Heads | None = None


class Neighbours:
    """The other nodes' claims. Times are seconds of a steady clock."""

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}

    def heard(self, node: str, heads: Heads, now: float) -> None:
        """`node` says that it knows `heads`."""
        claim = self._claims.setdefault(node, _Claim(heads, 0.0))
        claim.heads, claim.until = heads, now + CLAIM_SECONDS

    def due(self, ours: Heads, now: float) -> str | None:
        """Somebody who knows more, and may be asked now; of several any one."""
        found = [node for node, claim in self._ahead(ours, now) if claim.not_before <= now]
        return random.choice(found) if found else None

    def pause(self, ours: Heads, now: float) -> float | None:
        """Seconds until somebody is due; None where nobody will be."""
        return min((max(0.0, claim.not_before - now) for _, claim in self._ahead(ours, now)), default=None)

    def gave(self, node: str, anything: bool, now: float) -> None:
        """`node` was asked, and had something or not."""
        claim = self._claims[node]
        claim.failures = 0
        if not anything:
            claim.fruitless, claim.not_before = claim.heads, now + FRUITLESS_SECONDS

    def silent(self, node: str, now: float) -> None:
        """`node` was asked and gave no answer."""
        claim = self._claims[node]
        claim.not_before = now + min(FRUITLESS_SECONDS, _AGAIN_SECONDS * 2**claim.failures)
        claim.failures += 1

    def _ahead(self, ours: Heads, now: float) -> list[tuple[str, _Claim]]:
        self._claims = {node: claim for node, claim in self._claims.items() if self._counts(claim, now)}
        return [
            (node, claim)
            for node, claim in self._claims.items()
            if claim.until > now and claim.fruitless != claim.heads and ours.behind(claim.heads)
        ]

    def _counts(self, claim: _Claim, now: float) -> bool:
        """Whether to remember it: for what it said, or for not asking it too soon."""
        return max(claim.until, claim.not_before) > now
