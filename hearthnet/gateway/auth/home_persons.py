"""The persons of a home other than its owner: a folder each, with their keys, and what the owner limits.

They act as the guest `<node id>/<name>` of the home's node. A name is never used twice, since runs and
documents belong to it.

See: docs/persons.md.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final

import msgspec

from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import sync_folder, write_whole
from hearthnet.core.home import Home
from hearthnet.core.times import local_day

MAX_PERSONS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_RESERVED: Final = re.compile(r"owner|client-.*", re.IGNORECASE)
_Minute = Annotated[int, msgspec.Meta(ge=0, le=1440)]


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of a child, which the owner sets.

    `capabilities` are those that it may call; without any, all that only read. `hours` are the minutes of
    the local day from which and up to which it may ask, `questions` is their number in a local day.
    """

    capabilities: tuple[str, ...] = ()
    hours: tuple[_Minute, _Minute] | None = None
    questions: Annotated[int, msgspec.Meta(ge=0)] | None = None


class HomePerson(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A person of a home: the guest's name, the person id, and the limits of a child; times are Unix ms.

    A removed person has `removed_at`, and no keys here.
    """

    name: str
    person: str
    created_at: Count
    limits: Limits | None = None
    removed_at: Count = 0


class _Day(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The questions of one local day."""

    day: str
    questions: int


class HomePersons:
    """The persons in the folder `persons` of one home."""

    def __init__(self, home: Home) -> None:
        self._folder = home.persons

    def folder(self, name: str) -> Path:
        """Return the folder of a person."""
        return self._folder / name

    def recovery_key(self, name: str) -> Path:
        """Return the file of a person's recovery key (0600)."""
        return self.folder(name) / "recovery.key"

    def person_key(self, name: str) -> Path:
        """Return the file of the key by which a person adds devices (0600)."""
        return self.folder(name) / "person.key"

    def find(self, name: str) -> HomePerson | None:
        """Return the person of this name, also a removed one; None if there is none.

        Raises:
            HearthNetError: `bad_request` if the profile is damaged.
        """
        if not _NAME.fullmatch(name):
            return None
        path = self.folder(name) / "profile.json"
        try:
            status = path.stat()
            found = _read(path, status.st_ino, status.st_mtime_ns)
        except OSError:
            return None
        except msgspec.DecodeError as error:
            raise HearthNetError(
                "bad_request", f"the profile of {name} is damaged: {error}; put back a copy of it"
            ) from error
        return found if found.name == name else None

    def present(self, name: str) -> HomePerson:
        """Return the person with this name.

        Raises:
            HearthNetError: `not_found` if there is none, or no more.
        """
        found = self.find(name)
        if found is None or found.removed_at:
            known = ", ".join(one.name for one in self.entries() if not one.removed_at) or "none"
            raise HearthNetError(
                "not_found", f"no person {name[:40]!r} in this home besides its owner; there is: {known}"
            )
        return found

    def entries(self) -> list[HomePerson]:
        """Return all persons, removed ones too, by name."""
        try:
            names = sorted(path.name for path in self._folder.iterdir())
        except FileNotFoundError:
            return []
        return [found for name in names if (found := self.find(name)) is not None]

    def save(self, entry: HomePerson) -> None:
        """Write the profile of a person. Raises OSError."""
        folder = self.folder(entry.name)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = msgspec.json.format(msgspec.json.encode(entry), indent=1) + b"\n"
        write_whole(folder / "profile.json", data, durable=True)
        sync_folder(self._folder)

    def check_new(self, name: str) -> None:
        """Check that a person may be called `name` here.

        Raises:
            HearthNetError: `bad_request` for a name of another form, one that is reserved or was used here
                before, and for more than `MAX_PERSONS`.
        """
        if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
            raise HearthNetError(
                "bad_request",
                "a person's name has 1 to 32 letters, digits, dots, '-' or '_', begins with a letter or a "
                "digit, and is not owner or client-...",
            )
        taken = [one.name for one in self.entries()]
        if name.casefold() in (one.casefold() for one in taken):
            raise HearthNetError(
                "bad_request", f"{name} is, or was, somebody of this home; a name is used once, take another"
            )
        if len(taken) >= MAX_PERSONS:
            raise HearthNetError("bad_request", f"a home has at most {MAX_PERSONS} persons besides its owner")

    def count_question(self, entry: HomePerson, now_ms: int) -> None:
        """Count one more question of the local day of `now_ms`.

        Raises:
            HearthNetError: `rate_limited`, until the end of the day, if the limit is reached.
        """
        most = None if entry.limits is None else entry.limits.questions
        if most is None:
            return
        path, day = self.folder(entry.name) / "questions.json", local_day(now_ms)
        try:
            counted = msgspec.json.decode(path.read_bytes(), type=_Day)
        except (OSError, msgspec.DecodeError):
            counted = _Day(day, 0)
        asked = counted.questions if counted.day == day else 0
        if asked >= most:
            raise HearthNetError(
                "rate_limited",
                f"{most} questions a day are allowed here, and today's are used up; ask again tomorrow",
                details={"rule": "questions", "limit": most},
                retry_after_ms=until_minute(now_ms, 0),
            )
        write_whole(path, msgspec.json.encode(_Day(day, asked + 1)))


@lru_cache(MAX_PERSONS)
def _read(path: Path, _inode: int, _changed_ns: int) -> HomePerson:
    """Return the person in a file; it is read again when its inode or time has changed."""
    return msgspec.json.decode(path.read_bytes(), type=HomePerson)


def check_hours(limits: Limits | None, now_ms: int) -> int | None:
    """Return the milliseconds until the end of the allowed hours, None where there are none.

    Raises:
        HearthNetError: `rate_limited`, until the next hours begin, outside of them.
    """
    if limits is None or limits.hours is None:
        return None
    first, last = limits.hours
    local = _local(now_ms)
    if not first <= local.hour * 60 + local.minute < last:
        raise HearthNetError(
            "rate_limited",
            f"this is open from {clock(first)} to {clock(last)}; come back at {clock(first)}",
            details={"rule": "hours", "from": clock(first), "to": clock(last)},
            retry_after_ms=until_minute(now_ms, first),
        )
    return until_minute(now_ms, last)


def until_minute(now_ms: int, minute: int) -> int:
    """Return the milliseconds, at least one second, until the local day next has this minute."""
    local = _local(now_ms)
    passed = (local.hour * 60 + local.minute) * 60_000 + local.second * 1000
    return max(1000, (minute * 60_000 - passed - 1) % 86_400_000 + 1)


def clock(minute: int) -> str:
    """Return a minute of the day as `07:30`."""
    return f"{minute // 60:02}:{minute % 60:02}"


def _local(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000).astimezone()
