"""The MCP servers in hearthnet.toml, followed while the node runs; a file that is wrong changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from hearthnet.config import McpConfig
from hearthnet.config_file import load_config
from hearthnet.errors import HearthNetError
from hearthnet.home import Home

_log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0


class Settings:
    """What stands in the file of `home`. `problem` says why what was read last is still used."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.problem = ""

    async def follow(self) -> AsyncIterator[McpConfig | None]:
        """The settings now, and after each change of the file; None where only `problem` has changed."""
        seen: object = ...
        while True:
            now = self._look()
            if now != seen:
                seen = now
                yield self._read()
            await asyncio.sleep(LOOK_SECONDS)

    def _read(self) -> McpConfig | None:
        try:
            config = load_config(self._home).mcp
        except HearthNetError as error:
            self.problem = f"the MCP servers stay as they were: {error.message}"
            _log.error("%s", self.problem)
            return None
        self.problem = ""
        return config

    def _look(self) -> tuple[int, int, int] | None:
        """What changes whenever the file is written or replaced; None where there is none."""
        try:
            status = self._home.config_file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
