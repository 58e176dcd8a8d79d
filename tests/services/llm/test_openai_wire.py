"""Exact JSON in both directions, and answers in pieces of any size (seed 003, the mapping table)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.errors import HearthNetError
from hearthnet_llm.frames import Done, Frame, Notice, Token, ToolCall, ToolCallDelta, to_event
from hearthnet_llm.openai_compatible.incoming import Incoming
from hearthnet_llm.openai_compatible.outgoing import chat_body, complete_body
from hearthnet_llm.request import ChatRequest, CompleteRequest, Message, Named, ResponseSchema, Tool
from hearthnet_llm.vendors import failures
from hearthnet_llm.vendors.sse import EventLines

TOOL = Tool("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})


def answer(*chunks: dict[str, Any]) -> list[Frame]:
    """The frames of an answer."""
    incoming = Incoming("m", 70)
    return [*(frame for chunk in chunks for frame in incoming.feed(chunk)), *incoming.end()]


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(arguments: Any = None, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk with a piece of a call."""
    return delta(tool_calls=[{"function": {"name": name, "arguments": arguments}, **fields}])


def calls(frames: list[Frame]) -> list[tuple[str, str, dict[str, Any]]]:
    """The complete calls."""
    return [(frame.id, frame.name, frame.arguments) for frame in frames if isinstance(frame, ToolCall)]


@pytest.mark.req("LLM-9")
def test_a_request_word_for_word() -> None:
    request = ChatRequest(
        messages=[
            Message(role="system", content="Be brief."),
            Message(role="user", content="Look there."),
            Message(role="assistant", content="", tool_calls=[ToolCall("c1", "look", {"at": "café"})]),
            Message(role="tool", content='{"seen":1}', tool_call_id="c1"),
            Message(role="assistant", content="Hm.", tool_calls=[ToolCall("c2", "look", {})]),
            Message(role="tool", content="gone", tool_call_id="c2", is_error=True),
        ],
        tools=[TOOL],
        tool_choice=Named("look"),
        stop=["END"],
        seed=7,
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        response_schema=ResponseSchema("seen", {"type": "object"}),
    )
    called = {"type": "function", "function": {"name": "look", "arguments": '{"at":"café"}'}}
    assert chat_body(request, "gpt") == {
        "model": "gpt",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look there."},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", **called}]},
            {"role": "tool", "tool_call_id": "c1", "content": '{"seen":1}'},
            {
                "role": "assistant",
                "content": "Hm.",
                "tool_calls": [
                    {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "ERROR: gone"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Looks.", "parameters": TOOL.parameters_schema},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "stop": ["END"],
        "seed": 7,
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "seen", "schema": {"type": "object"}},
        },
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.req("LLM-9")
@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_the_other_choices_are_words_and_only_sent_with_tools(choice: Any) -> None:
    said = [Message(role="user", content="x")]
    assert (
        chat_body(ChatRequest(messages=said, tools=[TOOL], tool_choice=choice), "m")["tool_choice"] == choice
    )
    bare = chat_body(ChatRequest(messages=said, tool_choice="auto"), "m")
    assert "tools" not in bare
    assert "tool_choice" not in bare
    assert "seed" not in bare


@pytest.mark.req("LLM-9")
def test_a_text_to_continue() -> None:
    body = complete_body(CompleteRequest(prompt="Once", seed=1), "m")
    assert (body["prompt"], body["seed"], body["max_tokens"], body["model"]) == ("Once", 1, 256, "m")


@pytest.mark.req("LLM-10")
def test_text_usage_and_reason() -> None:
    frames = answer(
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content="lo"),
        delta("length"),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    )
    assert frames == [Token("Hel"), Token("lo"), Done("max_tokens", 5, 2, "native")]


@pytest.mark.req("LLM-10")
def test_without_usage_tokens_are_estimated() -> None:
    assert answer(delta("stop", content="1234567"))[-1] == Done("end", 20, 2, "native")


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


QUIRKS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str, dict[str, Any]]]]] = {
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
        [call('{"a":1}', "x", index=0, id="i"), call('{"b":2}', "y", index=0, id="j")],
        [("i", "x", {"a": 1}), ("j", "y", {"b": 2})],
    ),
    "by id alone": ([call('{"a"', "x", id="i"), call(":1}", id="i")], [("i", "x", {"a": 1})]),
    "arguments as an object": ([call({"a": 1}, "x", index=0, id="i")], [("i", "x", {"a": 1})]),
    "empty arguments": ([call("", "x", index=0, id="i")], [("i", "x", {})]),
    "no arguments": ([call(None, "x", index=0, id="i")], [("i", "x", {})]),
    "the same id twice": (
        [call("{}", "x", index=0, id="i"), call("{}", "x", index=1, id="i")],
        [("i", "x", {}), ("call_2", "x", {})],
    ),
    "no calls at all": ([delta(tool_calls=None, content=None)], []),
    "a whole message": (
        [{"choices": [{"message": {"content": None, "tool_calls": [
            {"id": "", "function": {"name": "x", "arguments": "{}"}},
            {"index": 0, "function": {"name": "y", "arguments": "{}"}}]}, "finish_reason": "stop"}]}],
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
@pytest.mark.parametrize("broken", ['{"a":', "[1]", '{"a":1}}'])
def test_a_call_that_never_closes_is_left_out_and_said(broken: str) -> None:
    frames = answer(call(broken, "x", index=0, id="i"), delta("tool_calls"))
    assert calls(frames) == []
    assert any(isinstance(frame, Notice) and "x" in frame.text for frame in frames)
    assert isinstance(frames[-1], Done)
    assert frames[-1].stop_reason == "end"


@pytest.mark.req("LLM-10")
def test_content_in_parts_and_usage_elsewhere() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes"}, "odd"]
    usage = {"choices": [], "x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": None}}}
    frames = answer(delta(content=parts), {"choices": [{"text": "!", "finish_reason": "eos"}]}, usage)
    assert frames == [Token("Yes"), Token("!"), Done("end", 1, 0, "native")]


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize("error", [{"message": "overloaded"}, "overloaded"])
def test_an_error_in_mid_stream_ends_it(error: Any) -> None:
    with pytest.raises(HearthNetError, match="overloaded") as failed:
        answer(delta(content="x"), {"error": error})
    assert failed.value.code == "internal_error"


STREAM = (
    b': comment\r\ndata: {"a": "\xc3\xa9"}\r\n\r\nevent: x\r\nid: 3\r\ndata:{"b":\r\ndata: 2}\r\n\r\n'
    b"data: [DONE]\n\ndata: last"
)


@pytest.mark.req("LLM-10")
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(edges)]
    assert list(events(pieces)) == ['{"a": "é"}', '{"b":\n2}', "[DONE]", "last"]


def events(pieces: list[bytes]) -> Iterator[str]:
    """The events of a stream that comes in pieces."""
    lines = EventLines()
    for piece in pieces:
        yield from lines.feed(piece)
    yield from lines.end()


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "bad_request"), (401, "unauthorized"), (403, "unauthorized"), (404, "not_found"),
     (418, "internal_error"), (422, "bad_request"), (429, "rate_limited"), (500, "internal_error"),
     (503, "capacity_exceeded"),
     (504, "timeout"), (529, "capacity_exceeded")],
)  # fmt: skip
def test_each_status_has_a_code(status: int, code: str) -> None:
    failed = failures.of_status(
        "m", status, {"retry-after": "1.5"}, b'{"error": {"message": "because"}}', "M_KEY"
    )
    assert failed.code == code
    assert "because" in failed.message
    assert ("M_KEY" in failed.message) == (code == "unauthorized")
    assert failed.retry_after_ms == (1500 if code in ("rate_limited", "capacity_exceeded") else None)


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize(
    ("body", "said"),
    [(b"<html><h1>Bad Gateway</h1>", "an HTML page"), (b"", "nothing"), (b"plain", "plain"), (b"[]", "[]"),
     (b'{"detail": "no"}', "no"), (b'[{"error": {"message": "list"}}]', "list"),
     (b'{"error": "word"}', "word")],
)  # fmt: skip
def test_what_the_server_says_is_said_in_one_line(body: bytes, said: str) -> None:
    assert failures.of_status("m", 500, {}, body, "").message.endswith(said)


@pytest.mark.req("LLM-11")
def test_waiting_and_keys_that_are_not_named() -> None:
    assert failures.of_status("m", 429, {"retry-after": "soon"}, b"", "").retry_after_ms == 1000
    assert failures.of_status("m", 429, {"retry-after-ms": "20"}, b"", "").retry_after_ms == 20
    assert "api_key_env" in failures.of_status("m", 401, {}, b"", "").message


@pytest.mark.req("LLM-11")
@pytest.mark.parametrize("failure", [failures.unreachable, failures.silent, failures.broken_off])
def test_a_server_that_is_lost_is_named_without_its_password(
    failure: Callable[[str, str], HearthNetError],
) -> None:
    error = failure("mine", "http://me:secret@box.lan:8080/v1/chat/completions")
    assert "mine" in error.message
    assert "at box.lan:8080" in error.message
    assert error.details == {"model": "mine", "host": "box.lan:8080"}
    assert "secret" not in str(error.to_body())


@pytest.mark.req("LLM-5")
def test_frames_as_events() -> None:
    assert to_event(Token("a")) == ("token", {"text": "a"})
    assert to_event(ToolCallDelta("i", "{")) == ("tool_call_delta", {"id": "i", "arguments_delta": "{"})
    assert to_event(ToolCallDelta("i", "{", "n"))[1]["name"] == "n"
    assert to_event(ToolCall("i", "n", {}))[0] == "tool_call"
    assert json.dumps(to_event(Notice("c", "t"))) == '["notice", {"code": "c", "text": "t"}]'
