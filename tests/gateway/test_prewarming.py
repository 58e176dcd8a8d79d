"""A chat with tools that is only made ready for: `max_tokens` 0 begins no run, whichever way it comes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.events import all_events
from tests.helpers.gateway import House
from tests.helpers.scripted_model import NAME
from tests.helpers.socket_client import line

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
TOOLS: list[Any] = ["list_corpora", "market_post", {"use": "search_corpus", "params": {"corpus": "probe"}}]


def chat(tools: list[Any], **more: Any) -> dict[str, Any]:
    messages = [*SAID, {"role": "user", "content": ""}]
    return {
        "params": {"model": NAME},
        "input": {"messages": messages, "tools": tools, "max_tokens": 0, **more},
    }


def call(tools: list[Any], **more: Any) -> dict[str, Any]:
    return {"capability": "llm.chat", "version": "2.0", "body": chat(tools, **more)}


def read(house: House) -> dict[str, Any]:
    """What the model was to read last: messages and the names of tools."""
    request = house.model.readied[-1]
    names = [tool["function"]["name"] for tool in request.get("tools", [])]
    return {
        "messages": [(one["role"], one["content"]) for one in request["messages"]],
        "tools": names,
        "most": request.get("max_tokens") or request.get("max_completion_tokens"),
    }


BEGINNING = [("user", "Hello"), ("assistant", "Yes?"), ("user", "")]


@pytest.mark.req("HTTP-37")
async def test_over_http_the_model_reads_the_clients_tools_and_no_run_begins(shared: House) -> None:
    guest, asked = shared.guest("llm.chat", "rag.query", "rag.list_corpora", "market.list"), []
    asked += shared.model.requests
    async with shared.http(guest) as http:
        answer = await http.post("/v1/call", json=call(TOOLS))
        assert answer.status_code == 200, answer.text
        assert answer.json()["output"]["message"]["content"] == ""
        assert answer.json()["meta"]["tokens_out"] == 0
        assert "run" not in {**answer.json(), **answer.json()["meta"]}
        # What the scope does not cover is not shown: there is no market.post for this guest.
        assert read(shared) == {
            "messages": BEGINNING,
            "tools": ["list_corpora", "search_corpus"],
            "most": 1,
        }
        events = await all_events(http, call(TOOLS[:1], tool_choice={"name": "list_corpora"}))
        assert [one.event for one in events] == ["done"]
        assert "run" not in events[0].data
        assert read(shared)["tools"] == ["list_corpora"]
        wrong = await http.post("/v1/call", json=call(["no_such_tool"]))
        assert (wrong.status_code, wrong.json()["error"]) == (404, "not_found")
        hidden = await http.post("/v1/call", json=call(["market_post"]))
        assert (hidden.status_code, hidden.json()["error"]) == (403, "token_scope_insufficient")
    assert shared.model.requests == asked, "the model was to answer nothing"


@pytest.mark.req("HTTP-37")
async def test_over_the_socket_it_is_a_stream_without_a_run(shared: House) -> None:
    guest = shared.guest("llm.chat", "rag.list_corpora")
    async with line(shared, guest) as one:
        await one.call(shared, guest, "llm.chat", chat(TOOLS[:1]), version="2.0")
        opened = await one.until("opened")
        assert not opened["data"].get("run")
        frames = await one.rest()
    assert [frame["event"] for frame in frames] == ["opened", "done"]
    assert "run" not in frames[-1]["data"]
    assert read(shared)["tools"] == ["list_corpora"]
