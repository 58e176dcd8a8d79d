"""The terms under which a home shares its services with others, as its owner sets them.

`sharing.json` in the data folder has the terms of each service that is not shared without limits:

    {"services": {"llm": {"with": "trusted", "hours": [1320, 480], "per_day_seconds": 1800}}}

Hours and days are those of this computer's local time. Pure but for reading and writing the file.

See: docs/sharing.md
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.times import local_day

Audience = Literal["members", "trusted", "nobody"]
Minute = Annotated[int, msgspec.Meta(ge=0, le=1440)]
DAY_SECONDS: Final = 86_400
_MINUTE_MS: Final = 60_000
_MOST_MINUTES: Final = 3 * 1440
_ServiceName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9_-]{0,31}\Z")]


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The terms of one service.

    `hours` are the minutes of the local day from which and up to which it is open to others; the second is
    before the first where that is on the next day. `per_day_seconds` is the processing time of each member in
    a local day.
    """

    audience: Audience = msgspec.field(default="members", name="with")
    hours: tuple[Minute, Minute] | None = None
    per_day_seconds: Annotated[int, msgspec.Meta(ge=1, le=DAY_SECONDS)] | None = None

    def is_open(self, now_ms: int, zone: tzinfo | None = None) -> bool:
        """Return whether others may call at this moment."""
        if self.hours is None:
            return True
        first, last = self.hours
        local = local_time(now_ms, zone)
        minute = local.hour * 60 + local.minute
        return first <= minute < last if first < last else minute >= first or minute < last

    def until_open_ms(self, now_ms: int, zone: tzinfo | None = None) -> int:
        """Return the milliseconds until the hours begin."""
        return _until(now_ms, lambda at_ms: self.is_open(at_ms, zone))


_Services = dict[_ServiceName, Terms]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    services: _Services = {}


def hours_in_words(hours: tuple[int, int]) -> str:
    """Return hours as `22:00 to 08:00`."""
    return " to ".join(f"{minute // 60:02}:{minute % 60:02}" for minute in hours)


def local_time(now_ms: int, zone: tzinfo | None = None) -> datetime:
    """Return the local time, by this computer's zone if none is given."""
    return datetime.fromtimestamp(now_ms / 1000, zone)


def until_next_day_ms(now_ms: int, zone: tzinfo | None = None) -> int:
    """Return the milliseconds until the next local day."""
    today = local_day(now_ms, zone)
    return _until(now_ms, lambda at_ms: local_day(at_ms, zone) != today)


def _until(now_ms: int, condition: Callable[[int], bool]) -> int:
    """Return the milliseconds until the first full minute at which `condition` holds.

    Minute by minute: days have 23 to 25 hours, and some times of the day do not occur or occur twice.
    """
    at_ms = now_ms - now_ms % _MINUTE_MS
    for _ in range(_MOST_MINUTES):
        at_ms += _MINUTE_MS
        if condition(at_ms):
            break
    return at_ms - now_ms


def read_terms(path: Path) -> _Services:
    """Return the terms of each service that has any.

    Raises:
        HearthNetError: `bad_request` if the file is damaged or cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).services
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise HearthNetError(
            "bad_request",
            f"cannot read {path}: {error}; put back a copy of it, or set them anew: hearthnet share --reset",
        ) from error


@contextlib.contextmanager
def changing_terms(path: Path, *, anew: bool = False) -> Iterator[_Services]:
    """Yield the terms to change, and write them; other processes wait.

    With `anew` they begin empty, also where the file is damaged. Raises as `read_terms`, and OSError.
    """
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        terms = {} if anew else read_terms(path)
        yield terms
        data = msgspec.json.format(msgspec.json.encode(_File(dict(sorted(terms.items())))), indent=1) + b"\n"
        write_whole(path, data, durable=True)
