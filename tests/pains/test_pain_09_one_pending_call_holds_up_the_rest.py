"""9. One pending call holds up or cancels the rest: read-only, approved and denied in one turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet.agent.tools.types import Approve, Deny, PendingApproval
from tests.agent.bench import paired
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.pains.acting import POST, QUESTION, acting, says, wants

pytestmark = pytest.mark.asyncio


@pytest.mark.req("PAIN-9", "TOOL-1", "TOOL-5")
async def test_each_goes_its_own_way(mesh: Mesh) -> None:
    turn = [
        wants("market_post", {**POST, "title": "Yes"}, "y"),
        wants("market_post", {**POST, "title": "No"}, "n"),
        wants("search_corpus", {"query": "w"}, "r"),
    ]
    results: list[str] = []
    asked: list[str] = []

    async def hear(frame: dict[str, Any]) -> None:
        if frame["event"] == "tool_result":
            results.append(frame["data"]["tool_call_id"])

    async def nobody_here(pending: PendingApproval) -> None:
        asked.append(pending.tool_call_id)
        await asyncio.Event().wait()

    async with acting(mesh, turn, [says("Done.")]) as scene:
        run = scene.executor().open_run(QUESTION, decide=nobody_here, stream_to=hear)
        driving = asyncio.create_task(run.drive())
        await wait_for(lambda: results == ["r"], 30, "the read, while both others wait")
        await wait_for(lambda: sorted(asked) == ["n", "y"], 30, "both questions, with the run saved")
        await scene.saved.decide(run.run, "y", Approve(), via="test")
        await wait_for(lambda: results == ["r", "y"], 30, "the approved one, while the last one waits")
        await scene.saved.decide(run.run, "n", Deny(), via="test")
        assert (await asyncio.wait_for(driving, 30)).message["content"] == "Done."
        assert results == ["r", "y", "n"]
        paired(scene.service.requests[-1])
        assert await scene.effects() == ["Yes"]
        assert "denied" in scene.service.requests[-1][-2]["content"]
