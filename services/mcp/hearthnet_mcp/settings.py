"""The MCP servers in hearthnet.toml, followed at run time; invalid files change nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Final

from hearthnet import HearthNetError, Home
from hearthnet.core import McpConfig, load_config

_log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0


class McpSettings:
    """The MCP servers in the file of `home`.

    If the file is invalid, `problem` says why and the settings read last stay in force.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self.problem = ""

    async def follow(self) -> AsyncIterator[McpConfig | None]:
        """Yield the settings now and after each change of the file.

        Yields None if only `problem` has changed.
        """
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
        """Return a value that changes when the file is written or replaced; None without a file."""
        try:
            status = self._home.config_file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns
