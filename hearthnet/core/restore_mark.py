"""The mark of a home that was restored from a backup: `restored.json`.

A restored node does not know its own effects between the backup and the loss of its disk. The mark says
between which times that was, so that none of them is repeated.

See: docs/protocol/backup.md#after-a-restore.
"""

from __future__ import annotations

from typing import Final

import msgspec

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home

_EARLIEST_MS: Final = 40 * 24 * 60 * 60 * 1000
"""How long before the backup a key may have been made: none is used so late."""
_TIME_BITS: Final = 80
_CROCKFORD: Final = {sign: value for value, sign in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}


class RestoreMark(msgspec.Struct, frozen=True):
    """Id and time of the backup, and the time of the restore (Unix milliseconds).

    `heard_from` is the member of the community from which the node learnt which events of its own it had
    written after the backup; `alone` is set where its owner decided to continue without.
    """

    backup: str
    time: int
    restored_at: int
    heard_from: str = ""
    alone: bool = False
    is_settled: bool = False
    """Whether the logs of the node say that they were restored."""

    @property
    def may_write_events(self) -> bool:
        """Whether new events of this node cannot take the place of earlier ones, as far as can be known."""
        return bool(self.heard_from) or self.alone

    def may_be_older(self, *times_ms: int) -> bool:
        """Return whether anything of these times may have been used before the restore."""
        return any(0 < time <= self.restored_at for time in times_ms)

    def is_key_older(self, key: str) -> bool:
        """Return whether an idempotency key, or the id of a run, was made before the restore.

        Keys that follow from others have no time; of a million of them fewer than twenty look like one.
        """
        if not ids.is_ulid(key):
            return False
        return self.time - _EARLIEST_MS <= _made_at(key) <= self.restored_at


def read_mark(home: Home) -> RestoreMark | None:
    """Return the mark of `home`, None where it was never restored.

    Raises:
        HearthNetError: `bad_request` if it is damaged.
    """
    try:
        return msgspec.json.decode(home.restored.read_bytes(), type=RestoreMark)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise HearthNetError(
            "bad_request", f"{home.restored} is damaged; restore the backup again into another folder"
        ) from error


def write_mark(home: Home, mark: RestoreMark) -> None:
    """Write the mark durably; raises OSError."""
    write_whole(home.restored, msgspec.json.encode(mark) + b"\n", durable=True)


def _made_at(ulid: str) -> int:
    value = 0
    for sign in ulid:
        value = value << 5 | _CROCKFORD[sign]
    return value >> _TIME_BITS
