"""1. A confirmed action runs twice: the executor is killed after the claim, the effect, the result."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment
from tests.helpers.waiting import wait_for
from tests.pains.acting import POST, Held, acting, says, wants
from tests.tools.bench import paired

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
        (effect,) = (await scene.desk.load(run)).record.effects
        if point != "after_the_result":
            assert effect.status == "claimed"
            message = await scene.executor().resume(run)
            assert message["content"] == "Posted."
            paired(scene.service.requests[-1])
        assert await scene.effects() == ["Water filter"]
        assert len({call.idempotency_key for call in scene.service.seen()}) == 1
