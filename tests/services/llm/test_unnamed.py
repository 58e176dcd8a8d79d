"""What a caller leaves out is not sent to a model's server; an answer that is cut off before it begins is
told.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from hearthnet.core.config import ModelConfig
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.http_backend import Remote
from hearthnet_llm.interface.request import ChatRequest, Message
from hearthnet_llm.vendors.catalog import CatalogEntry
from tests.helpers.mesh import Mesh
from tests.services.llm.model_server import ModelServer, events, page
from tests.services.llm.test_connecting import running
from tests.services.llm.test_every_kind import KINDS, NAMES, everybody
from tests.services.llm.test_service import CHAT, COMPLETE, streamed

pytestmark = [pytest.mark.asyncio, pytest.mark.req("LLM-145")]
HELLO: Final[dict[str, Any]] = {"messages": [{"role": "user", "content": "Say hello."}]}
BOUNDS: Final = {"anthropic": 64_000, "bedrock messages": 4096}
"""Vendors that demand a bound, and that of the model there."""
SAMPLING: Final = ("temperature", "top_p", "topP", "num_predict", "maxOutputTokens", "maxTokens")
CUT = events(
    {"choices": [{"delta": {"reasoning_content": "Let me think about that for a while."}}]},
    {
        "choices": [{"delta": {}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 900},
    },
)


async def test_chat_sends_no_sampling_that_nobody_named(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    async with everybody(mesh, monkeypatch) as (server, bus):
        for name in KINDS:
            await streamed(bus, CHAT, {"params": {"model": NAMES[name]}, "input": HELLO})
            body = next(body for method, *_, body in reversed(server.asked) if method == "POST")
            assert not [word for word in SAMPLING if f'"{word}"' in json.dumps(body)], name
            bound = body.get("max_tokens", body.get("max_completion_tokens"))
            assert (bound is not None) == (name in ("anthropic", "bedrock messages")), name


async def test_an_answer_cut_off_before_it_began_is_told(mesh: Mesh) -> None:
    async with ModelServer() as server:
        server.routes["/v1/chat/completions"] = CUT
        async with running(mesh, server.config("far")) as (_, bus):
            frames = await streamed(bus, CHAT, {"params": {}, "input": HELLO})
            ready = {"params": {}, "input": {**HELLO, "max_tokens": 0}}
            readied = await streamed(bus, CHAT, ready)
            whole = (await bus.call(CHAT, {"params": {}, "input": HELLO})).body
    assert [event for event, _ in frames] == ["thinking", "thought", "notice", "done"]
    assert frames[2][1]["code"] == "answer_empty"
    assert "far used up its 900 tokens by thinking before it said anything" in frames[2][1]["text"]
    assert frames[3][1]["stop_reason"] == whole["meta"]["stop_reason"] == "max_tokens"
    assert [event for event, _ in readied] == ["done"]


@pytest.mark.req("LLM-149")
@pytest.mark.parametrize(("thought", "words"), [("", "it said nothing"), ("Hm.", "it only thought")])
async def test_an_answer_that_ends_with_nothing_is_told(mesh: Mesh, thought: str, words: str) -> None:
    called = {"id": "c", "name": "look", "arguments": {}}
    acted = [*HELLO["messages"], {"role": "assistant", "content": "", "tool_calls": [called]}]
    acted.append({"role": "tool", "tool_call_id": "c", "content": "done"})
    async with ModelServer() as server:
        delta = {"reasoning_content": thought} if thought else {}
        server.routes["/v1/chat/completions"] = events(
            {"choices": [{"delta": delta, "finish_reason": "stop"}]}
        )
        async with running(mesh, server.config("far")) as (_, bus):
            frames = await streamed(bus, CHAT, {"params": {}, "input": HELLO})
            limit = {"role": "user", "content": "[The limit is reached.]"}
            for messages in (acted, [*acted, limit]):
                after = await streamed(bus, CHAT, {"params": {}, "input": {"messages": messages}})
                assert "notice" not in [event for event, _ in after]
    (told,) = [data for event, data in frames if event == "notice"]
    assert told["code"] == "answer_empty"
    assert words in told["text"]
    assert (frames[-1][0], frames[-1][1]["stop_reason"]) == ("done", "end")


async def test_an_answer_cut_off_in_the_middle_needs_no_notice(mesh: Mesh) -> None:
    async with ModelServer() as server:
        server.routes["/v1/completions"] = events({"choices": [{"text": "was", "finish_reason": "length"}]})
        async with running(mesh, server.config("far")) as (_, bus):
            frames = await streamed(bus, COMPLETE, {"params": {}, "input": {"prompt": "Once there"}})
    assert [event for event, _ in frames] == ["token", "done"]


@pytest.mark.parametrize(
    ("told", "words", "most"),
    [
        (CatalogEntry("claude-x", ctx=200_000, answer=50_000), 10, 50_000),
        (CatalogEntry("claude-x", ctx=200_000), 10, 64_000),
        (CatalogEntry("small-1", ctx=9000), 10, 8192),
        (CatalogEntry("small-1", ctx=9000), 3000, 2136),
        (CatalogEntry("small-1", ctx=9000), 9000, 1125),
    ],
)
async def test_a_demanded_bound_leaves_the_prompt_its_room(told: CatalogEntry, words: int, most: int) -> None:
    async with ModelServer() as server:
        server.routes["/v1/messages"] = page({"type": "error"}, 400)
        config = ModelConfig(kind="anthropic", name="m", url=server.url, model=told.name)
        remote = Remote(config)
        remote.learn(told)
        request = ChatRequest(messages=[Message("user", "word " * words)])
        with pytest.raises(HearthNetError, match="the server answered 400"):
            _ = [frame async for frame in remote.stream(request)]
        await remote.aclose()
    assert server.asked[-1][3]["max_tokens"] == most
