"""Answers on OpenAI's wire into frames: a stream in pieces, one object, and what servers make of both."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.agent.tools.names import NameMap, is_safe, sanitize
from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import Citation, ThinkingPart
from hearthnet_llm.interface.frames import (
    CitationEvent,
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    to_event,
)
from hearthnet_llm.vendors import openai
from hearthnet_llm.vendors.calls import Unclosed
from hearthnet_llm.vendors.wire import ResponseInfo

Chunk = dict[str, Any]


def sent(*chunks: Chunk | str) -> bytes:
    """The chunks as a stream that says when it is done."""
    return (
        b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    )


def frames_of(data: bytes, *cuts: int) -> list[Frame]:
    """The frames of an answer that comes in pieces."""
    decoder = openai.decoder(ResponseInfo("m", 70))
    found: list[Frame] = []
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        found += decoder.feed(data[start:end])
    return [*found, *decoder.finish()]


def answer(*chunks: Chunk) -> list[Frame]:
    """The frames of a stream."""
    return frames_of(sent(*chunks))


def delta(finish: str | None = None, **fields: Any) -> Chunk:
    """One chunk of a stream."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def whole(finish: str | None = "stop", **fields: Any) -> Chunk:
    """One object of a server that does not stream."""
    return {"choices": [{"index": 0, "message": fields, "finish_reason": finish}]}


def call(arguments: Any = None, name: str | None = None, **fields: Any) -> Chunk:
    """One chunk with a piece of a call."""
    return delta(tool_calls=[{"function": {"name": name, "arguments": arguments}, **fields}])


def calls(frames: list[Frame]) -> list[tuple[str, str, dict[str, Any]]]:
    """The complete calls."""
    return [(frame.id, frame.name, frame.arguments) for frame in frames if isinstance(frame, ToolCall)]


@pytest.mark.req("LLM-10")
def test_text_usage_and_reason() -> None:
    frames = answer(
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content="lo"),
        delta("length"),
        {"choices": [], "usage": {
            "prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 1}}},
    )  # fmt: skip
    assert frames == [TextDelta("Hel"), TextDelta("lo"), Done("max_tokens", 5, 2, "native", 3, 1)]


@pytest.mark.req("LLM-10")
def test_without_usage_tokens_are_estimated() -> None:
    assert answer(delta("stop", content="1234567"))[-1] == Done("end", 20, 2, "native")


USAGE = {"prompt_tokens": 3, "completion_tokens": 1}


@pytest.mark.req("LLM-10")
@pytest.mark.parametrize(
    "chunks",
    [
        [{**delta("stop", content="x"), "usage": USAGE}],
        [{**delta("stop", content="x"), "x_groq": {"usage": USAGE}}],
        [{"choices": [{"delta": {"content": "x"}, "finish_reason": "stop", "usage": USAGE}]}],
        [{**delta(content="x"), "usage": {**USAGE, "completion_tokens": None}}, delta("stop"),
         {"choices": None, "usage": USAGE}, {"choices": [], "usage": {}}, {"usage": {"cost": 1}}],
    ],
)  # fmt: skip
def test_usage_is_found_wherever_it_is(chunks: list[Chunk]) -> None:
    assert answer(*chunks) == [TextDelta("x"), Done("end", 3, 1, "native")]


@pytest.mark.req("LLM-10")
@pytest.mark.parametrize(
    ("reason", "stopped"),
    [("stop", "end"), ("eos", "end"), ("length", "max_tokens"), ("model_length", "max_tokens"),
     ("content_filter", "refusal"), ("guardrail_intervened", "refusal"), ("tool_calls", "end"), ("", "end"),
     ("stop_sequence", "stop_sequence"), ("a word of tomorrow", "end")],
)  # fmt: skip
def test_each_reason_to_stop(reason: str, stopped: str) -> None:
    done = answer(delta(reason, content="x"))[-1]
    assert isinstance(done, Done)
    assert done.stop_reason == stopped


@pytest.mark.req("LLM-10")
def test_parallel_calls_are_put_together_by_index() -> None:
    frames = answer(
        call("", "a", index=0, id="x"),
        call('{"n":', index=0),
        call("", "b", index=1, id="y"),
        call("1}", index=0),
        call("{}", index=1),
        delta("tool_calls"),
    )
    assert calls(frames) == [("x", "a", {"n": 1}), ("y", "b", {})]
    deltas = [frame for frame in frames if isinstance(frame, ToolCallDelta)]
    assert [(one.id, one.name) for one in deltas if one.name] == [("x", "a"), ("y", "b")]
    assert frames[-1] == Done("tool_calls", 20, 3, "native")


QUIRKS: dict[str, tuple[list[Chunk], list[tuple[str, str, dict[str, Any]]]]] = {
    "no id, no index": (
        [call('{"a":1}', "x"), call("{}", "y")],
        [("call_1", "x", {"a": 1}), ("call_2", "y", {})],
    ),
    "the older form": (
        [delta(function_call={"name": "x", "arguments": '{"a"'}), delta(function_call={"arguments": ":1}"})],
        [("call_1", "x", {"a": 1})],
    ),
    "the older form, empty": ([delta(function_call={"name": "", "arguments": ""})], []),
    "pieces with neither": ([call('{"a"', "x"), call(":1}")], [("call_1", "x", {"a": 1})]),
    "index from one": ([call("{}", "x", index=1, id="i")], [("i", "x", {})]),
    "name and id on each": (
        [call('{"a":', "x", index=0, id="i"), call("2}", "x", index=0, id="i")],
        [("i", "x", {"a": 2})],
    ),
    "one index for two": (
        [call('{"a":1}', "x", index=0, id="i"), call('{"b":', "y", index=0, id="j"), call("2}", index=0)],
        [("i", "x", {"a": 1}), ("j", "y", {"b": 2})],
    ),
    "one index for two that name themselves": (
        [call('{"a":1}', "x", index=0, id="i"), call('{"b":', "y", index=0, id="j"),
         call("2}", "y", index=0, id="j")],
        [("i", "x", {"a": 1}), ("j", "y", {"b": 2})],
    ),
    "one index for two without ids": (
        [call('{"a":1}', "x", index=0, id=""), call('{"b":2}', "y", index=0, id="")],
        [("call_1", "x", {"a": 1}), ("call_2", "y", {"b": 2})],
    ),
    "the name on each, without an id": (
        [call(piece, "x", index=0) for piece in ("", '{"a":', "1}", "")],
        [("call_1", "x", {"a": 1})],
    ),
    "by id alone": ([call('{"a"', "x", id="i"), call(":1}", id="i")], [("i", "x", {"a": 1})]),
    "arguments as an object": ([call({"a": 1}, "x", index=0, id="i")], [("i", "x", {"a": 1})]),
    "empty arguments": ([call("", "x", index=0, id="i")], [("i", "x", {})]),
    "no arguments": ([call(None, "x", index=0, id="i")], [("i", "x", {})]),
    "arguments that are null": ([call("null", "x", index=0, id="i")], [("i", "x", {})]),
    "the same id twice": (
        [call("{}", "x", index=0, id="i"), call("{}", "x", index=1, id="i")],
        [("i", "x", {}), ("call_2", "x", {})],
    ),
    "no calls at all": ([delta(tool_calls=None, content=None), delta(tool_calls=[None])], []),
    "a whole message": (
        [whole(content=None, tool_calls=[
            {"id": "", "function": {"name": "x", "arguments": "{}"}},
            {"index": 0, "function": {"name": "y", "arguments": "{}"}}])],
        [("call_1", "x", {}), ("call_2", "y", {})],
    ),
}  # fmt: skip


@pytest.mark.req("LLM-10")
@pytest.mark.parametrize("name", QUIRKS)
def test_a_servers_quirks(name: str) -> None:
    chunks, expected = QUIRKS[name]
    frames = answer(*chunks, delta("stop"))
    assert calls(frames) == expected
    assert isinstance(frames[-1], Done)
    assert frames[-1].stop_reason == ("tool_calls" if expected else "end")


@pytest.mark.req("LLM-10")
@pytest.mark.parametrize(
    "broken",
    [
        '{"a":',
        "[1]",
        '{"a":1}}',
        '{"a":NaN}',
        '{"a":1e400}',
        '{"a":"\\ud800"}',
        f'{{"a":{"[" * 9000}{"]" * 9000}}}',
    ],
)
def test_a_call_that_never_closes_is_left_out_and_said(broken: str) -> None:
    frames = answer(call(broken, "x", index=0, id="i"), delta("length"))
    assert calls(frames) == []
    why = "m sent a call of x whose arguments are no complete JSON object; it was left out"
    assert [frame for frame in frames if isinstance(frame, Notice)] == [Notice("tool_call_incomplete", why)]
    assert isinstance(frames[-1], Done)
    assert frames[-1].stop_reason == "max_tokens"


@pytest.mark.req("LLM-10")
def test_an_argument_that_json_does_not_have_is_not_passed_on_as_another_one() -> None:
    assert calls(answer(call({"a": float("inf")}, "x", index=0, id="i"), delta("tool_calls"))) == []


@pytest.mark.req("LLM-10", "TOOL-19")
@pytest.mark.parametrize("name", ["functions.look", "look at", "look!", "l" * 70, "\u00e9"])
def test_a_name_that_the_model_makes_up_ends_no_run_and_becomes_no_other_tools(name: str) -> None:
    frames = answer(call("{}", name, index=0, id="i"), delta("tool_calls"))
    ((_, made, _),) = calls(frames)
    shown = [frame.name for frame in frames if isinstance(frame, ToolCallDelta) and frame.name]
    assert shown == [made]
    assert is_safe(made)
    assert made != sanitize(name), "which may be a tool that it did not mean"
    assert NameMap([name, sanitize(name)]).to_declared(made) == name


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    ("chunks", "fails"),
    [
        ([call('{"a":', "x", index=0, id="i"), delta("tool_calls")], True),
        ([call('{"a":', "x", index=0, id="i"), delta("stop")], True),
        ([call('{"a":', "x", index=0, id="i"), delta("length")], False),
        ([call('{"a":', "x", index=0, id="i"), call("{}", "y", index=1, id="j"), delta("tool_calls")], False),
        ([delta("stop", content="x")], False),
    ],
)
def test_an_answer_that_is_nothing_but_a_broken_call_is_a_failure(chunks: list[Chunk], fails: bool) -> None:
    watch, frames = Unclosed("mine"), answer(*chunks)
    assert [watch.passed(frame) for frame in frames[:-1]] == frames[:-1]
    if not fails:
        assert watch.passed(frames[-1]) == frames[-1]
        return
    with pytest.raises(HearthNetError, match=r"mine: the model called a tool .* ask again") as failed:
        watch.passed(frames[-1])
    assert failed.value.code == "internal_error"


@pytest.mark.req("LLM-10")
def test_content_in_parts_and_as_an_object() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "Yes"},
        {"type": "thinking", "thinking": "so"},
        {"type": "reference"},
        "odd",
    ]
    frames = answer(delta(content=parts), delta("stop", content={"a": "é"}))
    assert frames == [
        ReasoningDelta("hm"), TextDelta("Yes"), ReasoningDelta("so"), TextDelta('{"a":"é"}'),
        ReasoningBlock(ThinkingPart("hmso")), Done("end", 20, 5, "native"),
    ]  # fmt: skip


@pytest.mark.req("LLM-10")
def test_an_answer_of_the_endpoint_that_continues_texts() -> None:
    frames = answer({"choices": [{"text": "Once"}]}, {"choices": [{"text": "!", "finish_reason": "stop"}]})
    assert frames[:2] == [TextDelta("Once"), TextDelta("!")]


@pytest.mark.req("LLM-10")
def test_the_message_so_far_and_other_choices_are_left_out() -> None:
    frames = answer(
        {"choices": [{"index": 0, "delta": {"content": "a"}, "message": {"content": "a"}}]},
        {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]},
        {"choices": [{"index": 0, "delta": {"content": "c"}, "message": {"content": "ac"},
                      "finish_reason": "stop"}]},
    )  # fmt: skip
    assert frames == [TextDelta("a"), TextDelta("c"), Done("end", 20, 1, "native")]


@pytest.mark.req("LLM-10")
def test_a_refusal_is_text_and_a_reason() -> None:
    frames = answer(delta(refusal="I "), delta(refusal="won't"), delta("stop"))
    assert frames == [TextDelta("I "), TextDelta("won't"), Done("refusal", 20, 2, "native")]


@pytest.mark.req("LLM-21")
def test_sources_are_given_once_each_whoever_lists_them() -> None:
    annotation = {"url": "https://a.example", "title": "A", "start_index": 3, "end_index": 9}
    frames = answer(
        delta(
            content="x", annotations=[{"type": "url_citation", "url_citation": annotation}, {"type": "file"}]
        ),
        {**delta("stop"), "citations": ["https://b.example", "https://c.example"]},
    )
    assert [frame.citation for frame in frames if isinstance(frame, CitationEvent)] == [
        Citation("web", title="A", url="https://a.example", start=3, end=9),
        Citation("web", url="https://b.example", index=0),
        Citation("web", url="https://c.example", index=1),
    ]
    listed = {"search_results": [{"url": "https://b.example", "title": "B"}, "odd", {}], "citations": ["z"]}
    frames = answer({**delta(content="x"), **listed}, {**delta("stop"), **listed})
    assert [frame.citation for frame in frames if isinstance(frame, CitationEvent)] == [
        Citation("web", title="B", url="https://b.example", index=0),
        Citation("web", url="odd", index=1),
    ]


THOUGHTS: dict[str, tuple[list[Chunk], str, list[ThinkingPart]]] = {
    "reasoning_content": (
        [delta(reasoning_content="h"), delta(reasoning_content="m")], "hm", [ThinkingPart("hm")]),
    "reasoning": ([delta(reasoning="hm")], "hm", [ThinkingPart("hm")]),
    "reasoning_text, sealed": (
        [delta(reasoning_text="hm", reasoning_opaque="s")], "hm", [ThinkingPart("hm", signature="s")]),
    "both say the same": ([delta(reasoning="hm", reasoning_content="hm")], "hm", [ThinkingPart("hm")]),
    "Google's proof": ([whole(thought_signature="s")], "", [ThinkingPart(signature="s")]),
    "pieces of Databricks": (
        [whole(content=[{"type": "reasoning", "summary": [
            {"type": "summary_text", "text": "hm", "signature": "s"}]}])],
        "hm", [ThinkingPart("hm", signature="s")]),
    "typed": (
        [delta(reasoning="h", reasoning_details=[{"type": "reasoning.text", "text": "h", "index": 0}]),
         delta(reasoning="m", reasoning_details=[
             {"type": "reasoning.text", "text": "m", "index": 0, "format": "f"}]),
         delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "signature": "s"}]),
         delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "ZZ", "id": "r"}, "odd",
                                  {"type": "reasoning.dream"}])],
        "hm",
        [ThinkingPart("hm", signature="s", kind="text", format="f", index=0),
         ThinkingPart(data="ZZ", kind="encrypted", id="r")]),
    "typed alone": (
        [delta(reasoning_details=[{"type": "reasoning.summary", "summary": "so", "index": 0}])],
        "so", [ThinkingPart("so", kind="summary", index=0)]),
}  # fmt: skip


@pytest.mark.req("LLM-21")
@pytest.mark.parametrize("name", THOUGHTS)
def test_thoughts_under_every_name_are_shown_and_kept(name: str) -> None:
    chunks, shown, kept = THOUGHTS[name]
    frames = answer(*chunks, delta("stop"))
    assert "".join(frame.text for frame in frames if isinstance(frame, ReasoningDelta)) == shown
    assert [frame.part for frame in frames if isinstance(frame, ReasoningBlock)] == kept


@pytest.mark.req("LLM-21")
def test_a_proof_of_a_call_comes_with_it() -> None:
    signed = {"extra_content": {"google": {"thought_signature": "s"}}}
    frames = answer(call("{}", "x", index=0, id="i", **signed), delta("stop"))
    assert ToolCall("i", "x", {}, "s") in frames


FAILURES: dict[str, tuple[bytes, str, str]] = {
    "an error that says what": (
        sent(delta(content="x"), {"error": {"message": "over", "code": 429}}), "rate_limited", "over"),
    "an error that is a word": (sent(delta(content="x"), {"error": "over"}), "internal_error", "over"),
    "an error in place of a chunk": (
        sent({"object": "error", "message": "over", "code": 400}), "bad_request", "over"),
    "an error in a choice": (
        sent({"choices": [{"error": {"message": "over", "code": 502}}]}), "internal_error", "over"),
    "an error as a reason": (
        sent(delta("insufficient_system_resource")), "capacity_exceeded", "it stopped for"),
    "an error without an event": (
        b'data: {"choices":[]}\n\n{"error":{"message":"over","type":"overloaded_error"}}\n',
        "capacity_exceeded", "over"),
    "one object that is an error": (b'{"error":{"message":"over"}}', "internal_error", "over"),
    "a list that is an error": (b'[{"error":{"code":403,"message":"over"}}]', "unauthorized", "over"),
    "an end in the middle": (
        b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n', "internal_error", "mid-answer"),
    "half an object": (b'{"choices":[{"message"', "internal_error", "mid-answer"),
    "no answer in an object": (b'{"detail":"x"}', "internal_error", "mid-answer"),
    "nothing": (b"", "internal_error", "mid-answer"),
    "HTML": (b"<html><body>Log in</body></html>", "internal_error", "HTML"),
    "plain text": (b"upstream connect error", "internal_error", "no JSON"),
    "no JSON in an event": (b"data: {broken\n\n", "internal_error", "no JSON"),
    "a number": (b"data: 5\n\n", "internal_error", "no JSON"),
}  # fmt: skip


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize("name", FAILURES)
def test_an_answer_that_fails_says_so_with_the_name_of_the_model(name: str) -> None:
    data, code, said = FAILURES[name]
    with pytest.raises(HearthNetError, match=said) as failed:
        frames_of(data)
    assert failed.value.code == code
    assert failed.value.message.startswith("m: ")


@pytest.mark.req("LLM-11")
def test_what_came_before_an_error_is_given() -> None:
    given = openai.decoder(ResponseInfo("m")).feed(sent(delta(content="x"), {"error": "over"}))
    assert next(given) == TextDelta("x")
    with pytest.raises(HearthNetError, match="over"):
        next(given)


ALL = sent(
    delta(role="assistant", reasoning_content="höm"),
    delta(content="Ja,\u2028 so 🙂"),
    call('{"a"', "x", index=0, id="i"),
    call(":[1,\n2]}", index=0),
    delta("tool_calls"),
    {"choices": [], "usage": USAGE},
)
ONE = b"\xef\xbb\xbf" + json.dumps(
    {**whole("tool_calls", content="Ja 🙂", tool_calls=[{"function": {"name": "x", "arguments": "{}"}}]),
     "usage": USAGE}, ensure_ascii=False
).encode()  # fmt: skip


@pytest.mark.req("LLM-10")
@given(st.sampled_from([ALL, ONE, ALL.replace(b"\n", b"\r\n")]), st.lists(st.integers(0, 700), max_size=9))
def test_frames_are_the_same_wherever_the_bytes_are_cut(data: bytes, cuts: list[int]) -> None:
    places = sorted(cut for cut in cuts if cut <= len(data))
    assert frames_of(data, *places) == frames_of(data)


@pytest.mark.req("LLM-10")
def test_text_that_is_no_unicode_still_comes_through() -> None:
    frames = frames_of(b'data: {"choices":[{"delta":{"content":"a\\ud83d b"},"finish_reason":"stop"}]}\n\n')
    assert frames[0] == TextDelta("a? b")


@pytest.mark.req("LLM-5")
def test_frames_as_events() -> None:
    assert to_event(TextDelta("a")) == ("token", {"text": "a"})
    assert to_event(ReasoningDelta("a")) == ("thinking", {"text": "a"})
    assert to_event(ReasoningBlock(ThinkingPart("a", data="Z"))) == (
        "thought", {"type": "thinking", "text": "a", "data": "Z"},
    )  # fmt: skip
    assert to_event(ToolCallDelta("i", "{")) == ("tool_call_delta", {"id": "i", "arguments_delta": "{"})
    assert to_event(ToolCallDelta("i", "{", "n"))[1]["name"] == "n"
    assert to_event(ToolCall("i", "n", {})) == ("tool_call", {"id": "i", "name": "n", "arguments": {}})
    assert json.dumps(to_event(Notice("c", "t"))) == '["notice", {"code": "c", "text": "t"}]'
