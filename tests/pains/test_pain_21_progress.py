"""Silence while a tool works.

See: docs/protocol/failures.md#no-progress-shown.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from hearthnet.agent.runtime.executor import ToolExecutor
from tests.agent.scripted import Line, ScriptedBus, calls, done, says
from tests.agent.test_large_results import STORY

BODY = {"params": {}, "input": {"messages": [{"role": "user", "content": "Tell me."}]}}


@pytest.mark.asyncio
@pytest.mark.req("TOOL-43", "TOOL-54")
async def test_ten_steps_are_heard_in_order_before_the_result_and_the_model_sees_the_result_only() -> None:
    steps: list[Line] = [("progress", {"current": n, "total": 10, "stage": "writing"}) for n in range(10)]
    bus = ScriptedBus(
        [calls("story", {}, "a"), done("tool_calls")],
        [says("There."), done()],
        tools={"llm.complete@1.0": [*steps, ("token", {"text": "Once"}), done()]},
    )
    heard: list[dict[str, Any]] = []

    async def listen(frame: dict[str, Any]) -> None:
        heard.append(frame)

    await ToolExecutor(bus, [STORY]).run_chat_with_tools(BODY, stream_to=listen)
    about = [frame for frame in heard if frame["event"] in ("tool_progress", "tool_result")]
    assert [frame["event"] for frame in about] == ["tool_progress"] * 10 + ["tool_result"]
    assert [frame["data"]["current"] for frame in about[:10]] == list(range(10))
    told = bus.requests[1]["messages"][-1]
    assert (told["role"], told["tool_call_id"], told["is_error"]) == ("tool", "a", False)
    result = json.loads(told["content"])
    assert result == about[10]["data"]["content"]
    assert result.keys() == {"frames", "final"}
    assert result["frames"] == [{"event": "token", "data": {"text": "Once"}}]
    assert "writing" not in json.dumps(bus.requests[1])
