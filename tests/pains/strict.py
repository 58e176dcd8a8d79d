"""Strict validators of a conversation, one a vendor: the vendor's own types take the request, and every call
has its result where the vendor's rules say that it must be.

OpenAI, Ollama   results follow the message that called, before anybody else speaks, one for each call
Anthropic        the message after the one that called begins with the results of all its calls
Bedrock          the same, and the tools are declared wherever a call or a result stands
Gemini           the turn after the model's that called has as many responses as calls, under their names
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import Any

import botocore.session
import msgspec
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from botocore.serialize import create_serializer
from google.genai import types as google
from ollama._types import ChatRequest as OllamaRequest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from hearthnet.agent.tools.toolbox import Toolbox, natives
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet_llm.interface.request import ChatRequest
from hearthnet_llm.vendors import wire
from hearthnet_llm.vendors.wire import Target

Json = dict[str, Any]
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_OF_OPENAI = 40


def strictly(messages: list[Json], tools: list[ToolDefinition]) -> None:
    """The conversation, as each vendor is asked to go on with it."""
    asked = msgspec.convert(
        {"messages": messages, "tools": natives(Toolbox(tools)), "stream": True}, ChatRequest
    )
    for vendor, check in CHECKS.items():
        body = json.loads(msgspec.json.encode(wire(vendor).encode(asked, TARGETS[vendor]).body))
        check(body)


# --- OpenAI, and Ollama, which has no ids ---


def openai(body: Json) -> None:
    """Chat Completions."""
    _settled(_adapter(CompletionCreateParamsStreaming).validate_python(body))
    waiting: list[str] = []
    seen: set[str] = set()
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result that answers no open call"
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, f"without a result: {waiting}"
        for call in message.get("tool_calls") or ():
            waiting.append(call["id"])
            assert call["id"] not in seen, "an id twice"
            assert 0 < len(call["id"]) <= _LONGEST_OF_OPENAI
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            seen.add(call["id"])
    assert not waiting, f"without a result: {waiting}"


def ollama(body: Json) -> None:
    """Its own wire: results go by the order and the name."""
    OllamaRequest.model_validate(body)
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert waiting, "a result that answers no open call"
            assert message["tool_name"] == waiting.pop(0)
            continue
        assert not waiting, f"without a result: {waiting}"
        waiting += [call["function"]["name"] for call in message.get("tool_calls") or ()]
    assert not waiting, f"without a result: {waiting}"


# --- Anthropic and Bedrock: blocks in turns ---


def anthropic(body: Json) -> None:
    """Messages."""
    _settled(_adapter(MessageCreateParamsStreaming).validate_python(body))
    _in_turns(body["messages"], "tool_use", "tool_result", itemgetter("id"), itemgetter("tool_use_id"))


def converse(body: Json) -> None:
    """Bedrock's Converse, as its SDK validates it."""
    service = botocore.session.Session().get_service_model("bedrock-runtime")
    serializer = create_serializer("rest-json", include_validation=True)
    serializer.serialize_to_request({"modelId": "m", **body}, service.operation_model("ConverseStream"))
    turns = [
        {"role": turn["role"], "content": [_typed(block) for block in turn["content"]]}
        for turn in body["messages"]
    ]
    _in_turns(turns, "toolUse", "toolResult", itemgetter("toolUseId"), itemgetter("toolUseId"))
    if any(block["type"] != "text" for turn in turns for block in turn["content"]):
        assert body["toolConfig"]["tools"]


def _typed(block: Json) -> Json:
    """A block of Converse, whose only key is its type, as one of Anthropic's."""
    ((kind, value),) = block.items()
    return {"type": kind, **(value if isinstance(value, dict) else {})}


def _in_turns(
    turns: list[Json], call: str, result: str, id_of: Callable[[Json], str], answers: Callable[[Json], str]
) -> None:
    waiting: list[str] = []
    seen: set[str] = set()
    role = ""
    for turn in turns:
        assert turn["role"] != role, "two turns of one"
        role = turn["role"]
        content = turn["content"] if isinstance(turn["content"], list) else []
        assert content or turn["content"], "an empty turn"
        first = content[: len(waiting)]
        assert [block["type"] for block in first] == [result] * len(waiting), f"without a result: {waiting}"
        assert {answers(block) for block in first} == set(waiting)
        assert not any(block["type"] == result for block in content[len(waiting) :])
        waiting = [id_of(block) for block in content if block["type"] == call]
        assert not waiting or role == "assistant"
        assert not seen & set(waiting), "an id twice"
        assert all(_ID.fullmatch(one) for one in waiting)
        seen |= set(waiting)
    assert not waiting, f"without a result: {waiting}"


# --- Gemini ---


def gemini(body: Json) -> None:
    """generateContent."""
    waiting: list[str] = []
    role = ""
    for content in body["contents"]:
        google.Content.model_validate(content)
        assert content["role"] != role, "two turns of one"
        role = content["role"]
        assert content["parts"], "an empty turn"
        responses = [one["functionResponse"] for one in content["parts"] if "functionResponse" in one]
        assert [one["name"] for one in responses] == waiting
        assert all(isinstance(one["response"], dict) for one in responses)
        waiting = [one["functionCall"]["name"] for one in content["parts"] if "functionCall" in one]
        assert not waiting or role == "model"
    assert not waiting, f"without a result: {waiting}"
    for tool in body.get("tools", ()):
        google.Tool.model_validate(tool)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _settled(value: Any) -> Any:
    """The SDKs' types leave lists to be drawn: what is wrong in one is raised as it is."""
    if isinstance(value, dict):
        return {key: _settled(item) for key, item in value.items()}
    return value if isinstance(value, str | int | float | None) else [_settled(item) for item in value]


CHECKS: dict[str, Callable[[Json], None]] = {
    "openai": openai,
    "anthropic": anthropic,
    "gemini": gemini,
    "bedrock-converse": converse,
    "bedrock-anthropic": lambda body: anthropic({"model": "m", "stream": True, **_plain(body)}),
    "ollama": ollama,
}
TARGETS: dict[str, Target] = {
    "openai": Target("gpt-5-mini", "/v1"),
    "anthropic": Target("claude-sonnet-5", "/v1"),
    "gemini": Target("gemini-2.5-flash", "/v1beta"),
    "bedrock-converse": Target("anthropic.claude-haiku-4-5"),
    "bedrock-anthropic": Target("anthropic.claude-haiku-4-5"),
    "ollama": Target("qwen3:4b"),
}


def _plain(body: Json) -> Json:
    """What only Bedrock's envelope of Anthropic's wire has."""
    return {name: value for name, value in body.items() if name != "anthropic_version"}
