"""The owner's settings for tool calls hold for the runs of the gateway's clients."""

from __future__ import annotations

import pytest

from hearthnet.agent.runtime.settings import ToolSettings
from hearthnet.core.errors import HearthNetError
from tests.gateway.running import ENDS, WANTS, Ear, House, ask
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.asyncio


@pytest.mark.req("TOOL-58")
async def test_rounds_and_the_switch_are_those_that_the_owner_has_set_meanwhile() -> None:
    now = [ToolSettings(max_iterations=1)]
    house = House(MemoryRuns(), WANTS, ENDS, settings=lambda: now[0])
    anna, ear = house.guest(), Ear()
    run = await house.open(anna.client, ask(), ear, waits=False)
    assert (await run.drive()).pending
    (first, *_) = ear.all("iteration")
    assert first["max_iterations"] == 1
    now[0] = ToolSettings(enabled=False)
    with pytest.raises(HearthNetError, match="switched off on this node"):
        await house.open(anna.client, ask(), ear)
    with pytest.raises(HearthNetError, match="switched off on this node"):
        await house.resume(anna.client, run.run)
    assert len(house.bus.requests) == 1
