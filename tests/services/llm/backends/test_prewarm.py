"""A model made ready before the first question: what is asked of it, and what it leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.backends.failover import warmed
from hearthnet_llm.interface.backend import Backend, FrameStream
from hearthnet_llm.interface.frames import Done, Frame, Notice, PrefillProgress, TextDelta
from hearthnet_llm.interface.request import ChatRequest, Message, Named, Tool
from tests.helpers.mesh import Mesh
from tests.services.llm.backends.test_failover import Spoken
from tests.services.llm.model_server import ModelServer
from tests.services.llm.test_connecting import running
from tests.services.llm.test_service import CHAT, ask, streamed
from tests.services.llm.test_text_service import LOOK, refusing

LOOKS = [Tool("look", "Looks", {"type": "object"})]


async def warm(backend: Backend, request: ChatRequest) -> list[Frame]:
    """The frames of one warming."""

    def stream(one: Backend, read: ChatRequest) -> FrameStream:
        return one.stream(read)

    return [frame async for frame in warmed(backend, request, stream)]


@pytest.mark.asyncio
@pytest.mark.req("LLM-62")
async def test_it_reads_and_says_nothing() -> None:
    said = (
        PrefillProgress("reading", 1, 2),
        Notice("other", "x"),
        TextDelta("Wel"),
        Done("max_tokens", 40, 1, "native", 30),
    )
    backend = Spoken(*said)
    request = ChatRequest(messages=[Message("user", "")], max_tokens=0, tools=LOOKS, tool_choice="required")
    assert await warm(backend, request) == [
        PrefillProgress("reading", 1, 2),
        Done("max_tokens", 40, 0, "native", 30),
    ]
    assert (backend.heard[0].max_tokens, backend.heard[0].tool_choice) == (1, "auto")
    grammar = Spoken(*said, tool_mode="grammar")
    await warm(grammar, ChatRequest(messages=[Message("user", "")], tools=LOOKS, tool_choice=Named("look")))
    assert grammar.heard[0].tool_choice == Named("look")


@pytest.mark.asyncio
@pytest.mark.req("LLM-62", "TOOL-60")
async def test_a_server_nearby_is_asked_for_one_token_and_a_thread_is_not_begun(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, server.config("plain", tools="text")) as (_, bus):
        server.routes["/v1/chat/completions"] = refusing
        await ToolExecutor(bus, [LOOK]).prewarm({"input": {"thread_id": "t1"}})
        request = server.asked[-1][3]
        assert request["max_tokens"] == 1
        assert '"name":"look"' in request["messages"][0]["content"]
        frames = await streamed(bus, CHAT, ask("Is it clean?", max_tokens=0))
        assert [event for event, _ in frames if event != "progress"] == ["done"]
        assert frames[-1][1]["tokens_out"] == 0
        assert frames[-1][1]["stop_reason"] == "max_tokens"
        body = ask("And?", thread_id="t1", thread_length=1)
        with pytest.raises(HearthNetError) as missing:
            await bus.call(CHAT, body)
        assert missing.value.code == "thread_missing"


@pytest.mark.asyncio
@pytest.mark.req("LLM-62")
async def test_a_vendor_elsewhere_is_not_asked_to_read(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet_llm.backends.backend_kinds.is_near", lambda _url: False)
    async with ModelServer() as server, running(mesh, server.config("far")) as (_, bus):
        before = server.posts()
        answered: Any = (await bus.call(CHAT, ask("Hello", max_tokens=0))).body
        assert answered["output"]["message"]["content"] == ""
        assert server.posts() == before
