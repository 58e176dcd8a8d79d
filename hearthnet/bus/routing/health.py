"""The health of one offer, as measured by this caller, and the budget of this process for repetitions.

    well --fewer than half of the last 100 calls worked--> shut for 60 s --> due --a call--> asked
     ^                                                                      ^                 |  |
     |                                                                      +--no verdict----/   |
     |<---------------------------------------------------------- it worked --------------------|
                                       shut for 60 s <----------- it failed ---------------------/

Pure: times are arguments, in milliseconds of a monotonic clock. A window takes 2 bytes and a bit for each
call: durations are kept to the millisecond up to 32, from there on to 3.5 %, up to 65 s.

If all providers are full or slow, repetitions make it worse. A process whose calls succeed has saved enough
to bridge a provider's restart; one whose calls all fail soon sends each call only once.

See: docs/protocol/discovery.md#health, docs/protocol/discovery.md#what-may-be-repeated,
docs/decisions/0011.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final, Literal

WINDOW: Final = 100
"""Number of latest calls that count."""
FEWEST: Final = 10
"""Minimum of calls for a verdict: two bad ones at the start would shut out a good process."""
LEAST_SUCCESS: Final = 0.5
QUARANTINE_MS: Final = 60_000
UNKNOWN_MS: Final = 500
"""The assumed p50 of a process that was never called."""
_STEPS: Final = (*range(32), *(round(32 * 2 ** (step * 11 / 223)) for step in range(224)))
"""The distinguished durations in ms, by the byte that encodes them."""
_EXACT_MS: Final = 32
"""Durations below this are kept to the millisecond."""

FAILURES: Final = frozenset(
    {"timeout", "partition", "internal_error", "not_implemented", "invalid_signature"}
)
"""Codes by which a process fails its own offer. `invalid_signature` is raised here, about its reply.

Any other code is an answer to the caller or concerns the world: a wrong, forbidden, missing, excessive or
early request is no sign of the health of its provider.
"""
State = Literal["well", "shut", "due", "asked"]


class Health:
    """The last calls of one offer: their success and duration."""

    __slots__ = (
        "_failed",
        "_next",
        "_recent",
        "_sorted",
        "failures",
        "state",
        "success",
        "until_ms",
    )

    def __init__(self) -> None:
        self._recent = bytearray()
        self._sorted: bytearray | None = None
        """The same in order, from the first time that the median is requested: a lone offer needs none."""
        self._failed = 0
        self._next = 0
        self.failures = 0
        self.success = 1.0
        """The share of the last calls that worked, 1.0 without any."""
        self.state: State = "well"
        self.until_ms = 0
        """The end of the time in state `shut`."""

    def __len__(self) -> int:
        return len(self._recent)

    @property
    def p50_ms(self) -> int:
        """The median duration of the last calls, 500 without any."""
        ordered = self._sorted
        if ordered is None:
            ordered = self._sorted = bytearray(sorted(self._recent))
        return _STEPS[ordered[(len(ordered) - 1) >> 1]] if ordered else UNKNOWN_MS

    @property
    def may_be_called(self) -> bool:
        """True if a call may go there: it is neither shut out nor being tried by another call."""
        return self.state in ("well", "due")

    def begin(self) -> None:
        """Record that a call begins; in state `due` it is the one that tries the process."""
        if self.state == "due":
            self.state = "asked"

    def end(self, code: str | None, ms: float, now_ms: int) -> None:
        """Record the end of a call after `ms` milliseconds.

        `code` is "" for an answer, the code of an error, or None for a call that was given up.
        """
        worked = True if code == "" else self._verdict(code, ms)
        if worked is None:
            if self.state == "asked":
                self.state = "due"
            return
        self._record(worked, int(ms) if 0 <= ms < _EXACT_MS else max(0, bisect_right(_STEPS, ms) - 1))
        if self.state == "asked":
            self.state = "well"
            if not worked:
                self.quarantine(now_ms)
        elif self.state == "well" and len(self._recent) >= FEWEST and self.success < LEAST_SUCCESS:
            self.quarantine(now_ms)

    def is_due(self, now_ms: int) -> bool:
        """Return whether a call may try it again, from now on; earlier calls no longer count then."""
        if self.state != "shut" or now_ms < self.until_ms:
            return False
        self.state = "due"
        self._recent, self._sorted = bytearray(), None
        self._failed = self._next = self.failures = 0
        self.success = 1.0
        return True

    def _verdict(self, code: str | None, ms: float) -> Literal[False] | None:
        """Return whether the call failed, as False; None if its end says nothing about the process."""
        if code == "timeout" and ms <= self.p50_ms:
            return None  # a wait shorter than the usual answer proves nothing
        return False if code in FAILURES else None

    def quarantine(self, now_ms: int) -> None:
        """Shut the offer out."""
        self.state = "shut"
        self.until_ms = now_ms + QUARANTINE_MS

    def _record(self, worked: bool, step: int) -> None:
        recent, ordered, place = self._recent, self._sorted, self._next
        is_full = len(recent) == WINDOW
        if ordered is not None:
            if is_full:
                del ordered[bisect_left(ordered, recent[place])]
            insort(ordered, step)
        if is_full:
            recent[place] = step
        else:
            recent.append(step)
        self._next = place + 1 if place + 1 < WINDOW else 0
        if worked and not self._failed:
            return
        bit = 1 << place
        if self._failed & bit:
            self._failed ^= bit
            self.failures -= 1
        if not worked:
            self._failed |= bit
            self.failures += 1
        self.success = 1.0 - self.failures / len(recent)


RETRY_SHARE: Final = 0.1
"""The gain per call."""
MAX_RETRIES: Final = 100.0
FIRST_RETRIES: Final = 20.0
RETRIES_PER_SECOND: Final = 10.0


class Retries:
    """The repetition budget of one process; times are milliseconds of a monotonic clock."""

    def __init__(self, now_ms: int) -> None:
        self._left = FIRST_RETRIES
        self._since = now_ms

    def earn(self) -> None:
        """Record that a call began."""
        self._left += RETRY_SHARE

    def spend(self, now_ms: int) -> bool:
        """Spend one repetition and return True; False if none is left."""
        earned = (now_ms - self._since) / 1000 * RETRIES_PER_SECOND
        self._left, self._since = min(MAX_RETRIES, self._left + earned), now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True
