"""Homes of one community, each with its market."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hearthnet.bus.bus import Bus
from hearthnet.core.home import Home
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.market.trade import listed


@dataclass
class Stall:
    """One home with its market, and another process of it."""

    market: MarketService
    bus: Bus

    async def shown(self) -> dict[str, str]:
        """The titles of the current posts by their ids."""
        return {one: fields["title"] for one, fields in (await listed(self.bus)).items()}


@asynccontextmanager
async def stall(mesh: Mesh, home: Home) -> AsyncIterator[Stall]:
    """The market of `home`, running."""
    market = MarketService()
    with mesh.published(at=home):
        async with mesh.hosting(market, at=home), await mesh.bus(at=home) as bus:
            yield Stall(market, bus)


async def until_shown(at: Stall, titles: set[str], seconds: float = 10) -> None:
    """Wait until `at` lists exactly these."""

    async def are_shown() -> bool:
        return set((await at.shown()).values()) == titles

    await wait_for(are_shown, seconds, f"{titles} to be listed")
