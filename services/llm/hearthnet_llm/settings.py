"""The models in hearthnet.toml, followed at run time; invalid files change nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from hearthnet import HearthNetError, Home
from hearthnet.core import LlmConfig, load_config

_log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0


class LlmSettings:
    """The models in the settings file.

    `use` is called with each new state of the file, and with None if only `problem` has changed.
    """

    def __init__(self, home: Home, use: Callable[[LlmConfig | None], Awaitable[None]]) -> None:
        self._home = home
        self._use = use
        self._seen = self._look()
        self._reading = asyncio.Lock()
        self.problem = ""

    async def follow(self) -> None:
        """Check the file every second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._look() != self._seen:
                await self.read()

    async def read(self) -> None:
        """Read the file now."""
        async with self._reading:
            self._seen = self._look()
            try:
                config = load_config(self._home).llm
            except HearthNetError as error:
                self.problem = f"the models stay as they were: {error.message}"
                _log.error("%s", self.problem)
                await self._use(None)
                return
            self.problem = ""
            await self._use(config)

    def _look(self) -> tuple[int, int, int] | None:
        """Return a value that changes when the file is written or replaced; None without a file."""
        try:
            status = self._home.config_file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
