"""Lines in the log that another node can cause as often as it likes."""

from __future__ import annotations

import logging
from typing import Final

from hearthnet.core.times import steady_ms

_LOG_MS: Final = 10_000


class RationedLog:
    """Lines of one kind in `log`: the first one, and then one in ten seconds at most."""

    __slots__ = ("_level", "_log", "_next_ms")

    def __init__(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._next_ms = 0

    def write(self, message: str, *args: object) -> None:
        """Log `message`, unless another one was logged in the last ten seconds."""
        now = steady_ms()
        if now >= self._next_ms:
            self._next_ms = now + _LOG_MS
            self._log.log(self._level, message, *args)
