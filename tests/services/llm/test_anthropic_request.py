"""Requests to Anthropic, exactly as they go out, and read back."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import (
    CacheHint,
    CallPart,
    Citation,
    DocumentPart,
    TextPart,
    ThinkingPart,
)
from hearthnet_llm.interface.request import Message, Named, ResponseSchema, ServerTool, Thinking, Tool
from hearthnet_llm.vendors import anthropic, bedrock_anthropic, bedrock_converse
from hearthnet_llm.vendors.wire import HttpRequest, Target
from tests.services.llm.asking import ANSWER, ASKED, PNG, changed, sent

pytestmark = pytest.mark.req("LLM-30")
TARGET = Target("claude-haiku-4-5", "/v1")


def body(**fields: Any) -> dict[str, Any]:
    """The body of the request with other fields."""
    return sent("anthropic", TARGET, changed(**fields)).body


def test_a_request_has_exactly_this_json() -> None:
    native = sent("anthropic", TARGET)
    assert (native.method, native.url) == ("POST", "/v1/messages")
    assert native.headers["anthropic-version"] == "2023-06-01"
    assert native.body == {
        "model": "claude-haiku-4-5",
        "system": "Be brief.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Which city is this, and how is it there?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I will look."},
                    {"type": "tool_use", "id": "c_one", "name": "weather", "input": {"city": "Köln"}},
                    {"type": "tool_use", "id": "c_two", "name": "clock", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c_one",
                        "content": [{"type": "text", "text": '{"sky":"blue"}'}],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "c_two",
                        "content": "no clock here",
                        "is_error": True,
                    },
                    {"type": "text", "text": "And is it warm?"},
                ],
            },
        ],
        "max_tokens": 200,
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "tools": [
            {
                "name": "weather",
                "description": "Tells the weather",
                "input_schema": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            },
            {"name": "clock", "description": "Tells the time", "input_schema": {"type": "object"}},
        ],
        "tool_choice": {"type": "auto"},
        "stream": True,
    }


@pytest.mark.parametrize(
    ("choice", "native"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        (Named("clock"), {"type": "tool", "name": "clock"}),
        (Named("clock", ["weather"]), {"type": "any"}),
    ],
)
def test_a_choice_is_made_in_each_of_its_forms(choice: Any, native: Any) -> None:
    assert body(tool_choice=choice)["tool_choice"] == native


def test_a_choice_among_some_tools_leaves_the_others_out() -> None:
    native = anthropic.encode(changed(tool_choice=Named("clock", required=False)), TARGET).body
    assert native["tool_choice"] == {"type": "auto"}
    assert [tool["name"] for tool in native["tools"]] == ["clock"]


def test_one_call_at_a_time_is_said_with_the_choice() -> None:
    assert body(parallel_tool_calls=False)["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }


def test_a_schema_is_sent_and_one_without_is_refused() -> None:
    made = body(response_schema=ResponseSchema("answer", ANSWER))
    assert made["output_config"] == {"format": {"type": "json_schema", "schema": ANSWER}}
    with pytest.raises(HearthNetError, match="by a schema"):
        anthropic.encode(changed(response_schema=ResponseSchema()), TARGET)


@pytest.mark.parametrize(
    ("think", "native", "temperature"),
    [
        (Thinking("on", budget_tokens=2000), {"type": "enabled", "budget_tokens": 2000}, None),
        (Thinking("on"), {"type": "adaptive"}, None),
        (Thinking("auto", show="hidden"), {"type": "adaptive", "display": "omitted"}, None),
        (Thinking("off"), {"type": "disabled"}, 0.5),
    ],
)
def test_thinking_leaves_out_the_sampling_that_the_vendor_then_refuses(
    think: Thinking, native: Any, temperature: float | None
) -> None:
    made = anthropic.encode(changed(thinking=think), TARGET).body
    assert made["thinking"] == native
    assert made.get("temperature") == temperature


@pytest.mark.parametrize(
    ("model", "both"),
    [("claude-sonnet-4-0", True), ("claude-haiku-4-5", False), ("anthropic.claude-opus-4-6-v1", False)],
)
def test_top_p_beside_a_temperature_goes_where_it_is_taken(model: str, both: bool) -> None:
    made = anthropic.encode(changed(top_p=0.9), Target(model)).body
    assert (made["temperature"], made.get("top_p")) == (0.5, 0.9 if both else None)
    alone = anthropic.encode(changed(temperature=None, top_p=0.9), Target(model)).body
    assert alone["top_p"] == 0.9


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        ("claude-3-5-haiku-latest", True),
        ("claude-sonnet-4-20250514", True),
        ("claude-sonnet-4-0", True),
        ("claude-opus-4-6", True),
        ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", True),
        ("claude-opus-4-7", False),
        ("claude-opus-4-10", False),
        ("claude-sonnet-5", False),
        ("claude-next", False),
    ],
)
def test_a_temperature_goes_only_to_models_that_take_one(model: str, takes: bool) -> None:
    for native in (anthropic.encode(ASKED, Target(model)), bedrock_anthropic.encode(ASKED, Target(model))):
        assert ("temperature" in native.body) == takes
    inference = bedrock_converse.encode(ASKED, Target(f"anthropic.{model}")).body["inferenceConfig"]
    assert ("temperature" in inference) == takes


@pytest.mark.req("LLM-145")
@pytest.mark.parametrize(
    ("model", "told", "most"),
    [
        ("claude-3-haiku-20240307", None, 4096),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", None, 8192),
        ("claude-opus-4-20250514", None, 32_000),
        ("claude-opus-4-1@20250805", None, 32_000),
        ("claude-opus-4-5", None, 64_000),
        ("claude-opus-4-8", None, 128_000),
        ("claude-next", None, 64_000),
        ("qwen3-8b", None, 8192),
        ("claude-opus-4-8", 50_000, 50_000),
    ],
)
def test_max_tokens_unnamed_is_as_many_as_the_model_has(model: str, told: int | None, most: int) -> None:
    asked = changed(max_tokens=None)
    assert anthropic.encode(asked, Target(model, answer=told)).body["max_tokens"] == most
    asked_of_aws = bedrock_anthropic.encode(asked, Target(model, answer=told))
    assert asked_of_aws.body["max_tokens"] == min(most, 16_384)


@pytest.mark.req("LLM-145")
def test_max_tokens_unnamed_is_more_than_the_thinking_budget() -> None:
    asked = changed(max_tokens=None, thinking=Thinking("on", budget_tokens=20_000))
    for target in (Target("claude-3-5-haiku"), Target("claude-3-7-sonnet", answer=9000)):
        assert anthropic.encode(asked, target).body["max_tokens"] == 21_024


def test_thoughts_go_back_with_their_proof_and_those_of_others_do_not() -> None:
    thoughts = [
        ThinkingPart("so", "proof", format="anthropic"),
        ThinkingPart(data="cipher"),
        ThinkingPart("theirs", "other proof", format="gemini"),
        ThinkingPart("no proof"),
    ]
    asked = changed(
        messages=[Message("user", "Hi"), Message("assistant", "Yes", thinking=thoughts), Message("user", "?")]
    )
    made = anthropic.encode(asked, TARGET).body["messages"][1]["content"]
    assert made == [
        {"type": "thinking", "thinking": "so", "signature": "proof"},
        {"type": "redacted_thinking", "data": "cipher"},
        {"type": "text", "text": "Yes"},
    ]


def test_cache_hints_documents_and_own_tools_have_their_places() -> None:
    hint = CacheHint("1h")
    document = DocumentPart(text="All of it.", name="Paper", citations=True, cache=hint)
    own = Tool("web_search", server=ServerTool("web_search", "20250305", max_uses=2))
    made = body(
        messages=[Message("user", [document, TextPart("What?", hint)])], tools=[own], tool_choice=None
    )
    point = {"type": "ephemeral", "ttl": "1h"}
    assert made["messages"][0]["content"] == [
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "All of it."},
            "title": "Paper",
            "citations": {"enabled": True},
            "cache_control": point,
        },
        {"type": "text", "text": "What?", "cache_control": point},
    ]
    assert made["tools"] == [{"name": "web_search", "type": "web_search_20250305", "max_uses": 2}]


def test_sources_that_only_another_vendor_names_stay_behind() -> None:
    found = Citation("web", quoted="w", url="u", reference="r")
    said = TextPart("x", citations=[Citation("file", title="T"), found])
    asked = changed(messages=[Message("user", "?"), Message("assistant", [said]), Message("user", "!")])
    cited = anthropic.encode(asked, TARGET).body["messages"][1]["content"][0]["citations"]
    kind = "web_search_result_location"
    assert cited == [{"type": kind, "cited_text": "w", "url": "u", "encrypted_index": "r", "title": None}]
    there = bedrock_converse.encode(asked, Target("m")).body["messages"][1]["content"][0]["citationsContent"]
    assert there["citations"] == [
        {"title": "T"},
        {"sourceContent": [{"text": "w"}], "location": {"web": {"url": "u"}}},
    ]


def test_calls_among_text_keep_their_places() -> None:
    asked = Message(
        "assistant", [TextPart("a"), CallPart("c_one"), TextPart("b")], ASKED.messages[2].tool_calls
    )
    kinds = [
        block.get("text") or block.get("id")
        for block in anthropic.encode(changed(messages=[asked]), TARGET).body["messages"][0]["content"]
    ]
    assert kinds == ["a", "c_one", "b", "c_two"]


@pytest.mark.parametrize(
    ("native", "place"),
    [
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages[0].content[0]"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": {}, "name": "t", "input": {}}],
                    }
                ]
            },
            "messages[0].content[0].id",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "server_tool_use", "id": "a", "name": "t"}]}
                ]
            },
            "input",
        ),
        ({"messages": "x"}, "messages"),
        ({"messages": [], "thinking": {"type": "loud"}}, "thinking.type"),
        ({"messages": [], "tool_choice": {"type": "maybe"}}, "tool_choice.type"),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(native: Any, place: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        anthropic.read(HttpRequest("POST", "/v1/messages", {"model": "m", **native}), "")
    assert caught.value.code == "bad_request"
    assert caught.value.details["path"] == place
