"""A server whose model calls no tools, connected as one that writes its calls: probed, offered, asked."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import ClientCallRequest, ToolDefinition
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.text_tools.parser import CLOSE, OPEN
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.services.llm.model_server import Answer, ModelServer, page, saying
from tests.services.llm.test_connecting import check, running
from tests.services.llm.test_service import CHAT, ask, streamed, tool

LOOK = ToolDefinition(
    name="look",
    description="Looks at the water.",
    parameters_schema={
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "required": ["at"],
        "additionalProperties": False,
    },
    bound_capability=None,
    bound_version=None,
    side_effects=False,
)


def called(name: str, arguments: str) -> Answer:
    """An answer that writes a call."""
    return saying(f'I do.\n{OPEN}\n{{"name": "{name}", "arguments": {arguments}}}\n{CLOSE}\n')


async def refusing(request: dict[str, Any]) -> Answer:
    """A server that takes no tools, and a model that knows the form when it is shown it."""
    if "tools" in request:
        return page({"error": "this model does not support tools"}, 400)
    said = "\n".join(str(message["content"]) for message in request["messages"])
    if "You can call tools" not in said:
        return saying("Hello.")
    if "</tool_result>" in said:
        return saying("It is clean.")
    return (
        called("look", '{"at": "water"}')
        if '"name":"look"' in said
        else called("take_note", '{"text": "hello"}')
    )


@pytest.mark.asyncio
@pytest.mark.req("LLM-61")
async def test_it_is_tried_natively_first_and_in_text_then(mesh: Mesh) -> None:
    async with ModelServer(m={}) as server, running(mesh) as (_, bus):
        server.routes["/v1/chat/completions"] = refusing
        tested = (await check(bus, url=server.url, model="m"))["tested"]
        assert (tested["tool_mode"], tested["tool_call"], tested["tools"], tested["problem"]) == (
            "text",
            True,
            True,
            "",
        )
        asked = [request for _, path, _, request in server.asked if path.endswith("completions")]
        assert ["tools" in request for request in asked] == [True, True, False]
        again = (await check(bus, url=server.url, model="m", tools="text"))["tested"]
        assert (again["tool_mode"], server.posts()) == ("text", 4)
        native = (await check(bus, url=server.url, model="m", tools=True))["tested"]
        assert (native["tool_mode"], native["tool_call"], native["answered"]) == ("none", False, True)
        assert "does not support tools" in native["problem"]


@pytest.mark.asyncio
@pytest.mark.req("LLM-61")
async def test_a_run_is_answered_by_a_model_that_writes_its_calls(mesh: Mesh) -> None:
    async with ModelServer() as server, running(mesh, server.config("plain", tools="text")) as (_, bus):
        server.routes["/v1/chat/completions"] = refusing
        (offer,) = await offered(bus, CHAT)
        assert (offer.params["tools_supported"], offer.params["tool_mode"]) == (True, "text")
        heard: list[dict[str, Any]] = []

        async def hear(frame: dict[str, Any]) -> None:
            heard.append(frame)

        async def look(wanted: ClientCallRequest) -> ClientResult:
            assert wanted.arguments == {"at": "water"}
            return ClientResult({"clean": True})

        body = {"params": {}, "input": {"messages": [{"role": "user", "content": "Is it clean?"}]}}
        message = await ToolExecutor(bus, [LOOK]).run_chat_with_tools(body, stream_to=hear, run_tool=look)
        assert message["content"] == "It is clean."
        said = "".join(frame["data"]["text"] for frame in heard if frame["event"] == "token")
        assert said == "I do.\nIt is clean."
        assert heard[-1]["event"] == "done"
        assert heard[-1]["data"]["tool_path"] == "text"
        last = server.asked[-1][3]["messages"]
        assert [one["role"] for one in last] == ["system", "user", "assistant", "user"]


@pytest.mark.asyncio
@pytest.mark.req("LLM-61")
async def test_the_path_is_in_done_and_in_what_is_counted(mesh: Mesh) -> None:
    async with (
        ModelServer() as server,
        running(mesh, server.config("plain", tools="text") + server.config("mute", tools=False)) as (
            llm,
            bus,
        ),
    ):
        server.routes["/v1/chat/completions"] = refusing
        tools = [tool("search")]
        for model, path in (("plain", "text"), ("mute", "none")):
            frames = await streamed(bus, CHAT, ask(model=model, tools=tools))
            assert frames[-1][0] == "done"
            assert frames[-1][1]["tool_path"] == path
        await bus.call(CHAT, ask(model="plain"))
        entries = [entry for _, entry in llm._bus.peer.traces.after(0) if entry.capability == CHAT]
        assert [entry.path for entry in entries if entry.side == "provider"] == ["text", "none", ""]
        with pytest.raises(HearthNetError, match="mute cannot call tools") as refused:
            await bus.call(CHAT, ask(model="mute", tools=tools, tool_choice="required"))
        assert refused.value.code == "not_implemented"
