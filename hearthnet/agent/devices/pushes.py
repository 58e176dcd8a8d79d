"""What this node has sent to the person's other nodes, and when it tries those again that were away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

AGAIN_SECONDS: Final = 5.0
"""The time after which a device that was away is tried again."""


class Pushes:
    """The state of one kind of data at each of the other nodes; `now` is in seconds."""

    def __init__(self) -> None:
        self._sent: dict[str, Mapping[str, Any]] = {}
        self._next: dict[str, float] = {}

    def due(self, others: Set[str], state: Mapping[str, Any], now: float) -> set[str]:
        """Return those of `others` that lack `state` and are to be tried now; they are tried later again."""
        self._sent = {node: sent for node, sent in self._sent.items() if node in others}
        found = {node for node in others if self._sent.get(node) != state and self._next.get(node, 0) <= now}
        self._next |= dict.fromkeys(found, now + AGAIN_SECONDS)
        return found

    def at(self, node: str) -> Mapping[str, Any]:
        """Return the state that `node` has."""
        return self._sent.get(node, {})

    def arrived(self, nodes: Iterable[str], state: Mapping[str, Any]) -> None:
        """Remember that `nodes` have `state` now."""
        for node in nodes:
            self._sent[node] = state
            self._next.pop(node, None)
