"""The presence of a run's client: a run waits while it is connected, and a while longer."""

from __future__ import annotations

import asyncio
from typing import Final, TypedDict

from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.ports import Decide, RunTool
from hearthnet.agent.tools.types import ClientCallRequest, Decision, PendingApproval

AWAY_SECONDS: Final = 60.0


class ClientHandlers(TypedDict):
    """The two functions by which a run reaches its client."""

    decide: Decide | None
    run_tool: RunTool | None


class ClientPresence:
    """One client of one run."""

    def __init__(self, away_seconds: float = AWAY_SECONDS, run_tool: RunTool | None = None) -> None:
        """Create a connected client; `run_tool` has it run a tool of its own.

        Without `run_tool`, such a call waits until the run is resumed.
        """
        self._away = away_seconds
        self._run_tool = run_tool
        self._here = asyncio.Event()
        self._gone = asyncio.Event()
        self._here.set()

    def asked(self, *, waits: bool) -> ClientHandlers:
        """Return the functions for the run; without `waits` it is suspended at once instead."""
        return {
            "decide": self.decide if waits else None,
            "run_tool": None if self._run_tool is None else self.run_tool,
        }

    @property
    def here(self) -> bool:
        """Return whether the client is connected."""
        return self._here.is_set()

    def leave(self) -> None:
        """Note that the client has disconnected; it may come back."""
        self._here.clear()
        self._gone.set()

    def come_back(self) -> None:
        """Note that the client is connected again."""
        self._gone.clear()
        self._here.set()

    async def lost(self) -> None:
        """Wait until the client has been away for `away_seconds`."""
        while True:
            await self._gone.wait()
            try:
                async with asyncio.timeout(self._away):
                    await self._here.wait()
            except TimeoutError:
                return

    async def decide(self, _asked: PendingApproval) -> Decision | None:
        """Wait for as long as the client may decide, and return None.

        Its decision is stored by `SavedRuns.decide` and read from there: it may come by any of its
        connections, and of any gateway.
        """
        await self.lost()
        return None

    async def run_tool(self, wanted: ClientCallRequest) -> ClientResult | None:
        """Return the client's result of a call of its own tool; None where it is away."""
        if self._run_tool is None:
            return None
        try:
            async with asyncio.timeout(None) as waiting:
                losing = asyncio.create_task(self._give_up(waiting))
                try:
                    # In this task, so that it waits for the result before the client can receive the call.
                    return await self._run_tool(wanted)
                finally:
                    losing.cancel()
        except TimeoutError:
            return None

    async def _give_up(self, waiting: asyncio.Timeout) -> None:
        await self.lost()
        waiting.reschedule(asyncio.get_running_loop().time())
