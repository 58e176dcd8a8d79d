"""Answers of Amazon Bedrock into frames: AWS's event streams, whole objects, and what may come instead."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import Citation, ServerCallPart, ServerResultPart, ThinkingPart
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
from hearthnet_llm.vendors import wire
from hearthnet_llm.vendors.wire import ResponseInfo
from tests.services.llm.asking import frame, heard

pytestmark = pytest.mark.req("LLM-31")


def chunk(event: dict[str, Any]) -> bytes:
    """An event of Anthropic's in a frame, with the padding that Bedrock adds."""
    return frame("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcdef"})


ENVELOPED = b"".join(
    chunk(event)
    for event in (
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 3}},
    )
)


def delta(index: int, **fields: Any) -> bytes:
    """A piece of a block."""
    return frame("contentBlockDelta", {"contentBlockIndex": index, "delta": fields})


def start(index: int, **fields: Any) -> bytes:
    """The beginning of a block."""
    return frame("contentBlockStart", {"contentBlockIndex": index, "start": fields})


def stop(index: int) -> bytes:
    """The end of a block."""
    return frame("contentBlockStop", {"contentBlockIndex": index})


def end(reason: str) -> bytes:
    """The end of the message."""
    return frame("messageStop", {"stopReason": reason})


USAGE = frame(
    "metadata", {"usage": {"inputTokens": 4, "outputTokens": 9, "totalTokens": 15, "cacheReadInputTokens": 2}}
)
FULL = b"".join(
    (
        frame("messageStart", {"role": "assistant"}),
        delta(0, reasoningContent={"text": "so it is"}),
        delta(0, reasoningContent={"signature": "proof"}),
        stop(0),
        delta(1, reasoningContent={"redactedContent": "Yw=="}),
        stop(1),
        delta(2, text="Grüße "),
        delta(2, text="🌍"),
        delta(2, citation={"title": "T", "location": {"web": {"url": "u"}}}),
        stop(2),
        start(3, toolUse={"toolUseId": "s", "name": "nova_code_interpreter", "type": "server_tool_use"}),
        delta(3, toolUse={"input": '{"snippet": "1"}'}),
        stop(3),
        start(4, toolResult={"toolUseId": "s", "type": "nova_code_interpreter_result", "status": "success"}),
        delta(4, toolResult=[{"json": {"out": "1"}}]),
        stop(4),
        start(5, toolUse={"toolUseId": "t", "name": "weather"}),
        delta(5, toolUse={"input": '{"city":'}),
        delta(5, toolUse={"input": ' "K"}'}),
        stop(5),
        start(6, toolUse={"toolUseId": "t2", "name": "clock"}),
        stop(6),
        end("tool_use"),
        USAGE,
    )
)
FRAMES: list[Frame] = [
    ReasoningDelta("so it is"),
    ReasoningBlock(ThinkingPart("so it is", "proof", format="converse")),
    ReasoningBlock(ThinkingPart(data="Yw==", format="converse")),
    TextDelta("Grüße "),
    TextDelta("🌍"),
    CitationEvent(Citation("web", title="T", url="u")),
    ServerToolEvent(ServerCallPart("nova_code_interpreter", "s", {"snippet": "1"})),
    ServerToolEvent(ServerResultPart("nova_code_interpreter", "s", {"out": "1"}, False)),
    ToolCallDelta("t", "", "weather"),
    ToolCallDelta("t", '{"city":'),
    ToolCallDelta("t", ' "K"}'),
    ToolCall("t", "weather", {"city": "K"}),
    ToolCallDelta("t2", "", "clock"),
    ToolCall("t2", "clock", {}),
    Done("tool_calls", 6, 9, "native", 2),
]


def whole(*content: dict[str, Any]) -> bytes:
    """An answer in one piece."""
    usage = {"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": None}
    answer = {"output": {"message": {"content": [*content]}}, "stopReason": "end_turn", "usage": usage}
    return json.dumps(answer).encode()


def opened(data: bytes) -> list[dict[str, Any]]:
    """Each frame's body, under its type."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [{one.headers[":event-type"]: json.loads(one.payload)} for one in buffer]


def test_enveloped_events_are_anthropics() -> None:
    assert heard("bedrock-anthropic", ENVELOPED) == [TextDelta("Hi"), Done("end", 3, 2, "native")]


def test_a_stream_of_converse_gives_exactly_these_frames() -> None:
    assert heard("bedrock-converse", FULL) == FRAMES


@given(st.lists(st.integers(0, len(FULL)), max_size=12))
def test_where_a_stream_is_cut_makes_no_difference(cuts: list[int]) -> None:
    assert heard("bedrock-converse", FULL, tuple(sorted(cuts))) == FRAMES


def test_a_whole_answer_gives_the_same_without_pieces() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "p"}}},
        {"citationsContent": {"content": [{"text": "Yes."}], "citations": []}},
        {"toolUse": {"toolUseId": "t", "name": "weather", "input": {"city": "K"}}},
    ]
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    answer = {"output": {"message": {"content": content}}, "stopReason": "tool_use", "usage": usage}
    assert heard("bedrock-converse", json.dumps(answer).encode()) == [
        ReasoningDelta("hm"),
        ReasoningBlock(ThinkingPart("hm", "p", format="converse")),
        TextDelta("Yes."),
        ToolCall("t", "weather", {"city": "K"}),
        Done("tool_calls", 1, 2, "native"),
    ]


def test_own_tools_may_say_much_in_pieces_and_leave_out_who_they_are() -> None:
    called = {"toolUseId": "s", "name": "nova_grounding", "type": "server_tool_use"}
    expected: list[Frame] = [
        ServerToolEvent(ServerCallPart("nova_grounding", "s", {})),
        ServerToolEvent(ServerResultPart("nova_grounding", "s", "ab")),
    ]
    pieces = [delta(1, toolResult=[{"text": piece}]) for piece in "ab"]
    opened = start(1, toolResult={"toolUseId": "s"})
    streamed = b"".join((start(0, toolUse=called), stop(0), opened, *pieces, stop(1), end("end_turn"), USAGE))
    assert heard("bedrock-converse", streamed)[:-1] == expected
    result = {"toolUseId": "s", "content": [{"text": "a"}, {"json": {"b": 1}}]}
    assert heard("bedrock-converse", whole({"toolUse": {**called, "input": {}}}, {"toolResult": result}))[
        :-1
    ] == [expected[0], ServerToolEvent(ServerResultPart("nova_grounding", "s", ["a", {"b": 1}]))]


@pytest.mark.parametrize(
    ("told", "thought"),
    [({"reasoningTokens": 4}, 4), ({"outputTokensDetails": {"reasoningTokens": 5}}, 5), ({}, None)],
)
def test_what_was_thought_is_counted_where_it_is_told(told: Any, thought: int | None) -> None:
    usage = frame("metadata", {"usage": {"inputTokens": 1, "outputTokens": 9, **told}})
    assert heard("bedrock-converse", end("end_turn") + usage) == [Done("end", 1, 9, "native", None, thought)]


def test_media_in_an_answer_are_told_once_and_left_out() -> None:
    image = {"image": {"format": "png", "source": {"bytes": "AA=="}}}
    audio = {"audio": {"format": "wav", "source": {"bytes": "AA=="}}}
    told = Notice("media_left_out", "m answered with media, which were left out")
    found = heard("bedrock-converse", whole(image, audio, {"text": "!"}))
    assert found == [told, TextDelta("!"), Done("end", 1, 2, "native")]
    pieces = [delta(0, image={"source": {"bytes": "AA=="}})] * 2
    streamed = b"".join((start(0, image={"format": "png"}), *pieces, stop(0), end("end_turn"), USAGE))
    assert heard("bedrock-converse", streamed) == [told, Done("end", 6, 9, "native", 2)]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("modelStreamErrorException", "internal_error"),
        ("modelTimeoutException", "timeout"),
        ("modelNotReadyException", "capacity_exceeded"),
        ("serviceUnavailableException", "capacity_exceeded"),
        ("serviceQuotaExceededException", "rate_limited"),
        ("accessDeniedException", "unauthorized"),
        ("resourceNotFoundException", "not_found"),
    ],
)
def test_what_came_before_an_exception_is_given(kind: str, code: str) -> None:
    decoder = wire("bedrock-converse").decoder(ResponseInfo("m"))
    assert list(decoder.feed(delta(0, text="Hi"))) == [TextDelta("Hi")]
    with pytest.raises(HearthNetError, match="Oops") as caught:
        list(decoder.feed(frame(kind, {"message": "Oops"}, "exception")))
    assert caught.value.code == code


@pytest.mark.parametrize("cut", [1, 3, 8, 11, 14, 60])
def test_a_stream_that_ends_within_a_frame_has_broken_off(cut: int) -> None:
    with pytest.raises(HearthNetError, match="mid-answer"):
        heard("bedrock-converse", delta(0, text="Hi") + end("end_turn")[:cut])


@pytest.mark.parametrize("place", [1, 5, 9, 20, -20, -1])
def test_a_byte_that_is_wrong_is_found(place: int) -> None:
    damaged = bytearray(delta(0, text="Hi there"))
    damaged[place] ^= 1
    with pytest.raises(HearthNetError, match=r"^m: the server answered no JSON object; check") as caught:
        heard("bedrock-converse", bytes(damaged) + end("end_turn") + USAGE)
    assert caught.value.code == "internal_error"


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("refusal", "refusal"),
        ("end_turn", "end"),
        ("stop_sequence", "stop_sequence"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("guardrail_intervened", "refusal"),
        ("content_filtered", "refusal"),
        ("malformed_tool_use", "end"),
    ],
)
def test_each_reason_to_stop_has_its_canonical_one(native: str, reason: str) -> None:
    frames = heard("bedrock-converse", end(native) + USAGE)
    assert isinstance(frames[-1], Done)
    assert frames[-1].stop_reason == reason
    assert (native == "malformed_tool_use") == isinstance(frames[0], Notice)


@pytest.mark.req("LLM-35")
@pytest.mark.parametrize("wire", ["bedrock-anthropic", "bedrock-converse"])
@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b"<html></html>", "internal_error", "HTML"),
        (b"", "internal_error", "stopped in mid-answer"),
        (FULL[:-40] + b"\x00" * 40, "internal_error", "answered no JSON object"),
        (frame("throttlingException", {"message": "Too many"}, "exception"), "rate_limited", "Too many"),
        (frame("validationException", {"message": "No such"}, "exception"), "bad_request", "No such"),
        (frame("internalServerException", {"message": "Oops"}, "exception"), "internal_error", "Oops"),
        (frame("chunk", {"bytes": "!"}) + frame("messageStart", {}), "internal_error", ""),
    ],
)
def test_what_is_no_answer_is_an_error_that_names_the_backend(
    wire: str, data: bytes, code: str, said: str
) -> None:
    with pytest.raises(HearthNetError) as caught:
        heard(wire, data)
    assert caught.value.code == code
    assert caught.value.message.startswith("m: ")
    assert said in caught.value.message
