"""The output of a node's processes, in files of bounded size."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Final

LIMIT_BYTES: Final = 5 * 1024 * 1024
MAX_FILES: Final = 3
_TAIL_BYTES: Final = 2048


class LogFile:
    """A log file `path`, rotated to `path.1` and `path.2`, the newest first.

    A line that cannot be written (a full disk) is dropped: no process of the node may block because of its
    log.
    """

    def __init__(self, path: Path, limit: int = LIMIT_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._tail = b""
        self._alarm: re.Pattern[bytes] | None = None
        self.alarmed = False

    def watch_for(self, words: re.Pattern[bytes]) -> None:
        """Set `alarmed` from now on when `words` are written, until `forget`."""
        self._alarm = words

    def write(self, data: bytes) -> None:
        """Append `data`, rotating first where the file would exceed its limit."""
        recent = self._tail + data
        if self._alarm is not None and self._alarm.search(recent):
            self.alarmed = True
        self._tail = recent[-_TAIL_BYTES:]
        try:
            if self._size() + len(data) > self._limit:
                self._rotate()
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                file.write(data)
        except OSError:
            return

    def last_line(self) -> str:
        """Return the last line written since `forget` that is not empty."""
        lines = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def tail(self) -> str:
        """Return the last two thousand bytes written since `forget`."""
        return self._tail.decode("utf-8", "replace")

    def forget(self) -> None:
        """Clear the tail and the alarm, for a new process."""
        self._tail = b""
        self.alarmed = False

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _rotate(self) -> None:
        for number in range(MAX_FILES - 1, 0, -1):
            older = self._path if number == 1 else Path(f"{self._path}.{number - 1}")
            if older.exists():
                older.replace(f"{self._path}.{number}")


class LogHandler(logging.Handler):
    """Sends the supervisor's own log records to a `LogFile`."""

    def __init__(self, file: LogFile) -> None:
        super().__init__()
        self._file = file
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, with its traceback if it has one."""
        self._file.write(self.format(record).encode("utf-8", "replace") + b"\n")
