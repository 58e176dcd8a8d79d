"""Threads through the service: only what is new is sent, and the model is asked with all of it."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from tests.helpers.mesh import Mesh
from tests.services.llm.model_server import ModelServer, calling, saying
from tests.services.llm.test_service import CHAT, ask, running, streamed, tool

pytestmark = pytest.mark.req("LLM-50")
ALONE = "[llm]\nbuiltin = false\n"
USER = {"role": "user", "content": "Where do otters live?"}


def heard(server: ModelServer) -> list[dict[str, Any]]:
    """The messages of the last request to a model."""
    said = server.asked[-1][3]["messages"]
    return [{"role": message["role"], "content": message["content"]} for message in said]


@pytest.mark.asyncio
async def test_a_thread_goes_on_after_a_restart_and_belongs_to_one_principal(mesh: Mesh) -> None:
    async with ModelServer() as server:
        config = server.config() + ALONE
        async with running(mesh, config) as (_, bus):
            first = await bus.call(CHAT, ask(USER["content"], thread_id="t", thread_length=0))
            assert first.body["meta"]["thread_length"] == 2
        async with running(mesh, config) as (_, bus):
            frames = await streamed(bus, CHAT, ask("And beavers?", thread_id="t", thread_length=2))
            assert frames[-1][1]["thread_length"] == 4
            before = [USER, {"role": "assistant", "content": "Hi"}]
            assert heard(server) == [*before, {"role": "user", "content": "And beavers?"}]
            async with await mesh.guest_bus() as guest:
                with pytest.raises(HearthNetError) as missing:
                    await guest.call(CHAT, ask("And frogs?", thread_id="t", thread_length=4))
                assert missing.value.code == "thread_missing"
                begun = await guest.call(CHAT, ask("And frogs?", thread_id="t", thread_length=0))
                assert begun.body["meta"]["thread_length"] == 2
            third = await bus.call(CHAT, ask("And frogs?", thread_id="t"))
            assert third.body["meta"]["thread_length"] == 6


@pytest.mark.asyncio
async def test_results_alone_continue_a_thread_that_called_tools(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, server.config() + ALONE) as (_, bus):
        server.routes["/v1/chat/completions"] = calling("search", {"query": "otters"})
        fields: dict[str, Any] = {"thread_id": "t", "tools": [tool("search")]}
        called = (await bus.call(CHAT, ask(thread_length=0, **fields))).body
        call = called["output"]["tool_calls"][0]
        server.routes["/v1/chat/completions"] = saying("By the river.")
        result = {"role": "tool", "tool_call_id": call["id"], "content": "rivers"}
        body = {"params": {}, "input": {"messages": [result], "thread_length": 2, **fields}}
        assert (await bus.call(CHAT, body)).body["meta"]["thread_length"] == 4
        assert [message["role"] for message in heard(server)] == ["user", "assistant", "tool"]
        assert heard(server)[2]["content"] == "rivers"


@pytest.mark.asyncio
async def test_a_turn_that_failed_is_as_if_it_had_not_been(mesh: Mesh) -> None:
    async with (
        ModelServer() as server,
        running(mesh, server.config() + "[llm]\nbuiltin = false\n") as (_, bus),
    ):
        await bus.call(CHAT, ask(thread_id="t", thread_length=0))
        server.routes["/v1/chat/completions"] = (400, "application/json", b'{"error": {"message": "no"}}')
        with pytest.raises(HearthNetError, match="the server answered 400: no") as failed:
            await bus.call(CHAT, ask("And failed?", thread_id="t", thread_length=2))
        assert failed.value.code == "bad_request"
        server.routes["/v1/chat/completions"] = saying()
        misplaced = {"role": "system", "content": "Be brief."}
        body = {"params": {}, "input": {"messages": [misplaced, USER], "thread_id": "t", "thread_length": 2}}
        with pytest.raises(HearthNetError) as refused:
            await bus.call(CHAT, body)
        assert refused.value.details["path"] == "/input/messages/0"
        again = await bus.call(CHAT, ask("And?", thread_id="t", thread_length=2))
        assert again.body["meta"]["thread_length"] == 4
        assert [message["content"] for message in heard(server)] == ["Say hello.", "Hi", "And?"]
