"""Free space on the disk of a running node.

full --enough is free again--> room. Between the two limits nothing changes, so that a disk near the limit
does not cause repeated messages.
"""

from __future__ import annotations

import contextlib
import math
from typing import Final, Literal

from hearthnet.core.home import FULL_BYTES, ROOM_BYTES, Home
from hearthnet.supervisor.os.atomic_files import write_whole

SPARE_BYTES: Final = 64 * 1024


class Disk:
    """The state of the disk of `home`; `note` is a line for a person while it is full.

    A small spare file is kept and deleted when the disk is full, so that the node's state, which reports
    that, can still be written.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._spare = home.run / "spare"
        self.note: str | None = None

    def look(self, complaint: bool) -> Literal["full", "room"] | None:
        """Return the change since the last look; `complaint`: the server met a full disk.

        `room` is also returned for a complaint about a disk that has room by now. Raises OSError where the
        system does not report the free space.
        """
        free = self._home.free_bytes()
        if free >= ROOM_BYTES:
            changed = complaint or self.note is not None
            self.note = None
            self._keep_spare()
            return "room" if changed else None
        if self.note is not None or (free >= FULL_BYTES and not complaint):
            return None
        self.forget_spare()
        missing = math.ceil((ROOM_BYTES - free) / 1_000_000)
        self.note = f"the disk is full: posts and documents cannot be kept; free {missing} MB"
        return "full"

    def forget_spare(self) -> None:
        """Delete the spare file."""
        with contextlib.suppress(OSError):
            self._spare.unlink(missing_ok=True)

    def _keep_spare(self) -> None:
        with contextlib.suppress(OSError):
            if not self._spare.exists():
                write_whole(self._spare, bytes(SPARE_BYTES))
