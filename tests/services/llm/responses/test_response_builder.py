"""The frames of an answer added up for a caller that wants one reply."""

from __future__ import annotations

import msgspec
import pytest

from hearthnet.contracts.registry import contracts
from hearthnet_llm.builtin.model_file import BUILT_IN
from hearthnet_llm.interface.content_parts import Citation, ServerCallPart, ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    ReasoningBlock,
    ReasoningDelta,
    ServerToolEvent,
    TextDelta,
    ToolCall,
)
from hearthnet_llm.responses.response_builder import ResponseBuilder


@pytest.mark.req("LLM-12", "LLM-21")
def test_a_whole_answer_keeps_what_its_frames_said() -> None:
    answer = ResponseBuilder(BUILT_IN)
    for frame in (
        ReasoningDelta("hm"),
        ReasoningBlock(ThinkingPart("hm", signature="s")),
        ServerToolEvent(ServerCallPart("web_search", id="w")),
        TextDelta("Dig"),
        TextDelta("."),
        CitationEvent(Citation("web", url="https://a.example")),
        ToolCall("c", "look", {}),
        Done("tool_calls", 9, 4, "native", 2, 1),
    ):
        answer.feed(frame)
    body = {"output": msgspec.to_builtins(answer.output), "meta": {**answer.meta(), "ms": 1}}
    contracts().get("llm.chat@2.0").check_reply(body)
    assert body["output"] == {
        "message": {
            "role": "assistant",
            "content": "Dig.",
            "thinking": [{"type": "thinking", "text": "hm", "signature": "s"}],
            "citations": [{"kind": "web", "url": "https://a.example"}],
            "served": [{"type": "server_call", "name": "web_search", "id": "w"}],
        },
        "tool_calls": [{"id": "c", "name": "look", "arguments": {}}],
    }
    assert (answer.meta()["tokens_cached"], answer.meta()["tokens_thinking"]) == (2, 1)


@pytest.mark.req("LLM-12")
def test_a_plain_answer_says_no_more_than_before() -> None:
    answer = ResponseBuilder(BUILT_IN, calls=False)
    for frame in (TextDelta("Yes"), Done("end", 9, 1, "native", 2, 1)):
        answer.feed(frame)
    assert answer.output == {"message": {"role": "assistant", "content": "Yes"}}
    assert set(answer.meta()) == {"model", "tokens_in", "tokens_out", "stop_reason"}
