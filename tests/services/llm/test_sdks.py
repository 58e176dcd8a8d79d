"""The vendors' own SDKs as judges: their types take what is sent, and read of an answer what is read here."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import botocore.session
import httpx2
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from botocore.eventstream import EventStream
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from google.genai import types as google
from ollama import ChatResponse
from ollama._types import ChatRequest as OllamaRequest
from pydantic import BaseModel, TypeAdapter

from hearthnet_llm.interface.content_parts import CacheHint, DocumentPart, TextPart, ThinkingPart
from hearthnet_llm.interface.frames import Frame, ReasoningDelta, TextDelta, ToolCall
from hearthnet_llm.interface.request import (
    ChatRequest,
    Message,
    Named,
    ResponseSchema,
    ServerTool,
    Thinking,
    Tool,
)
from hearthnet_llm.vendors.wire import Target
from tests.conformance.providers.compare import differences
from tests.services.llm import test_anthropic_answer, test_bedrock_answer, test_gemini_answer, test_ollama
from tests.services.llm.asking import ANSWER, ASKED, WEATHER, changed, heard, sent

pytestmark = pytest.mark.req("LLM-25")
SCHEMA = ResponseSchema("answer", ANSWER)


def read_here(frames: list[Frame]) -> tuple[str, str, list[tuple[str, dict[str, Any]]]]:
    """Text, thoughts and calls of an answer."""
    text = "".join(frame.text for frame in frames if isinstance(frame, TextDelta))
    thought = "".join(frame.text for frame in frames if isinstance(frame, ReasoningDelta))
    return text, thought, [(frame.name, frame.arguments) for frame in frames if isinstance(frame, ToolCall)]


def settled(value: Any) -> Any:
    """A validated value with the lists drawn out that the SDK's types leave to be drawn."""
    if isinstance(value, dict):
        return {key: settled(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | None) else [settled(item) for item in value]


# --- Anthropic ---

HINTED = changed(
    messages=[
        Message("system", [TextPart("Be brief.", CacheHint())]),
        Message(
            "user",
            [DocumentPart(text="All of it.", name="Paper", citations=True), TextPart("?", CacheHint("1h"))],
        ),
        Message("assistant", "Yes", thinking=[ThinkingPart("so", "proof"), ThinkingPart(data="cipher")]),
        Message("user", "And?"),
    ],
    tools=[WEATHER, Tool("web_search", server=ServerTool("web_search", "20250305", max_uses=1))],
)


@pytest.mark.parametrize(
    "request_",
    [
        changed(temperature=None),
        changed(temperature=None, tool_choice=Named("clock"), parallel_tool_calls=False),
        changed(temperature=None, response_schema=SCHEMA, thinking=Thinking("on", budget_tokens=2048)),
        changed(temperature=None, thinking=Thinking("auto", "low", show="parsed")),
        HINTED,
    ],
)
def test_anthropics_types_take_what_is_sent(request_: ChatRequest) -> None:
    body = sent("anthropic", Target("claude-sonnet-5", "/v1"), request_).body
    types: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)
    assert not list(differences(body, settled(types.validate_python(body)), ()))


def test_anthropics_sdk_reads_a_stream_as_it_is_read_here() -> None:
    named = b"".join(_named(event) for event in test_anthropic_answer.FULL.split(b"\n\n") if event)

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=named, headers={"content-type": "text/event-stream"})

    client = anthropic.Anthropic(
        api_key="k", http_client=httpx2.Client(transport=httpx2.MockTransport(answer))
    )
    with client.messages.stream(
        model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]
    ) as stream:
        message = stream.get_final_message()
    text = "".join(block.text for block in message.content if block.type == "text")
    thought = "".join(block.thinking for block in message.content if block.type == "thinking")
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert all((text, thought, calls))
    assert read_here(heard("anthropic", named)) == (text, thought, calls)


def _named(event: bytes) -> bytes:
    """An event under its own name, which the SDK goes by."""
    data = event.partition(b"data: ")[2]
    name = str(json.loads(data)["type"])
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


# --- Bedrock ---


def _operation(name: str) -> Any:
    return botocore.session.Session().get_service_model("bedrock-runtime").operation_model(name)


def _with_bytes(value: Any) -> Any:
    """The body with its base64 as the bytes that the SDK is given."""
    if isinstance(value, list):
        return [_with_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64decode(item)
        if key in ("bytes", "redactedContent") and isinstance(item, str)
        else _with_bytes(item)
        for key, item in value.items()
    }


@pytest.mark.parametrize(
    "request_",
    [
        ASKED,
        changed(tool_choice="required", response_schema=SCHEMA),
        changed(tool_choice=Named("clock"), thinking=Thinking("on", budget_tokens=2048)),
        changed(
            messages=[
                *HINTED.messages[:1],
                Message(
                    "user",
                    [DocumentPart(data="RA==", media_type="application/pdf"), TextPart("?", CacheHint())],
                ),
                Message(
                    "assistant", "Yes", thinking=[ThinkingPart("so", "proof"), ThinkingPart(data="Yw==")]
                ),
                Message("user", "!"),
            ]
        ),
    ],
)
def test_the_model_of_converse_takes_what_is_sent(request_: ChatRequest) -> None:
    """The SDK validates it, and writes the same body and path of it."""
    native = sent("bedrock-converse", Target("anthropic.claude-haiku-4-5"), request_)
    serializer = create_serializer("rest-json", include_validation=True)
    asked = {"modelId": "anthropic.claude-haiku-4-5", **_with_bytes(native.body)}
    made = serializer.serialize_to_request(asked, _operation("ConverseStream"))
    assert json.loads(made["body"]) == native.body
    assert made["url_path"] == native.url


def test_the_sdk_reads_converses_stream_as_it_is_read_here() -> None:
    class Raw:
        def stream(self) -> Iterator[bytes]:
            yield test_bedrock_answer.FULL

    operation = _operation("ConverseStream")
    parser = create_parser("rest-json")
    shape = operation.output_shape.members["stream"]
    events = list(EventStream(Raw(), shape, parser._event_stream_parser, "ConverseStream"))
    deltas = [event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event]
    text = "".join(delta.get("text", "") for delta in deltas)
    thought = "".join(delta.get("reasoningContent", {}).get("text", "") for delta in deltas)
    starts = [event["contentBlockStart"] for event in events if "contentBlockStart" in event]
    calls = [
        (one["start"]["toolUse"]["name"], json.loads(_input_of(events, one["contentBlockIndex"]) or "{}"))
        for one in starts
        if one["start"].get("toolUse", {}).get("type") != "server_tool_use" and "toolUse" in one["start"]
    ]
    assert all((text, thought, calls))
    assert read_here(heard("bedrock-converse", test_bedrock_answer.FULL)) == (text, thought, calls)


def _input_of(events: list[Any], index: int) -> str:
    """The arguments of the call in one block, as the SDK gives them."""
    deltas = [event["contentBlockDelta"] for event in events if "contentBlockDelta" in event]
    return "".join(one["delta"]["toolUse"]["input"] for one in deltas if one["contentBlockIndex"] == index)


# --- Google ---


def accepted(kind: type[BaseModel], value: Any) -> bool:
    """Whether a type takes all of a value, and gives it back."""
    made = kind.model_validate(value).model_dump(mode="json", by_alias=True, exclude_unset=True)
    return bool(made == value)


@pytest.mark.parametrize(
    "request_",
    [
        ASKED,
        changed(tool_choice=Named("clock", ["weather"]), response_schema=SCHEMA, top_k=5, seed=1),
        changed(
            thinking=Thinking("auto", show="parsed"),
            tools=[Tool("web_search", server=ServerTool("web_search"))],
        ),
    ],
)
def test_googles_types_take_what_is_sent(request_: ChatRequest) -> None:
    body = sent("gemini", Target("gemini-2.5-flash", "/v1beta"), request_).body
    assert all(
        accepted(google.Content, content) for content in [*body["contents"], body["systemInstruction"]]
    )
    assert all(accepted(google.Tool, tool) for tool in body["tools"])
    assert accepted(google.ToolConfig, body["toolConfig"])
    assert accepted(google.GenerationConfig, body["generationConfig"])
    known = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
    assert set(body) <= known


def test_googles_sdk_reads_a_stream_as_it_is_read_here() -> None:
    answers = [google.GenerateContentResponse.model_validate(one) for one in test_gemini_answer.STREAM]
    parts = [part for one in answers for part in (one.candidates or [])[0].content.parts or []]  # type: ignore[union-attr]
    text = "".join(part.text or "" for part in parts if not part.thought)
    thought = "".join(part.text or "" for part in parts if part.thought)
    names = [part.function_call.name for part in parts if part.function_call and part.function_call.name]
    here = read_here(heard("gemini", test_gemini_answer.FULL))
    assert all((text, thought, names))
    assert here[:2] == (text, thought)
    assert [name for name, _ in here[2]] == names


# --- Ollama ---


@pytest.mark.parametrize(
    "request_", [ASKED, changed(thinking=Thinking("on"), response_schema=SCHEMA, seed=4)]
)
def test_ollamas_types_take_what_is_sent(request_: ChatRequest) -> None:
    body = sent("ollama", Target("qwen3:4b"), request_).body
    assert accepted(OllamaRequest, body)


def test_ollamas_sdk_reads_a_stream_as_it_is_read_here() -> None:
    spoken = [
        *test_ollama.SPOKEN[:-2],
        test_ollama.line(tool_calls=test_ollama.CALLS[:1]),
        test_ollama.SPOKEN[-1],
    ]
    lines = test_ollama.lines(*spoken).splitlines()
    answers = [ChatResponse.model_validate_json(line) for line in lines]
    text = "".join(one.message.content or "" for one in answers)
    thought = "".join(one.message.thinking or "" for one in answers)
    calls = [
        (call.function.name, call.function.arguments)
        for one in answers
        for call in one.message.tool_calls or ()
    ]
    assert all((text, thought, calls))
    assert read_here(heard("ollama", b"\n".join(lines))) == (text, thought, calls)
