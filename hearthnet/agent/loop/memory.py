"""The memory of a run: results of reads, and the number of times a call was made.

A read is answered from memory where an equal one of this run was answered before, and no effect was under
way or has ended since, because an effect may change the data. Both are part of the run's state, so they
survive a restart; both are bounded.

See: docs/protocol/agent.md#memory.
"""

from __future__ import annotations

import json
from typing import Any, Final

import blake3
import msgspec

from hearthnet.agent.loop.state import CallPhase, CallState, Remembered, RunState

_SORTED: Final = msgspec.json.Encoder(order="sorted")
MOST_BYTES: Final = 262_144
"""The most bytes of results that a run remembers; a read beyond them is made again."""


def fingerprint(*parts: Any) -> str:
    """Return a hash that is equal for equal JSON values.

    It accepts any value that a model's call can hold, such as lone surrogates.
    """
    try:
        text = _SORTED.encode(parts)
    except (UnicodeEncodeError, RecursionError, TypeError, OverflowError):
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str).encode("ascii")
    return blake3.blake3(text).hexdigest()


class RunMemory:
    """The memory in `state`."""

    def __init__(self, state: RunState) -> None:
        self._state = state

    def count(self, name: str, arguments: Any) -> int:
        """Count this call and return the number of times it was made so far.

        At most `max_calls` different calls are counted.
        """
        counts, key = self._state.repeats, fingerprint(name, arguments)
        counts[key] = counts.get(key, 0) + 1
        return counts[key]

    def recall(self, call: CallState) -> Remembered | None:
        """Return the remembered result of an equal read, if any."""
        return self._state.memory.get(call.memory_key)

    def under_way(self, call: CallState) -> bool:
        """Return whether an equal read is running, whose result can be used."""
        return bool(call.memory_key) and any(
            other.phase is CallPhase.RUNNING and other.memory_key == call.memory_key
            for other in self._state.calls
        )

    def keep(self, call: CallState, remembered: Remembered) -> None:
        """Remember the result of `call`, unless an effect came between or there is no room."""
        memory = self._state.memory
        held = sum(len(one.content) for one in memory.values())
        fresh = call.epoch == self._state.epoch
        if call.memory_key and fresh and held + len(remembered.content) <= MOST_BYTES:
            memory[call.memory_key] = remembered

    def forget(self) -> None:
        """Drop all results, because an effect begins or ends and may have changed the data."""
        self._state.epoch += 1
        self._state.memory.clear()
