"""Answers of Anthropic into frames: a stream in pieces, one object, and what may come instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import (
    Citation,
    ServerCallPart,
    ServerResultPart,
    ThinkingPart,
    ToolListingPart,
)
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ReasoningDelta,
    ServerToolEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from tests.services.llm.asking import events, heard

pytestmark = pytest.mark.req("LLM-30")

START = {
    "type": "message_start",
    "message": {
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}


def end(reason: str = "end_turn", **usage: Any) -> dict[str, Any]:
    """The event that says why and how much."""
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7, **usage}}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def json_delta(text: str) -> dict[str, Any]:
    """A piece of a call's arguments."""
    return {"type": "input_json_delta", "partial_json": text}


FOUND = {"type": "web_search_result", "url": "u", "title": "T", "encrypted_content": "x", "page_age": None}
FULL = events(
    START,
    {"type": "ping"},
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "so "},
        {"type": "thinking_delta", "thinking": "it is"},
        {"type": "signature_delta", "signature": "proof"},
    ),
    *block(1, {"type": "redacted_thinking", "data": "cipher"}),
    *block(
        2,
        {"type": "text", "text": "", "citations": []},
        {"type": "text_delta", "text": "Grüße "},
        {"type": "text_delta", "text": "🌍"},
        {
            "type": "citations_delta",
            "citation": {
                "type": "char_location",
                "cited_text": "x",
                "document_index": 0,
                "start_char_index": 1,
                "end_char_index": 2,
            },
        },
    ),
    *block(
        3,
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        json_delta('{"query": "q"}'),
    ),
    *block(4, {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [FOUND]}),
    *block(
        5,
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {}},
        json_delta('{"ci'),
        json_delta('ty": "K"}'),
    ),
    *block(6, {"type": "tool_use", "id": "t1", "name": "clock", "input": {}}, json_delta("")),
    end("tool_use", input_tokens=11, output_tokens_details={"thinking_tokens": 3}),
    STOP,
)
FRAMES: list[Frame] = [
    ReasoningDelta("so "),
    ReasoningDelta("it is"),
    ReasoningBlock(ThinkingPart("so it is", "proof", format="anthropic")),
    ReasoningBlock(ThinkingPart(data="cipher", format="anthropic")),
    TextDelta("Grüße "),
    TextDelta("🌍"),
    CitationEvent(Citation("chars", quoted="x", index=0, start=1, end=2)),
    ServerToolEvent(ServerCallPart("web_search", "s1", {"query": "q"})),
    ServerToolEvent(ServerResultPart("web_search", "s1", [FOUND])),
    ToolCallDelta("t1", "", "weather"),
    ToolCallDelta("t1", '{"ci'),
    ToolCallDelta("t1", 'ty": "K"}'),
    ToolCall("t1", "weather", {"city": "K"}),
    ToolCallDelta("call_2", "", "clock"),
    ToolCall("call_2", "clock", {}),
    Done("tool_calls", 16, 7, "native", 5, 3),
]


def test_a_stream_gives_exactly_these_frames() -> None:
    assert heard("anthropic", FULL) == FRAMES


@given(st.lists(st.integers(0, len(FULL)), max_size=12))
def test_where_a_stream_is_cut_makes_no_difference(cuts: list[int]) -> None:
    assert heard("anthropic", FULL, tuple(sorted(cuts))) == FRAMES


def test_a_whole_answer_gives_the_same_without_pieces() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "p"},
        {
            "type": "text",
            "text": "Yes.",
            "citations": [{"type": "web_search_result_location", "url": "u", "title": None}],
        },
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "K"}},
    ]
    answer = {
        "type": "message",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 2},
    }
    assert heard("anthropic", json.dumps(answer, indent=2).encode()) == [
        ReasoningDelta("hm"),
        ReasoningBlock(ThinkingPart("hm", "p", format="anthropic")),
        TextDelta("Yes."),
        CitationEvent(Citation("web", url="u")),
        ToolCall("t1", "weather", {"city": "K"}),
        Done("tool_calls", 1, 2, "native"),
    ]


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("end_turn", "end"),
        ("pause_turn", "end"),
        ("stop_sequence", "stop_sequence"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("refusal", "refusal"),
        ("tool_use", "end"),
        ("something_new", "end"),
    ],
)
def test_each_reason_to_stop_has_its_canonical_one(native: str, reason: str) -> None:
    last = heard("anthropic", events(START, end(native), STOP))[-1]
    assert isinstance(last, Done)
    assert last.stop_reason == reason


def test_a_pause_and_another_model_are_told() -> None:
    fallback = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    frames = heard("anthropic", events(START, *block(0, fallback), end("pause_turn"), STOP))
    assert [frame.code for frame in frames if isinstance(frame, Notice)] == ["model_changed", "answer_paused"]


def test_a_call_cut_off_by_the_limit_is_told_and_left_out() -> None:
    cut = block(0, {"type": "tool_use", "id": "t", "name": "weather", "input": {}}, json_delta('{"city": "K'))
    frames = heard("anthropic", events(START, *cut[:-1], end("max_tokens"), STOP))
    assert not any(isinstance(frame, ToolCall) for frame in frames)
    assert isinstance(frames[-2], Notice)
    assert frames[-2].code == "tool_call_incomplete"


def test_tokens_are_estimated_where_none_are_reported() -> None:
    answer = {"type": "message", "content": [{"type": "text", "text": "x" * 7}], "stop_reason": "end_turn"}
    assert heard("anthropic", json.dumps(answer).encode())[-1] == Done("end", 20, 2, "native")


@pytest.mark.req("LLM-35")
@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b"<html><body>Bad gateway</body></html>", "internal_error", "HTML"),
        (b"", "internal_error", "stopped in mid-answer"),
        (b"upstream gone", "internal_error", "answered no JSON object"),
        (events(START, *block(0, {"type": "text", "text": "Hi"})), "internal_error", "mid-answer"),
        (
            events(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
            "capacity_exceeded",
            "Overloaded",
        ),
        (
            b'{"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}',
            "rate_limited",
            "slow down",
        ),
        (b'{"something": "else"}', "internal_error", "answered no JSON object"),
        (b'{"type": "message", "content": [', "internal_error", "stopped in mid-answer"),
        (b"data: {broken\n\n", "internal_error", "answered no JSON object"),
    ],
)
def test_what_is_no_answer_is_an_error_that_names_the_backend(data: bytes, code: str, said: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        heard("anthropic", data)
    assert caught.value.code == code
    assert caught.value.message.startswith("m: ")
    assert said in caught.value.message
    assert (caught.value.retry_after_ms is not None) == (code in ("capacity_exceeded", "rate_limited"))


def test_a_source_of_a_new_kind_is_left_out() -> None:
    text = {"type": "text", "text": "x", "citations": [{"type": "dream_location"}]}
    answer = {"type": "message", "content": [text], "stop_reason": "end_turn", "usage": {"output_tokens": 1}}
    assert heard("anthropic", json.dumps(answer).encode())[0] == TextDelta("x")


def test_what_a_stream_begins_with_is_part_of_the_answer_once() -> None:
    called = {
        "type": "tool_use",
        "id": "t",
        "name": "look",
        "input": {"at": "x"},
        "caller": {"type": "code_execution_20250825", "tool_id": "s"},
    }
    message = {"type": "message", "content": [called], "stop_reason": "tool_use", "usage": {}}
    begun = {"type": "message_start", "message": message}
    calls = [ToolCall("t", "look", {"at": "x"}, called_by="code_execution_20250825/s")]
    assert heard("anthropic", events(begun, STOP))[:-1] == calls
    frames = heard("anthropic", events(begun, begun, *block(1, {"type": "text", "text": "Hi"}), end(), STOP))
    assert frames[:-1] == [*calls, TextDelta("Hi")]
    following = {**called, "id": "u", "caller": None}
    after = {"type": "message_start", "message": {**message, "id": "another", "content": [following]}}
    frames = heard("anthropic", events(begun, STOP, after, STOP))
    assert frames[:-1] == [*calls, ToolCall("u", "look", {"at": "x"})]


def test_an_answer_that_only_says_that_it_is_over_is_whole() -> None:
    bare = {"type": "message_start", "message": {"type": "message", "content": []}}
    said = block(0, {"type": "text", "text": "x" * 7})
    assert heard("anthropic", events(bare, *said, STOP))[-1] == Done("end", 20, 2, "native")


@pytest.mark.parametrize("tools", [{}, {"tools": None}, {"tools": []}])
def test_a_listing_without_tools_costs_no_answer(tools: dict[str, Any]) -> None:
    listing = {"type": "mcp_tool_listing", "mcp_server_name": "x", **tools}
    text = block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"})
    found = heard("anthropic", events(START, *block(0, listing), *text, end(), STOP))
    assert ServerToolEvent(ToolListingPart("x", [])) in found
    assert TextDelta("Hello") in found
    assert isinstance(found[-1], Done)
