"""The time of a home, and its text form on the wire: RFC 3339 in UTC, whole seconds, ending in Z.

The home's time is the computer's clock, corrected by what the home has learned, and not set back by it:

    earliest of                          that is not before
      the computer's clock                 the home's time as it was, plus the time measured since,
      the clock plus the learned lead      less `SLACK_MS`
    neither                              that time itself

Other homes teach it (`hearthnet.service.community.clock_keeper`). The time as it was is on the disk in
`clock.json`, so that a computer whose clock is set back, or forgets the time while it is off, does not revive
expired documents. A process that follows no home goes by the computer's clock.

See: docs/protocol/identity.md#text-forms, docs/protocol/frames.md#clock-rules, docs/decisions/0225.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, Final, NamedTuple

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home

_FORM: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}Z")
SLACK_MS: Final = 30_000
"""Steps back of the clock that are followed, as network time makes them: half the window of frames.
"""
_LOOK_MS: Final = 1_000
_BOOT_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
# Goes on while the computer sleeps, where the system has such a clock.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ClockRecord(NamedTuple):
    """What a home keeps of the time; times in Unix milliseconds.

    `ahead_ms` is the learned lead of the right time over the computer's clock. The home's time was `time_ms`
    when `steady_ms` had passed since the start `boot` of the computer. `confirmed_ms` is the last time at
    which the computer's clock agreed with another home's. `set_back` counts how often other homes moved the
    home's time back. The last comparison, at `compared_ms` by the computer's clock, heard `homes` others,
    whose clocks are ahead of this computer's by `others_ms`; `is_open` where it decided nothing, because they
    disagree or are too few.
    """

    ahead_ms: int = 0
    time_ms: int = 0
    steady_ms: int = 0
    boot: str = ""
    confirmed_ms: int = 0
    set_back: int = 0
    homes: int = 0
    others_ms: int = 0
    compared_ms: int = 0
    is_open: bool = False


def read_record(home: Home) -> ClockRecord:
    """Return what `home` keeps of the time; an empty record where there is none, or a damaged one."""
    import json  # not above: commands that need no time start sooner

    try:
        page = json.loads(home.clock.read_bytes())
        found: dict[str, Any] = {name: page[name] for name in ClockRecord._fields if name in page}
    except (OSError, ValueError, TypeError):
        return ClockRecord()
    is_whole = all(type(value) is type(ClockRecord._field_defaults[name]) for name, value in found.items())
    return ClockRecord(**found) if is_whole else ClockRecord()


def possible_time(system_ms: int, ahead_ms: int, least_ms: int) -> int | None:
    """Return the earlier of clock and corrected clock that is not before `least_ms`; None if both are."""
    earlier, later = sorted((system_ms, system_ms + ahead_ms)) if ahead_ms else (system_ms, system_ms)
    return earlier if earlier >= least_ms else later if later >= least_ms else None


@functools.cache
def boot_id() -> str:
    """Return the name of the present run of the computer, empty where the system has none."""
    try:
        return _BOOT_FILE.read_text().strip()
    except OSError:
        return ""


class HomeClock:
    """The time of the home that this process follows.

    `system` and `steady` return milliseconds: the computer's clock, and one that is never set.
    """

    def __init__(
        self,
        system: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        steady: Callable[[], int] = lambda: time.clock_gettime_ns(_STEADY) // 1_000_000,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        self.system = system
        self._steady = steady
        self._boot = boot
        self._home: Home | None = None
        self.record = ClockRecord()
        self._seen: tuple[int, int] | None = None
        self._base: int | None = None
        """The largest lead of the home's time over the steady clock so far; None before the first reading."""
        self._look_at = 0

    def follow(self, home: Home) -> None:
        """Go by the time of `home` from now on."""
        self.unfollow()
        self._home = home

    def unfollow(self) -> None:
        """Go by the computer's clock."""
        self._home, self._seen, self._base, self._look_at = None, None, None, 0
        self.record = ClockRecord()

    @property
    def follows(self) -> bool:
        """Whether this process goes by the time of a home."""
        return self._home is not None

    def now_ms(self) -> int:
        """Return the home's time, Unix milliseconds."""
        system = self.system()
        if self._home is None:
            return system
        steady = self._steady()
        if steady >= self._look_at:
            self._look_at = steady + _LOOK_MS
            self._look(self._home, steady)
        now = system + self.record.ahead_ms
        if self._base is not None:
            found = possible_time(system, self.record.ahead_ms, self._base + steady - SLACK_MS)
            now = self._base + steady if found is None else found
        self._base = now - steady if self._base is None else max(now - steady, self._base)
        return now

    def set_back(self) -> int:
        """Return how often other homes have moved the home's time back."""
        self.now_ms()
        return self.record.set_back

    def least_ms(self) -> int:
        """Return the earlier of the home's time and the computer's clock.

        For what cannot be undone once its time has come, such as a removal from the disk: homes that lie
        about the time hasten nothing.
        """
        return min(self.system(), self.now_ms())

    def keep(self, record: ClockRecord) -> None:
        """Write `record`, with the home's present time, to the disk for every process of the home.

        Raises:
            OSError: It cannot be written, or this process follows no home.
        """
        import json

        if self._home is None:
            raise FileNotFoundError("this process follows no home")
        now, steady = self.now_ms(), self._steady()
        self.record = record._replace(time_ms=now, steady_ms=steady, boot=self._boot())
        write_whole(self._home.clock, json.dumps(self.record._asdict()).encode() + b"\n", durable=True)

    def learn(self, ahead_ms: int) -> None:
        """Go by the computer's clock plus `ahead_ms` from now on, though this moves the home's time back."""
        before, after = self.now_ms(), self.system() + ahead_ms
        moves_back = after < before - SLACK_MS
        self._base = None
        self.record = self.record._replace(ahead_ms=ahead_ms, set_back=self.record.set_back + moves_back)

    def _look(self, home: Home, steady: int) -> None:
        """Read the home's record again if it has changed."""
        try:
            status = home.clock.stat()
        except OSError:
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen == self._seen:
            return
        before, self._seen = self.record, seen
        self.record = read_record(home)
        if self.record.set_back != before.set_back:
            self._base = None
        base = self._base_of(self.record, steady)
        self._base = base if self._base is None else max(base, self._base)

    def _base_of(self, record: ClockRecord, steady: int) -> int:
        """Return the least lead over the steady clock by the record, whose time went on in the same boot."""
        is_same = bool(record.boot) and record.boot == self._boot() and record.steady_ms <= steady
        return record.time_ms - (record.steady_ms if is_same else steady)


CLOCK: Final = HomeClock()
"""The clock of this process."""


def now_ms() -> int:
    """Return the time of this process's home in milliseconds since the epoch; every rule goes by it.

    It is the computer's clock as far as `CLOCK` does not correct it.
    """
    return CLOCK.now_ms()


def least_ms() -> int:
    """Return the earlier of the home's time and the computer's clock, for what cannot be undone."""
    return CLOCK.least_ms()


def local_day(at_ms: int, zone: tzinfo | None = None) -> str:
    """Return the local day of a time, as `2026-11-28`; by this computer's zone if none is given."""
    return datetime.fromtimestamp(at_ms / 1000, zone).date().isoformat()


def steady_ms() -> int:
    """Return monotonic milliseconds for measuring durations.

    Setting the computer's clock changes `now_ms`, not this.
    """
    return time.monotonic_ns() // 1_000_000


def rfc3339(millis: int) -> str:
    """Format `millis` since the epoch as `2026-11-21T20:15:00Z`.

    Raises:
        HearthNetError: `bad_request` outside the years 1 to 9999.
    """
    try:
        moment = datetime.fromtimestamp(millis // 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise HearthNetError("bad_request", f"{millis} ms is no time of the calendar") from error
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def from_rfc3339(text: str) -> int:
    """Return the milliseconds since the epoch of a time on the wire.

    Raises:
        HearthNetError: `bad_request` if `text` is not in the form of the wire.
    """
    if _FORM.fullmatch(text):
        with contextlib.suppress(ValueError):
            return int(datetime.fromisoformat(text).timestamp()) * 1000
    raise HearthNetError("bad_request", f"{text[:40]!r} is not a time such as 2026-11-21T20:15:00Z")
