"""The settings file followed at run time; invalid files change nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Final, Generic, TypeVar

from hearthnet.core.config import Config
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

_log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0
Section = TypeVar("Section")


class ConfigFollower(Generic[Section]):
    """The `section` of a home's settings that concerns `subject`, such as "the models".

    If the file is invalid, `problem` says why and the settings read last stay in force.
    """

    def __init__(self, home: Home, subject: str, section: Callable[[Config], Section]) -> None:
        self._home = home
        self._subject = subject
        self._section = section
        self._seen = self._look()
        self.problem = ""

    async def changes(self) -> AsyncGenerator[Section | None, None]:
        """Yield the settings after each change of the file, None if it is invalid."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._look() != self._seen:
                yield self.read()

    def read(self) -> Section | None:
        """Read the file now; return None if it is invalid."""
        self._seen = self._look()
        try:
            section = self._section(load_config(self._home))
        except HearthNetError as error:
            self.problem = f"{self._subject} stay as they were: {error.message}"
            _log.error("%s", self.problem)
            return None
        self.problem = ""
        return section

    def _look(self) -> tuple[int, int, int] | None:
        """Return a value that changes when the file is written or replaced; None without a file."""
        try:
            status = self._home.config_file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
