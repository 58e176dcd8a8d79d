"""What `status` and `doctor` say of a computer's clock that is off."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from hearthnet.core.home import Home
from hearthnet.core.times import CLOCK, read_record

OFF_MS: Final = 60_000
"""The difference that is reported: frames of such a clock are refused."""
_MINUTE_MS: Final = 60_000
_SET: Final = "set the clock of this computer, best by network time (timedatectl set-ntp true)"


class ClockFault(NamedTuple):
    """A cause and a remedy, as texts for a person."""

    cause: str
    remedy: str


def clock_page(home: Home) -> dict[str, Any]:
    """Return the state of the clock as `status --json` shows it.

    `ahead_ms` is the lead of the home's time over the computer's clock, `others_ms` that of `homes` other
    homes in the last comparison, which decided nothing if it `is_open`.
    """
    record = read_record(home)
    ahead = CLOCK.now_ms() - CLOCK.system()
    return {
        "ahead_ms": ahead if abs(ahead) > OFF_MS else 0,
        "homes": record.homes,
        "others_ms": record.others_ms,
        "is_open": record.is_open,
    }


def clock_fault(home: Home) -> ClockFault | None:
    """Return the fault of this computer's clock, None if none is known."""
    page = clock_page(home)
    ahead, homes = page["ahead_ms"], page["homes"]
    others = f"{homes} other home{'s' if homes > 1 else ''}"
    if ahead and read_record(home).ahead_ms:
        cause = f"the clock of this computer is {_off(ahead)}; the home goes by the time of {others}"
        return ClockFault(cause, _SET)
    if ahead:
        cause = f"the clock of this computer was set back by {span(ahead)}; the home's time went on"
        lower = f"if it is right now, stop the node and remove {home.clock}: what had expired may count again"
        return ClockFault(cause, f"{_SET}; {lower}")
    if page["is_open"]:
        cause = f"the clock of this computer is {_off(page['others_ms'])} of the clock of {others}"
        return ClockFault(cause, "set the clock that is wrong; calls reach the others nevertheless")
    return None


def span(milliseconds: int) -> str:
    """Return a duration in words: `3 days`, `2.5 hours`, `7 minutes`."""
    minutes = abs(milliseconds) / _MINUTE_MS
    if minutes < 120:
        return f"{minutes:.0f} minutes"
    return f"{minutes / 1440:.0f} days" if minutes >= 48 * 60 else f"{minutes / 60:.1f} hours"


def _off(ahead_ms: int) -> str:
    """Describe a clock that a right one is ahead of by `ahead_ms`."""
    return f"{span(ahead_ms)} {'behind' if ahead_ms > 0 else 'ahead'}"
