"""Ollama's own wire, exactly: what goes out, what comes in, and what may come instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import ImagePart, TextPart, ThinkingPart
from hearthnet_llm.interface.frames import (
    Done,
    Frame,
    Notice,
    ReasoningBlock,
    ReasoningDelta,
    TextDelta,
    ToolCall,
)
from hearthnet_llm.interface.request import Message, Named, ResponseSchema, ServerTool, Thinking, Tool
from hearthnet_llm.vendors import ollama
from hearthnet_llm.vendors.wire import HttpRequest, Target
from tests.services.llm.asking import ANSWER, ASKED, PNG, WEATHER, changed, heard, sent

pytestmark = pytest.mark.req("LLM-33")
TARGET = Target("qwen3:4b")


def body(**fields: Any) -> dict[str, Any]:
    """The body of the request with other fields."""
    return sent("ollama", TARGET, changed(**fields)).body


def test_a_request_has_exactly_this_json() -> None:
    native = sent("ollama", TARGET)
    assert (native.method, native.url) == ("POST", "/api/chat")
    assert native.body == {
        "model": "qwen3:4b",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Which city is this, and how is it there?", "images": [PNG]},
            {
                "role": "assistant",
                "content": "I will look.",
                "tool_calls": [
                    {"id": "c_one", "function": {"name": "weather", "arguments": {"city": "Köln"}}},
                    {"id": "c_two", "function": {"name": "clock", "arguments": {}}},
                ],
            },
            {"role": "tool", "content": '{"sky":"blue"}', "tool_name": "weather", "tool_call_id": "c_one"},
            {
                "role": "tool",
                "content": "ERROR: no clock here",
                "tool_name": "clock",
                "tool_call_id": "c_two",
            },
            {"role": "user", "content": "And is it warm?"},
        ],
        "options": {"num_predict": 200, "temperature": 0.5, "stop": ["END"]},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "Tells the weather",
                    "parameters": WEATHER.parameters_schema,
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "clock",
                    "description": "Tells the time",
                    "parameters": {"type": "object"},
                },
            },
        ],
        "stream": True,
    }


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        ("auto", ["weather", "clock"]),
        ("required", ["weather", "clock"]),
        (Named("clock"), ["clock"]),
        ("none", None),
    ],
)
def test_a_choice_leaves_out_what_may_not_be_called(choice: Any, tools: Any) -> None:
    made = ollama.encode(changed(tool_choice=choice), TARGET).body
    assert (tools is None) == ("tools" not in made)
    assert [tool["function"]["name"] for tool in made.get("tools", [])] == (tools or [])


@pytest.mark.parametrize(
    ("think", "native"),
    [
        (Thinking("on"), True),
        (Thinking("off"), False),
        (Thinking(effort="high"), "high"),
        (Thinking("on", "low"), "low"),
        (Thinking("auto"), None),
    ],
)
def test_thinking_has_one_field(think: Thinking, native: Any) -> None:
    assert ollama.encode(changed(thinking=think), TARGET).body.get("think") == native


def test_a_schema_is_the_format() -> None:
    assert body(response_schema=ResponseSchema(schema=ANSWER))["format"] == ANSWER
    assert body(response_schema=ResponseSchema())["format"] == "json"


def test_thoughts_go_back_as_text_and_ciphers_do_not() -> None:
    thoughts = [ThinkingPart("so "), ThinkingPart("it is"), ThinkingPart(data="cipher")]
    asked = changed(messages=[Message("user", "Hi"), Message("assistant", "Yes", thinking=thoughts)])
    made = ollama.encode(asked, TARGET).body["messages"][1]
    assert made == {"role": "assistant", "content": "Yes", "thinking": "so it is"}


@pytest.mark.parametrize("image", [ImagePart(url="https://x"), ImagePart(image_cid="b3:x")])
def test_an_image_that_was_not_fetched_is_refused(image: ImagePart) -> None:
    with pytest.raises(HearthNetError, match="bytes"):
        ollama.encode(changed(messages=[Message("user", [TextPart("?"), image])]), TARGET)


def test_tools_of_other_vendors_are_refused() -> None:
    with pytest.raises(HearthNetError, match="leave web_search out"):
        ollama.encode(changed(tools=[Tool("web_search", server=ServerTool("web_search"))]), TARGET)


def test_results_without_ids_find_their_calls_by_the_name_of_the_tool() -> None:
    messages = [
        {"role": "user", "content": "?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": name, "arguments": {}}} for name in ("a", "b")],
        },
        {"role": "tool", "content": "of b", "tool_name": "b"},
        {"role": "tool", "content": "of a", "tool_name": "a"},
    ]
    request, target = ollama.read(HttpRequest("POST", "/api/chat", {"model": "m", "messages": messages}), "")
    assert [message.tool_call_id for message in request.messages[2:]] == ["call_2", "call_1"]
    assert ollama.encode(request, target).body["messages"] == messages


@pytest.mark.parametrize(
    ("path", "native", "place"),
    [
        ("/api/generate", {}, "path"),
        ("/api/chat", {"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ("/api/chat", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(path: str, native: Any, place: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        ollama.read(HttpRequest("POST", path, {"model": "m", **native}), "")
    assert (caught.value.code, caught.value.details["path"]) == ("bad_request", place)


# --- answers ---


def line(done: str | None = None, **message: Any) -> dict[str, Any]:
    """One object of a stream."""
    ended = {} if done is None else {"done_reason": done, "prompt_eval_count": 5, "eval_count": 8}
    return {"message": {"role": "assistant", "content": "", **message}, "done": done is not None, **ended}


def lines(*values: dict[str, Any]) -> bytes:
    """The objects as Ollama streams them."""
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


CALLS = [
    {"function": {"name": "weather", "arguments": {"city": "K"}}},
    {"id": "c9", "function": {"name": "clock", "arguments": '{"zone": "x"}'}},
]
SPOKEN = [
    line(thinking="so "),
    line(thinking="it is"),
    line(content="Grüße "),
    line(content='🌍 " { } \\ '),
    line(tool_calls=CALLS),
    line("stop"),
]
FULL = lines(*SPOKEN)
FRAMES: list[Frame] = [
    ReasoningDelta("so "),
    ReasoningDelta("it is"),
    ReasoningBlock(ThinkingPart("so it is", format="ollama")),
    TextDelta("Grüße "),
    TextDelta('🌍 " { } \\ '),
    ToolCall("call_1", "weather", {"city": "K"}),
    ToolCall("c9", "clock", {"zone": "x"}),
    Done("tool_calls", 5, 8, "native"),
]


def test_a_stream_gives_exactly_these_frames() -> None:
    assert heard("ollama", FULL) == FRAMES


@given(st.lists(st.integers(0, len(FULL)), max_size=12))
def test_where_a_stream_is_cut_makes_no_difference(cuts: list[int]) -> None:
    assert heard("ollama", FULL, tuple(sorted(cuts))) == FRAMES


def test_one_object_in_place_of_a_stream_is_an_answer_too() -> None:
    whole = line("length", thinking="hm", content="Yes.")
    for data in (lines(whole), json.dumps(whole, indent=2).encode()):
        assert heard("ollama", data) == [
            ReasoningDelta("hm"),
            ReasoningBlock(ThinkingPart("hm", format="ollama")),
            TextDelta("Yes."),
            Done("max_tokens", 5, 8, "native"),
        ]


def test_a_prompt_that_is_not_counted_is_estimated() -> None:
    assert heard("ollama", lines({"message": {"content": "x"}, "done": True}))[-1] == Done(
        "end", 20, 1, "native"
    )


def test_images_in_an_answer_are_told_once_and_left_out() -> None:
    frames = heard("ollama", lines(line(images=["AA"]), line(content="There.", images=["AA"]), line("stop")))
    assert frames == [
        Notice("media_left_out", "m answered with media, which were left out"),
        TextDelta("There."),
        Done("end", 5, 8, "native"),
    ]


def test_no_error_is_none() -> None:
    assert heard("ollama", lines({**line(content="Hi"), "error": None}, line("stop")))[0] == TextDelta("Hi")


@pytest.mark.parametrize("reason", ["load", "unload"])
def test_a_model_that_was_only_loaded_has_said_nothing(reason: str) -> None:
    (done,) = heard("ollama", lines({**line(reason), "message": None}))
    assert isinstance(done, Done)
    assert done.stop_reason == "end"


def test_a_call_that_cannot_be_read_is_told_and_left_out() -> None:
    frames = heard(
        "ollama", lines(line(tool_calls=[{"function": {"name": "a", "arguments": '{"b": '}}]), line("stop"))
    )
    why = "m sent a call of a whose arguments are no complete JSON object; it was left out"
    assert frames == [Notice("tool_call_incomplete", why), Done("end", 5, 8, "native")]


@pytest.mark.req("LLM-35")
@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b"<html>404</html>", "internal_error", "HTML"),
        (b"", "internal_error", "stopped in mid-answer"),
        (b"{", "internal_error", "stopped in mid-answer"),
        (lines(line(content="Hi")), "internal_error", "mid-answer"),
        (
            lines(line(content="Hi"), {"error": "model runner has unexpectedly stopped"}),
            "internal_error",
            "runner",
        ),
        (lines(line(content="Hi"), {"error": ""}), "internal_error", "mid-answer"),
        (
            lines(line(content="Hi"), {"StatusCode": 429, "Status": "429", "error": "hourly limit"}),
            "rate_limited",
            "hourly limit",
        ),
        (lines({"error": "too busy", "status_code": 503}), "capacity_exceeded", "too busy"),
        (b'{"something": "else"}', "internal_error", "answered no JSON object"),
        (lines(line(content="Hi")) + b"oops\n", "internal_error", "answered no JSON object"),
    ],
)
def test_what_is_no_answer_is_an_error_that_names_the_backend(data: bytes, code: str, said: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        heard("ollama", data)
    assert caught.value.code == code
    assert caught.value.message.startswith("m: ")
    assert said in caught.value.message


def test_what_it_is_asked_is_what_was_asked() -> None:
    """But for what this wire has no word for: types of images, JSON as a value, failures, and this choice."""
    system, _, called, *_, last = ASKED.messages
    assert ollama.read(sent("ollama", TARGET), "")[0] == changed(
        messages=[
            system,
            Message("user", [TextPart("Which city is this, and how is it there?"), ImagePart(PNG)]),
            called,
            Message("tool", '{"sky":"blue"}', tool_call_id="c_one", name="weather"),
            Message("tool", "ERROR: no clock here", tool_call_id="c_two", name="clock"),
            last,
        ],
        tools=[WEATHER, Tool("clock", "Tells the time", {"type": "object"})],
        tool_choice=None,
    )
