"""llm.complete over models behind URLs: failover, and models that think or chat where a text is continued."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.mesh import Mesh
from tests.services.llm.model_server import ModelServer, events, page
from tests.services.llm.test_connecting import running
from tests.services.llm.test_service import COMPLETE, streamed

TEXT: dict[str, Any] = {"params": {}, "input": {"prompt": "Once upon a time", "max_tokens": 8}}
CONTINUED = events(
    {"choices": [{"text": " there was"}]},
    {
        "choices": [{"text": "", "finish_reason": "length"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 8},
    },
)


@pytest.mark.asyncio
@pytest.mark.req("LLM-44", "CONTRACT-31")
async def test_complete_fails_over_with_a_notice(mesh: Mesh) -> None:
    async with ModelServer() as first, ModelServer() as second:
        first.routes["/v1/completions"] = page({"error": {"message": "overloaded"}}, 503)
        second.routes["/v1/completions"] = CONTINUED
        async with running(mesh, first.config("one") + second.config("two")) as (_, bus):
            frames = await streamed(bus, COMPLETE, TEXT)
            whole = (await bus.call(COMPLETE, TEXT)).body
    assert [event for event, _ in frames] == ["notice", "token", "done"]
    assert frames[0][1]["code"] == "other_model"
    assert (frames[-1][1]["model"], frames[-1][1]["stop_reason"]) == ("two", "max_tokens")
    assert whole["output"] == {"text": " there was"}


@pytest.mark.asyncio
@pytest.mark.req("CONTRACT-31")
async def test_complete_by_a_model_that_thinks_and_calls(mesh: Mesh) -> None:
    call = {"function": {"name": "look", "arguments": {}}}
    said = [
        {"message": {"role": "assistant", "thinking": "A tale."}, "done": False},
        {"message": {"role": "assistant", "content": " a fox"}, "done": False},
        {"message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False},
        {
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 4,
            "eval_count": 6,
        },
    ]
    body = b"".join(json.dumps(one).encode() + b"\n" for one in said)
    async with ModelServer() as server:
        server.routes |= {
            "/api/tags": page({"models": [{"name": "far-1"}]}),
            "/api/show": page({"capabilities": ["completion", "thinking"]}),
            "/api/ps": page({"models": []}),
            "/api/chat": (200, "application/x-ndjson", body),
        }
        config = server.config(kind="ollama", url=f"http://{server.host}")
        async with running(mesh, config) as (_, bus):
            frames = await streamed(bus, COMPLETE, TEXT)
    assert [event for event, _ in frames] == ["thinking", "token", "done"]
    assert frames[-1][1]["stop_reason"] == "end"
