"""One configured MCP server, kept running, and its current tools.

waiting --started, listed--> running --ended--> waiting, twice as long after each short run
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hearthnet import HearthNetError
from hearthnet.core import McpServerConfig
from hearthnet_mcp import tools
from hearthnet_mcp.session import Session, opened
from hearthnet_mcp.tools import McpTool, ToolListing

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

_log = logging.getLogger(__name__)
FIRST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""Run time after which the pause before the next start is reset."""
_NOTHING: Final = ToolListing((), ())


class McpServer:
    """One MCP server; `changed` is called whenever `listing` or `problem` changes."""

    def __init__(
        self,
        config: McpServerConfig,
        changed: Callable[[], None],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.config: Final = config
        self.listing = _NOTHING
        self.problem = "it is starting"
        self._changed = changed
        self._environment = environment
        self._session: Session | None = None
        self._pause = FIRST_SECONDS

    @property
    def note(self) -> str:
        """Message for the user about problems, or an empty text."""
        lines = [self.problem, *self.listing.dropped]
        return "; ".join(f"{self.config.name}: {line.replace('; ', ', ')}" for line in lines if line)

    async def keep(self) -> None:
        """Run the server, and start it again when it ends, until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            problem = await self._run_once()
            if clock() - began >= STEADY_SECONDS:
                self._pause = FIRST_SECONDS
            _log.warning("%s: %s; next start in %g s", self.config.name, problem, self._pause)
            self._become(_NOTHING, f"{problem}; it is started again")
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, MOST_SECONDS)

    async def call(
        self, tool: McpTool, arguments: dict[str, Any], seconds: float, on_progress: ProgressFnT
    ) -> dict[str, Any]:
        """Call a tool and return its result, as `Session.call` does.

        Raises:
            HearthNetError: as for `Session.call`, except that a lost reply of a tool with side effects is
                `outcome_unknown`; `not_found` if the server does not run.
        """
        session = self._session
        if session is None:
            raise HearthNetError("not_found", f"the MCP server {self.config.name} does not run now")
        try:
            return await session.call(tool.name, arguments, seconds, on_progress)
        except HearthNetError as error:
            if tool.contract.side_effects and error.code in ("partition", "timeout", "internal_error"):
                raise HearthNetError("outcome_unknown", error.message) from error
            raise

    async def _run_once(self) -> str:
        """Run the server until it ends, and return the reason in words."""
        try:
            command = self.config.filled(self._environment)
            variables = self.config.variables(self._environment)
            async with opened(self.config.name, command, variables) as session:
                await self._serve(session)
            return "it has ended"
        except HearthNetError as error:
            return error.message
        except Exception as error:
            _log.exception("the MCP server %s failed", self.config.name)
            return f"{type(error).__name__}: {error}"
        finally:
            self._session = None

    async def _serve(self, session: Session) -> None:
        """Offer the listed tools until the server ends, and list them again when they change."""
        while not session.closed:
            await self._list(session)
            await session.changed.wait()

    async def _list(self, session: Session) -> None:
        session.changed.clear()
        session.broken.clear()
        listed = await session.tools()
        found = tools.read(self.config, listed)
        known = {tool.contract.id: tool for tool in self.listing.tools}
        self._session = session
        current = tuple(known.get(tool.contract.id, tool) for tool in found.tools)
        self._become(ToolListing(current, (*session.broken, *found.dropped)), "")

    def _become(self, listing: ToolListing, problem: str) -> None:
        for line in listing.dropped:
            if line not in self.listing.dropped:
                _log.warning("%s: %s", self.config.name, line)
        self.listing, self.problem = listing, problem
        self._changed()
