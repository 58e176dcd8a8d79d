"""Tools for tests, and how to ask for them."""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from hearthnet_llm.interface.frames import Done, Frame, ToolCall
from hearthnet_llm.interface.request import ChatRequest, Message, Named, Tool

SCHEMAS: dict[str, dict[str, Any]] = {
    "search": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 4000},
            "k": {"type": "integer", "minimum": 1, "maximum": 20},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    "post": {
        "type": "object",
        "properties": {
            "category": {"enum": ["offer", "request", "info", "emergency"], "type": "string"},
            "title": {"type": "string", "minLength": 1, "maxLength": 120},
            "body": {"type": "string", "minLength": 1, "maxLength": 4000},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["category", "title", "body"],
        "additionalProperties": False,
    },
    "book": {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date"},
            "seats": {"type": "integer", "minimum": 1, "maximum": 6},
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 40},
            "place": {"$ref": "#/$defs/place"},
            "note": {"type": ["string", "null"]},
        },
        "required": ["day", "seats", "names", "place", "note"],
        "additionalProperties": False,
        "$defs": {
            "place": {
                "type": "object",
                "properties": {"row": {"type": "string", "pattern": "^[A-F]$"}, "near": {"type": "boolean"}},
                "required": ["row", "near"],
                "additionalProperties": False,
            }
        },
    },
    "nothing": {"type": "object", "properties": {}, "additionalProperties": False},
    "optional": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "number"}}},
}


def demand(name: str, said: str, **fields: Any) -> ChatRequest:
    """A request that demands one of the tools by name."""
    tool = Tool(name, f"The tool {name}.", SCHEMAS[name])
    message = Message(role="user", content=said)
    return ChatRequest(messages=[message], tools=[tool], tool_choice=Named(name), **fields)


def checked_call(name: str, frames: list[Frame]) -> ToolCall | None:
    """The call among the frames, if there is one: it fits the schema, and the end says what happened."""
    calls = [frame for frame in frames if isinstance(frame, ToolCall)]
    done = frames[-1]
    assert isinstance(done, Done)
    assert [frame for frame in frames if isinstance(frame, Done)] == [done]
    assert done.stop_reason == ("tool_calls" if calls else "max_tokens")
    assert len(calls) <= 1
    for call in calls:
        jsonschema_rs.validate(SCHEMAS[name], call.arguments)
    return calls[0] if calls else None
