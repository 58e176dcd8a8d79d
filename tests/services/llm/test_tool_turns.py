"""What a model said on its way to a call goes back to it through the tool loop, as its vendor demands."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet_llm.interface.frames import Done, to_event
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors import wire
from hearthnet_llm.vendors.wire import Target
from tests.agent.bench import QUERY, Bench
from tests.services.llm.asking import events, heard

THOUGHT = {"type": "thinking", "thinking": "Look it up.", "signature": "c2VhbA=="}
HIDDEN = {"type": "redacted_thinking", "data": "c2VjcmV0"}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "rain"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
CALL = {"type": "tool_use", "id": "tu_1", "name": "search_corpus", "input": QUERY}
ASKED_BACK = {
    "anthropic": [THOUGHT, HIDDEN, {"type": "text", "text": "One moment."}, SEARCH, FOUND, CALL],
    "gemini": [
        {"text": "Look it up.", "thought": True},
        {"text": "One moment."},
        {"functionCall": {"name": "search_corpus", "args": QUERY}, "thoughtSignature": "cHJvb2Y="},
    ],
}


def _answer(vendor: str) -> bytes:
    content: Any = ASKED_BACK[vendor]
    if vendor == "gemini":
        return events(
            {"candidates": [{"content": {"role": "model", "parts": content}, "finishReason": "STOP"}]}
        )
    whole = {"type": "message", "role": "assistant", "model": "m", "content": content}
    return msgspec.json.encode({**whole, "stop_reason": "tool_use", "usage": {}})


@pytest.mark.req("TOOL-27", "LLM-30")
@pytest.mark.parametrize("vendor", ASKED_BACK)
def test_the_turn_that_called_goes_back_as_the_vendor_sent_it(vendor: str) -> None:
    bench = Bench()
    for frame in heard(vendor, _answer(vendor)):
        if not isinstance(frame, Done):
            event, data = to_event(frame)
            if event in ("token", "tool_call", "thought", "served"):
                bench.heard(event, msgspec.json.decode(msgspec.json.encode(data)))
    bench.model_done("tool_calls")
    (call,) = bench.loop.state.calls
    bench.returned(call.id, {"chunks": []})
    again = msgspec.convert({"messages": bench.asked_model().messages}, ChatRequest)
    native = wire(vendor).encode(again, Target("m"))
    turns = native.body["contents"] if vendor == "gemini" else native.body["messages"]
    assert turns[1]["parts" if vendor == "gemini" else "content"] == ASKED_BACK[vendor]
