"""What a run remembers of its calls: results of reads, and how often a call was made.

A read is answered from memory where an equal one of this run was answered before and no effect was under way
or has ended since: what was read may have changed by it. Both are part of the run's state, so they hold over
a restart; both are bounded.

See: docs/protocol/agent.md#memory.
"""

from __future__ import annotations

import json
from typing import Any, Final

import blake3
import msgspec

from hearthnet.tools.state import CallPhase, CallState, Remembered, RunState

_SORTED: Final = msgspec.json.Encoder(order="sorted")
MOST_BYTES: Final = 262_144
"""Of all that a run remembers; what goes beyond is asked again."""


def fingerprint(*parts: Any) -> str:
    """Equal for equal JSON values, whatever a model has put into them."""
    try:
        text = _SORTED.encode(parts)
    except (UnicodeEncodeError, RecursionError, TypeError, OverflowError):
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str).encode("ascii")
    return blake3.blake3(text).hexdigest()


class Memory:
    """The memory in `state`."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def count(self, name: str, arguments: Any) -> int:
        """Notes that this call is made, and says how often it was by now. At most `max_calls` are noted."""
        counts, key = self._state.repeats, fingerprint(name, arguments)
        counts[key] = counts.get(key, 0) + 1
        return counts[key]

    def recall(self, call: CallState) -> Remembered | None:
        """The result of an equal read, if it still counts."""
        return self._state.memory.get(call.memory_key)

    def under_way(self, call: CallState) -> bool:
        """Whether an equal read runs now, whose result will do."""
        return bool(call.memory_key) and any(
            other.phase is CallPhase.RUNNING and other.memory_key == call.memory_key
            for other in self._state.calls
        )

    def keep(self, call: CallState, remembered: Remembered) -> None:
        """Remembers the result of `call`, unless an effect came between or there is no room."""
        memory = self._state.memory
        held = sum(len(one.content) for one in memory.values())
        fresh = call.epoch == self._state.epoch
        if call.memory_key and fresh and held + len(remembered.content) <= MOST_BYTES:
            memory[call.memory_key] = remembered

    def forget(self) -> None:
        """An effect begins or ends: what was read before, or is being read, may be true no longer."""
        self._state.epoch += 1
        self._state.memory.clear()
