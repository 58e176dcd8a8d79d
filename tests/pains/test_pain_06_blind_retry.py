"""6. Blind retry of a non-idempotent tool: the reply is dropped after the effect."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from hearthnet import Call
from hearthnet.agent.tools.types import Approve, Decision, PendingApproval
from tests.helpers.mesh import Mesh
from tests.pains.acting import POST, QUESTION, Held, acting, asked_to_confirm, says, wants

pytestmark = pytest.mark.asyncio


async def yes(_pending: PendingApproval) -> Decision:
    return Approve()


@pytest.mark.req("PAIN-6", "TOOL-15")
async def test_an_idempotent_one_has_its_first_outcome_under_the_same_key(mesh: Mesh) -> None:
    held = Held()
    async with acting(mesh, [wants("market_post", POST, "p")], [says("Posted.")]) as scene:
        scene.service.answered = held
        executor = scene.executor(per_tool_timeout_seconds=4)
        asking = asyncio.create_task(executor.run_chat_with_tools(QUESTION, decide=yes))
        await held.reached.wait()
        scene.service.answered = None  # the first reply never comes, the repetition is answered
        assert (await asking)["content"] == "Posted."
        assert await scene.effects() == ["Water filter"]
        (result,) = [message for message in scene.service.requests[-1] if message["role"] == "tool"]
        async with await mesh.store() as store:
            kept = await store.js.get_msg("MARKET", 1, direct=True)
        told = json.loads(result["content"])
        assert (told["event_id"], told["lamport"]) == (json.loads(kept.data or b"")["event_id"], 1)
        first, second = scene.service.seen()
        assert first.idempotency_key == second.idempotency_key


@pytest.mark.req("PAIN-6", "PAIN-1", "RUN-3")
@pytest.mark.parametrize("restarted", [False, True])
async def test_of_another_one_the_outcome_is_unknown_and_it_is_never_rerun(
    mesh: Mesh, restarted: bool
) -> None:
    started = asyncio.Event()

    async def hang(_call: Call[Any, Any]) -> None:
        started.set()
        await asyncio.Event().wait()

    frames: list[dict[str, Any]] = []

    async def hear(frame: dict[str, Any]) -> None:
        frames.append(frame)

    async with acting(mesh, [wants("foreign", {"query": "w"}, "f")], [says("Please look.")]) as scene:
        scene.service.answer = hang
        tools, seconds = [asked_to_confirm()], 30 if restarted else 3
        run = scene.executor(tools, per_tool_timeout_seconds=seconds).open_run(
            QUESTION, decide=yes, stream_to=hear
        )
        driving = asyncio.create_task(run.drive())
        await asyncio.wait_for(started.wait(), 30)
        if restarted:
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
            await scene.executor().resume(run.run, stream_to=hear)
        else:
            await driving
        assert len(scene.service.seen("rag.query")) == 1
        (told,) = [frame["data"] for frame in frames if frame["event"] == "tool_result"]
        assert told["status"] == "outcome_unknown"
        (result,) = [message for message in scene.service.requests[-1] if message["role"] == "tool"]
        assert "do not call it again" in result["content"]
        (effect,) = (await scene.saved.load(run.run)).record.effects
        assert effect.status == "outcome_unknown"
