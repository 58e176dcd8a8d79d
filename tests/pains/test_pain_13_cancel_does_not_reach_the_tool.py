"""13. Cancel does not reach the tool: a remote one of 60 s ends, and the model is not called again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.toolbox import TOOLS_CALL_ID
from hearthnet_llm import LlmService
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, POST, QUERY
from tests.helpers.stopwatch import Stopwatch
from tests.pains.acting import QUESTION, Acting, says, tools, wants
from tests.services.llm.responses.test_tool_calls import composed, wait_for_offers

SECONDS = 60
ENDS_WITHIN_SECONDS = 0.5
"""Half of the second that is promised: the stopwatch also leaves out what waits beside the path."""


@pytest.mark.asyncio
@pytest.mark.req("PAIN-13", "TOOL-16")
@pytest.mark.parametrize("through_another", [False, True])
async def test_a_remote_tool_ends_and_the_model_is_not_called_again(
    mesh: Mesh, *, through_another: bool
) -> None:
    """At the guest's node, called by the home or, through llm.tools.call, by the home's llm service."""
    service = Acting([wants("search_corpus", {"query": "w"}, "s")], [says("Too late.")])
    started, stopped = asyncio.Event(), asyncio.Event()

    async def work(_call: Call[Any, Any]) -> None:
        started.set()
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            stopped.set()
            raise

    service.answer = work
    declared = [composed("search_corpus", {"corpus": "probe"})] if through_another else tools()
    async with mesh.hosting(service, at=mesh.guest), mesh.hosting(LlmService()), await mesh.bus() as bus:
        await wait_for_offers(bus, QUERY, POST, CHAT, TOOLS_CALL_ID)
        executor = ToolExecutor(bus, declared, per_tool_timeout_seconds=SECONDS)
        run = executor.open_run({**QUESTION, "params": {"model": "probe"}})
        driving = asyncio.create_task(run.drive())
        await asyncio.wait_for(started.wait(), 30)
        watch = Stopwatch(mesh.server.process.pid)
        run.cancel()
        await asyncio.wait_for(stopped.wait(), SECONDS / 2)
        assert watch.seconds() < ENDS_WITHIN_SECONDS
        outcome = await driving
    assert outcome.done is not None
    assert outcome.done["stop_reason"] == "cancelled"
    assert [tool["status"] for tool in outcome.done["tools"]] == ["cancelled"]
    assert len(service.requests) == 1
