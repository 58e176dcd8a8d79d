"""Whether a client is there to be asked: its question waits while it is, and a while longer."""

from __future__ import annotations

import asyncio
from typing import Final, TypedDict

from hearthnet.tools.client import ClientResult
from hearthnet.tools.ports import Decide, RunTool
from hearthnet.tools.types import Decision, Pending, Wanted

AWAY_SECONDS: Final = 60.0


class Asked(TypedDict):
    """The two ways in which a run turns to its client."""

    decide: Decide | None
    run_tool: RunTool | None


class Presence:
    """One client of one run."""

    def __init__(self, away_seconds: float = AWAY_SECONDS, run_tool: RunTool | None = None) -> None:
        """`run_tool` has the client run a tool of its own; without it such a call waits for another day."""
        self._away = away_seconds
        self._run_tool = run_tool
        self._here = asyncio.Event()
        self._gone = asyncio.Event()
        self._here.set()

    def asked(self, *, waits: bool) -> Asked:
        """How a run asks the client; without `waits` it does not, and is suspended at once."""
        return {
            "decide": self.decide if waits else None,
            "run_tool": None if self._run_tool is None else self.run_tool,
        }

    @property
    def here(self) -> bool:
        """Whether the client listens."""
        return self._here.is_set()

    def leave(self) -> None:
        """The client is gone, perhaps to come back."""
        self._here.clear()
        self._gone.set()

    def come_back(self) -> None:
        """The client listens again."""
        self._gone.clear()
        self._here.set()

    async def lost(self) -> None:
        """Returns when the client has been away for so long that nobody waits for it any more."""
        while True:
            await self._gone.wait()
            try:
                async with asyncio.timeout(self._away):
                    await self._here.wait()
            except TimeoutError:
                return

    async def decide(self, _asked: Pending) -> Decision | None:
        """Waits for as long as the client may answer. What it says is written down elsewhere, and heard from
        there (`RunDesk.decide`): by whichever of its connections, of whichever gateway.
        """
        await self.lost()
        return None

    async def run_tool(self, wanted: Wanted) -> ClientResult | None:
        """The client's result of a call of its own tool; None where it is not there."""
        if self._run_tool is None:
            return None
        try:
            async with asyncio.timeout(None) as waiting:
                losing = asyncio.create_task(self._give_up(waiting))
                try:
                    # In this task, so that it waits for the answer before the client can have heard of it.
                    return await self._run_tool(wanted)
                finally:
                    losing.cancel()
        except TimeoutError:
            return None

    async def _give_up(self, waiting: asyncio.Timeout) -> None:
        await self.lost()
        waiting.reschedule(asyncio.get_running_loop().time())
