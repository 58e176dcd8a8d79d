"""25. Runaway loops: steps, calls and tokens have hard limits that hold over a restart."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.tools.types import Approve
from tests.helpers.mesh import Mesh
from tests.pains.acting import POST, acting, says, wants

pytestmark = pytest.mark.asyncio


def again(number: int) -> list[tuple[str, dict[str, Any]]]:
    """A turn that wants one more."""
    return [wants("market_post", {**POST, "title": f"Filter {number}"}, f"p{number}")]


@pytest.mark.req("PAIN-25", "RUN-4")
@pytest.mark.parametrize(
    ("limits", "posts", "name"),
    [
        (Limits(max_iterations=3), 3, "max_iterations"),
        (Limits(max_calls=2), 2, "max_calls"),
        (Limits(max_tokens=5), 3, "max_tokens"),
        (Limits(max_equal_calls=2), 2, "max_equal_calls"),
    ],
)
async def test_a_model_that_never_stops_is_stopped_though_each_step_is_another_process(
    mesh: Mesh, limits: Limits, posts: int, name: str
) -> None:
    equal = name == "max_equal_calls"
    turns = [again(0 if equal else number) for number in range(12)]
    async with acting(mesh, *turns, [says("Enough.")]) as scene:
        executor = scene.executor(limits=limits, max_iterations=limits.max_iterations)
        answer = await executor.run_chat_with_tools(_question())
        run, restarts = answer["run"], 0
        while answer.get("requires_follow_up"):
            restarts += 1
            assert restarts < 10, "it goes on for ever"
            decisions = {one["tool_call_id"]: Approve() for one in answer["pending"]}
            answer = await scene.executor().resume(run, decisions)
        assert len(await scene.effects()) == posts
        state = (await scene.saved.load(run)).record.state
        assert state.limit == name
        told = [one for one in state.messages if "The limit of" in str(one.get("content"))]
        assert len(told) == 1


def _question() -> dict[str, Any]:
    return {"params": {}, "input": {"messages": [{"role": "user", "content": "Post and post."}]}}
