"""Answers of Gemini into frames: events, an array, one object, and what may come instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
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
)
from tests.services.llm.asking import events, heard

pytestmark = pytest.mark.req("LLM-32")


def said(*parts: dict[str, Any], finish: Any = None, **more: Any) -> dict[str, Any]:
    """One response of a stream."""
    reason = {} if finish is None else {"finishReason": finish}
    return {
        "candidates": [{"content": {"role": "model", "parts": list(parts)}, **reason, **more}],
        "usageMetadata": {"trafficType": "ON_DEMAND"},
    }


def call(name: str | None = None, **fields: Any) -> dict[str, Any]:
    """A part with a functionCall."""
    return {"functionCall": {**({"name": name} if name else {}), **fields}}


def value(path: str, text: str, more: bool = False) -> dict[str, Any]:
    """A piece of a call's arguments."""
    return {"jsonPath": path, "stringValue": text, **({"willContinue": True} if more else {})}


USAGE = {
    "promptTokenCount": 4,
    "toolUsePromptTokenCount": 1,
    "candidatesTokenCount": 6,
    "thoughtsTokenCount": 2,
    "cachedContentTokenCount": 3,
}
STREAM = [
    said({"text": "so ", "thought": True}),
    said({"text": "it is", "thought": True}),
    said({"text": "Grüße "}),
    said({"text": "🌍"}),
    said(
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
    ),
    said({**call("weather", args={"city": "K"}), "thoughtSignature": "cHJvb2Y="}, call("clock", id="g1")),
    said(call("write", willContinue=True)),
    said(call(partialArgs=[value("$.items[0].name", "a", True)], willContinue=True)),
    said(call(partialArgs=[value("$.items[0].name", "b")], willContinue=True)),
    said(call(partialArgs=[{"jsonPath": "$['items'][1].n", "numberValue": 2}], willContinue=True)),
    said(call()),
    {
        **said(
            {"text": "", "thoughtSignature": "bGF0ZQ=="},
            finish="STOP",
            groundingMetadata={"groundingChunks": [{"web": {"uri": "u", "title": "T"}}]},
        ),
        "usageMetadata": USAGE,
    },
]
FRAMES: list[Frame] = [
    ReasoningDelta("so "),
    ReasoningDelta("it is"),
    ReasoningBlock(ThinkingPart("so it is", format="gemini")),
    TextDelta("Grüße "),
    TextDelta("🌍"),
    ServerToolEvent(ServerCallPart("code_execution", arguments={"language": "PYTHON", "code": "1"})),
    ServerToolEvent(ServerResultPart("code_execution", result={"outcome": "OUTCOME_OK"})),
    ToolCall("call_1", "weather", {"city": "K"}, "cHJvb2Y="),
    ToolCall("g1", "clock", {}),
    ToolCall("call_3", "write", {"items": [{"name": "ab"}, {"n": 2}]}),
    ReasoningBlock(ThinkingPart(signature="bGF0ZQ==", format="gemini")),
    CitationEvent(Citation("web", title="T", url="u", index=0)),
    Done("tool_calls", 5, 8, "native", 3, 2),
]
FULL = events(*STREAM)
ARRAY = json.dumps(STREAM, indent=1, ensure_ascii=False).encode()


@pytest.mark.parametrize("data", [FULL, ARRAY], ids=["events", "array"])
def test_a_stream_gives_exactly_these_frames(data: bytes) -> None:
    assert heard("gemini", data) == FRAMES


@given(st.sampled_from([FULL, ARRAY]), st.lists(st.integers(0, len(FULL)), max_size=12))
def test_where_a_stream_is_cut_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    within = sorted(min(cut, len(data)) for cut in cuts)
    assert heard("gemini", data, tuple(within)) == FRAMES


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("STOP", "end"),
        ("MAX_TOKENS", "max_tokens"),
        ("SAFETY", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("MALFORMED_FUNCTION_CALL", "end"),
        ("ESCALATION", "refusal"),
        ("CONTINUATION", "max_tokens"),
        (1, "end"),
        (2, "max_tokens"),
        (3, "refusal"),
        (7, "refusal"),
        (99, "end"),
    ],
)
def test_each_reason_to_stop_has_its_canonical_one(native: Any, reason: str) -> None:
    frames = heard("gemini", json.dumps(said({"text": "x"}, finish=native)).encode())
    assert isinstance(frames[-1], Done)
    assert frames[-1].stop_reason == reason
    assert (native == "MALFORMED_FUNCTION_CALL") == isinstance(frames[1], Notice)


def test_a_prompt_that_is_blocked_is_refused() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    assert heard("gemini", json.dumps(blocked).encode()) == [Done("refusal", 3, 0, "native")]


def test_why_something_is_refused_is_told() -> None:
    blocked = {"promptFeedback": {"blockReason": "MODEL_ARMOR", "blockReasonMessage": "because"}}
    told, done = heard("gemini", json.dumps(blocked).encode())
    assert told == Notice("prohibited_content", "m: because")
    assert isinstance(done, Done)
    refused = said(finish="MODEL_ARMOR", finishMessage="for a reason")
    assert heard("gemini", json.dumps(refused).encode())[0] == Notice("model_armor", "m: for a reason")


def test_a_call_among_the_thoughts_is_a_call() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thought": True}
    frames = heard("gemini", json.dumps(said({**call("f"), "thought": True}, code, finish="STOP")).encode())
    assert frames[0] == ToolCall("call_1", "f", {})
    assert isinstance(frames[1], ServerToolEvent)


def test_a_tool_of_the_vendor_may_have_no_name() -> None:
    parts = ({"toolCall": {"id": "i"}, "thoughtSignature": "AA=="}, {"toolResponse": {"id": "i"}})
    frames = heard("gemini", json.dumps(said(*parts, finish="STOP")).encode())
    assert frames[:2] == [
        ServerToolEvent(ServerCallPart("unnamed_tool", "i", signature="AA==")),
        ServerToolEvent(ServerResultPart("unnamed_tool", "i")),
    ]


def test_an_event_that_says_only_who_speaks_is_skipped() -> None:
    frames = heard("gemini", events(said({"text": "x"}), {"modelVersion": "g"}, said(finish="STOP")))
    assert [type(frame) for frame in frames] == [TextDelta, Done]


@pytest.mark.parametrize(
    "last",
    [
        call(partialArgs=[value("$.a", "never ends", True)], willContinue=True),
        call(partialArgs=[value("$..*", "no path")]),
        call(partialArgs=[value("$.a", "x"), value("$.a[0]", "y")]),
        call(partialArgs=[{"jsonPath": "$.a"}]),
    ],
)
def test_a_call_that_never_becomes_whole_is_told_and_left_out(last: dict[str, Any]) -> None:
    frames = heard("gemini", events(said(call("write", willContinue=True)), said(last), said(finish="STOP")))
    assert isinstance(frames[0], Notice)
    assert frames[0].code == "tool_call_incomplete"
    assert isinstance(frames[1], Done)
    assert frames[1].stop_reason == "end"


def test_other_candidates_and_media_are_left_out() -> None:
    two = said({"inlineData": {"data": "", "mimeType": "image/png"}}, {"text": "x"}, finish="STOP")
    two["candidates"].append({"index": 1, "content": {"parts": [{"text": "second"}]}})
    frames = heard("gemini", json.dumps(two).encode())
    told = Notice("media_left_out", "m answered with media, which were left out")
    assert frames == [told, TextDelta("x"), Done("end", 20, 1, "native")]


@pytest.mark.req("LLM-35")
@pytest.mark.parametrize(
    ("data", "code", "said_so"),
    [
        (b"<!doctype html>", "internal_error", "HTML"),
        (b"", "internal_error", "stopped in mid-answer"),
        (events(STREAM[0]), "internal_error", "mid-answer"),
        (ARRAY[:400], "internal_error", "stopped in mid-answer"),
        (
            events(STREAM[0], {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}),
            "capacity_exceeded",
            "busy",
        ),
        (
            b'[{"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED"}}]',
            "rate_limited",
            "quota",
        ),
        (b'{"something": "else"}', "internal_error", "answered no JSON object"),
    ],
)
def test_what_is_no_answer_is_an_error_that_names_the_backend(data: bytes, code: str, said_so: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        heard("gemini", data)
    assert caught.value.code == code
    assert caught.value.message.startswith("m: ")
    assert said_so in caught.value.message


def test_each_piece_of_an_answer_has_its_sources() -> None:
    grounding = {
        "groundingChunks": [
            {"web": {"uri": "u", "title": "T"}},
            {"retrievedContext": {"title": "D", "text": "q"}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": 1, "endIndex": 4, "text": "x"}, "groundingChunkIndices": [0, 1, 7]}
        ],
    }
    sources = {"citations": [{"uri": "v", "title": "V", "startIndex": 2, "endIndex": 3}]}
    answer = said({"text": "x"}, finish="STOP", groundingMetadata=grounding, citationMetadata=sources)
    assert [
        one.citation for one in heard("gemini", json.dumps(answer).encode()) if isinstance(one, CitationEvent)
    ] == [
        Citation("web", said="x", title="T", url="u", index=0, start=1, end=4),
        Citation("file", quoted="q", said="x", title="D", index=1, start=1, end=4),
        Citation("web", title="V", url="v", start=2, end=3),
    ]
    one = said({"text": "x"}, finish="STOP", citationMetadata={"citationSources": [{"uri": "v"}]})
    assert CitationEvent(Citation("web", url="v")) in heard("gemini", json.dumps(one).encode())
