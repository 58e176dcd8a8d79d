"""Requests to Amazon Bedrock, exactly as they go out, and read back, in both of its wires."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.interface.content_parts import CacheHint, DocumentPart, JsonPart, TextPart, ThinkingPart
from hearthnet_llm.interface.request import Message, Named, ResponseSchema, Thinking, Tool
from hearthnet_llm.vendors import bedrock_anthropic, bedrock_converse
from hearthnet_llm.vendors.wire import HttpRequest, Target
from tests.services.llm.asking import ANSWER, ASKED, PNG, changed, sent

pytestmark = pytest.mark.req("LLM-31")
TARGET = Target("eu.anthropic.claude-haiku-4-5:0")


def body(**fields: Any) -> dict[str, Any]:
    """The body of the request to Converse with other fields."""
    return sent("bedrock-converse", TARGET, changed(**fields)).body


def test_the_envelope_of_messages_has_the_model_in_its_path_and_a_version_in_its_body() -> None:
    native = sent("bedrock-anthropic", TARGET)
    plain = sent("anthropic", Target("claude-haiku-4-5", "/v1")).body
    assert native.url == "/model/eu.anthropic.claude-haiku-4-5%3A0/invoke-with-response-stream"
    inner = {name: value for name, value in plain.items() if name not in ("model", "stream")}
    assert native.body == {"anthropic_version": "bedrock-2023-05-31", **inner}
    whole = sent("bedrock-anthropic", TARGET, changed(stream=False))
    assert whole.url == "/model/eu.anthropic.claude-haiku-4-5%3A0/invoke"


def test_a_request_to_converse_has_exactly_this_json() -> None:
    native = sent("bedrock-converse", TARGET)
    assert (native.method, native.url) == ("POST", "/model/eu.anthropic.claude-haiku-4-5%3A0/converse-stream")
    assert native.body == {
        "system": [{"text": "Be brief."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"text": "Which city is this, and how is it there?"},
                    {"image": {"format": "png", "source": {"bytes": PNG}}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"text": "I will look."},
                    {"toolUse": {"toolUseId": "c_one", "name": "weather", "input": {"city": "Köln"}}},
                    {"toolUse": {"toolUseId": "c_two", "name": "clock", "input": {}}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"toolResult": {"toolUseId": "c_one", "content": [{"json": {"sky": "blue"}}]}},
                    {
                        "toolResult": {
                            "toolUseId": "c_two",
                            "content": [{"text": "no clock here"}],
                            "status": "error",
                        }
                    },
                    {"text": "And is it warm?"},
                ],
            },
        ],
        "inferenceConfig": {"maxTokens": 200, "temperature": 0.5, "stopSequences": ["END"]},
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "weather",
                        "description": "Tells the weather",
                        "inputSchema": {
                            "json": {
                                "type": "object",
                                "properties": {"city": {"type": "string"}},
                                "required": ["city"],
                            }
                        },
                    }
                },
                {
                    "toolSpec": {
                        "name": "clock",
                        "description": "Tells the time",
                        "inputSchema": {"json": {"type": "object"}},
                    }
                },
            ],
            "toolChoice": {"auto": {}},
        },
    }


@pytest.mark.parametrize(
    ("choice", "native"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        (Named("clock"), {"tool": {"name": "clock"}}),
        (Named("clock", ["weather"]), {"any": {}}),
        (Named("clock", ["weather"], required=False), {"auto": {}}),
    ],
)
def test_a_choice_is_made_in_each_of_its_forms(choice: Any, native: Any) -> None:
    made = bedrock_converse.encode(changed(tool_choice=choice), TARGET).body
    assert made["toolConfig"]["toolChoice"] == native


def test_no_tool_means_no_tools_unless_they_were_called() -> None:
    fresh = [Message("user", "Hi")]
    assert (
        "toolConfig" not in bedrock_converse.encode(changed(messages=fresh, tool_choice="none"), TARGET).body
    )
    called = bedrock_converse.encode(changed(tool_choice="none"), TARGET).body["toolConfig"]
    assert (len(called["tools"]), "toolChoice" in called) == (2, False)


@pytest.mark.parametrize(
    ("model", "think", "native"),
    [
        (
            "anthropic.claude-x",
            Thinking("on", budget_tokens=9),
            {"thinking": {"type": "enabled", "budget_tokens": 9}},
        ),
        (
            "us.amazon.nova-2",
            Thinking("on", "low"),
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
        ),
        ("openai.gpt-oss", Thinking(effort="high"), {"reasoning_effort": "high"}),
        ("openai.gpt-oss", None, None),
    ],
)
def test_each_family_is_told_to_think_in_its_own_words(model: str, think: Any, native: Any) -> None:
    made = sent("bedrock-converse", Target(model), changed(thinking=think)).body
    assert made.get("additionalModelRequestFields") == native


def test_a_schema_goes_as_text_and_one_without_is_refused() -> None:
    made = body(response_schema=ResponseSchema("answer", ANSWER))["outputConfig"]["textFormat"]
    assert made["type"] == "json_schema"
    assert json.loads(made["structure"]["jsonSchema"]["schema"]) == ANSWER
    with pytest.raises(HearthNetError, match="by a schema"):
        bedrock_converse.encode(changed(response_schema=ResponseSchema()), TARGET)


def test_cache_points_stand_after_what_they_keep() -> None:
    hint = CacheHint()
    document = DocumentPart(data="RA==", media_type="application/pdf", name="Paper")
    tool = Tool("clock", parameters_schema={"type": "object"}, cache=hint)
    made = body(
        messages=[
            Message("user", [document, TextPart("What?", hint)]),
            Message("assistant", "Yes"),
            Message("user", [TextPart("!", guard=["query"])]),
        ],
        tools=[tool],
    )
    point = {"cachePoint": {"type": "default"}}
    assert made["messages"][0]["content"] == [
        {"document": {"format": "pdf", "name": "Paper", "source": {"bytes": "RA=="}}},
        {"text": "What?"},
        point,
    ]
    assert made["messages"][2]["content"] == [
        {"guardContent": {"text": {"text": "!", "qualifiers": ["query"]}}}
    ]
    assert made["toolConfig"]["tools"][1] == point


def test_thoughts_go_back_with_their_proof_and_those_of_others_do_not() -> None:
    thoughts = [
        ThinkingPart("so", "proof", format="converse"),
        ThinkingPart(data="Yw=="),
        ThinkingPart("x", "y", format="gemini"),
    ]
    asked = changed(
        messages=[Message("user", "Hi"), Message("assistant", "Yes", thinking=thoughts), Message("user", "?")]
    )
    assert bedrock_converse.encode(asked, TARGET).body["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "so", "signature": "proof"}}},
        {"reasoningContent": {"redactedContent": "Yw=="}},
        {"text": "Yes"},
    ]


@pytest.mark.parametrize(
    ("path", "native", "place"),
    [
        ("/elsewhere", {}, "path"),
        ("/model/m/converse", {"messages": [{"role": "robot", "content": []}]}, "messages[0].role"),
        (
            "/model/m/converse",
            {"messages": [{"role": "user", "content": [{"hologram": 1}]}]},
            "messages[0].content[0]",
        ),
        (
            "/model/m/converse",
            {"messages": [], "toolConfig": {"tools": [], "toolChoice": {"x": {}}}},
            "toolConfig.toolChoice",
        ),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(path: str, native: Any, place: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        bedrock_converse.read(HttpRequest("POST", path, native), "")
    assert (caught.value.code, caught.value.details["path"]) == ("bad_request", place)


def test_a_value_for_the_model_is_a_value_here() -> None:
    tool = Message("tool", [JsonPart([1, 2])], tool_call_id="c_two")
    made = body(messages=[*ASKED.messages[1:4], tool])
    assert made["messages"][2]["content"][1]["toolResult"]["content"] == [{"json": [1, 2]}]


@pytest.mark.parametrize(
    ("path", "spelling", "streams"),
    [
        ("/model/m:0/invoke", "plain", False),
        ("/model/m%3A0/invoke", "escaped", False),
        ("/model/m:0/invoke-with-response-stream", "plain", True),
        ("/model/m%3A0/invoke-with-response-stream", "escaped", True),
    ],
)
def test_invoked_models_say_what_they_are_asked_in_the_path(path: str, spelling: str, streams: bool) -> None:
    native = HttpRequest("POST", path, {"anthropic_version": "v", "messages": [], "max_tokens": 1})
    request, target = bedrock_anthropic.read(native, "")
    assert (target.model, target.spelling["id"], request.stream) == ("m:0", spelling, streams)
    again = bedrock_anthropic.encode(request, target)
    assert (again.method, again.url, again.body) == ("POST", path, native.body)
