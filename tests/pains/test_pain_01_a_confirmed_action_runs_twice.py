"""1. A confirmed action runs twice: the executor is killed after the claim, the effect, the result; the
provider before the effect, after it, and before the reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest

from hearthnet import Offer
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import Approve, Decision, PendingApproval
from hearthnet_market import MarketService
from tests.agent.bench import paired
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT
from tests.helpers.processes import child_environment
from tests.helpers.waiting import wait_for
from tests.pains.acting import POST, QUESTION, Acting, Held, acting, says, tools, wants
from tests.services.market import dying
from tests.services.market.trade import listed

pytestmark = pytest.mark.asyncio
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60


async def started(mesh: Mesh, *more: str) -> asyncio.subprocess.Process:
    """An executor in a process of its own."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.pains.executor_worker",
        str(mesh.home.path),
        mesh.server.url,
        *more,
        cwd=ROOT,
        env=child_environment(),
        stdout=asyncio.subprocess.PIPE,
    )


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), SECONDS)).decode().strip()


async def killed(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.communicate()


@pytest.mark.req("PAIN-1", "RUN-2", "RUN-5")
@pytest.mark.parametrize("point", ["after_the_claim", "after_the_effect", "after_the_result"])
async def test_an_executor_that_is_killed_leaves_one_effect(mesh: Mesh, point: str) -> None:
    held = Held()
    async with acting(mesh, [wants("market_post", POST, "p")], [says("Posted.")]) as scene:
        if point == "after_the_effect":
            scene.service.answered = held
        process = await started(mesh, *(["before_sending"] if point == "after_the_claim" else []))
        run = await line(process)
        if point == "after_the_claim":
            assert await line(process) == "here"
            assert await scene.effects() == []
        elif point == "after_the_effect":
            await asyncio.wait_for(held.reached.wait(), SECONDS)
        else:
            await wait_for(lambda: len(scene.service.requests) == 2, SECONDS)
        await killed(process)
        held.go.set()
        scene.service.answered = None
        (effect,) = (await scene.saved.load(run)).record.effects
        if point != "after_the_result":
            assert effect.status == "claimed"
            message = await scene.executor().resume(run)
            assert message["content"] == "Posted."
            paired(scene.service.requests[-1])
        assert await scene.effects() == ["Water filter"]
        assert len({call.idempotency_key for call in scene.service.seen()}) == 1


class Model(Acting):
    """A model alone: the market is another process."""

    async def start(self, node: Any) -> None:
        """It keeps nothing."""

    def offers(self) -> list[Offer]:
        """The model."""
        return [one for one in super().offers() if one.capability == CHAT]


@pytest.mark.req("PAIN-1", "BUS-84")
@pytest.mark.parametrize("step", [dying.UNDONE, dying.DONE[0], dying.DONE[2]])
async def test_a_provider_that_is_killed_leaves_one_effect(mesh: Mesh, step: str) -> None:
    """The market ends at `step` of the post, and comes back while the executor waits for its answer."""
    said: list[str] = []

    async def decide(pending: PendingApproval) -> Decision:
        said.append(pending.tool_call_id)
        return Approve()

    model = Model([wants("market_post", POST, "p")], [says("Posted.")])
    async with contextlib.AsyncExitStack() as stack, mesh.hosting(model), await mesh.bus() as bus:
        stack.enter_context(mesh.published())
        market = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.services.market.dying",
            str(mesh.home.path),
            step,
            cwd=ROOT,
            env=child_environment(),
        )
        try:

            async def offered() -> bool:
                return bool(await bus.offers("market.post"))

            await wait_for(offered, SECONDS, "the market")
            driving = asyncio.create_task(
                ToolExecutor(bus, tools()).run_chat_with_tools(QUESTION, decide=decide)
            )
            assert await asyncio.wait_for(market.wait(), SECONDS) == -9
        finally:
            if market.returncode is None:
                await killed(market)
        async with mesh.hosting(MarketService()):
            message = await asyncio.wait_for(driving, SECONDS)
            posted = [one["title"] for one in (await listed(bus)).values()]
    assert message["content"] == "Posted."
    assert posted == [POST["title"]]
    assert said == ["p"], "asked once"
