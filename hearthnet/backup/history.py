"""The result of the last backup of a home, in `backup/last.json`; shown by `hearthnet status`."""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from hearthnet.core.files import write_whole
from hearthnet.core.home import Home

_LAST: Final = "last.json"


class LastBackup(msgspec.Struct, frozen=True):
    """The last backup that succeeded, and the error of a later one that did not.

    Times are Unix milliseconds, 0 for never; `tried_at` is the last attempt.
    """

    id: str = ""
    folder: str = ""
    time: int = 0
    tried_at: int = 0
    error: str = ""


def read_last(home: Home) -> LastBackup:
    """Return the result of the last backup; all empty where there was none."""
    try:
        return msgspec.json.decode((home.backup / _LAST).read_bytes(), type=LastBackup)
    except (OSError, msgspec.DecodeError):
        return LastBackup()


def write_last(home: Home, last: LastBackup) -> None:
    """Write the result of a backup, as far as the disk lets it."""
    with contextlib.suppress(OSError):
        home.backup.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(home.backup / _LAST, msgspec.json.encode(last))
