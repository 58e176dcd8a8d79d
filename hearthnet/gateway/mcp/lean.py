"""The schemas that `tools/list` shows: what a model fills in and a person wants done, within a bound. Pure.

A client's model reads the list with each question. What carries the mesh itself is left out of it, and so are
fields that only programs set; a call may have all that the contract takes. Of what comes back, names and
types are shown (docs/decisions/0151).
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet.contracts import Contract

Schema = dict[str, Any]
MAX_LIST_BYTES: Final = 24 * 1024
"""Of all tools of the installation together, as they go over the wire."""
MAX_TOOL_BYTES: Final = 2_560
UNLISTED: Final = frozenset(
    {
        "community.join",
        "community.sync",
        "embed.text",
        "file.advertise",
        "market.export",
        "node.contract",
        "rag.progress",
    }
)
"""Serve programs and the mesh itself: listed for clients alone that were given what they may call by name."""
_FIELDS: Final = {
    "llm.chat": ("model", "messages", "max_tokens", "temperature"),
    "llm.complete": ("model", "prompt", "max_tokens", "temperature", "stop"),
}
_SHOWN: Final[dict[tuple[str, str], Schema]] = {
    ("llm.chat", "messages"): {
        "type": "array",
        "minItems": 1,
        "description": "The conversation; the last message is what is answered",
        "items": {
            "type": "object",
            "required": ["role", "content"],
            "properties": {
                "role": {"enum": ["system", "user", "assistant"]},
                "content": {"type": "string"},
            },
            "additionalProperties": False,
        },
    }
}
"""In place of a contract's own schema of a field; what fits it fits that."""


def input_schema(contract: Contract, hidden: frozenset[str]) -> Schema:
    """The arguments of an installed capability, without the `hidden` ones."""
    schema = contract.tool_schema(None, hidden)
    every: dict[str, Any] = schema["properties"]
    names = [name for name in _FIELDS.get(contract.name, every) if name in every]
    return {
        **schema,
        "properties": {name: _SHOWN.get((contract.name, name), every[name]) for name in names},
        "required": [name for name in schema["required"] if name in names],
    }


def output_schema(contract: Contract) -> Schema | None:
    """The fields of an installed capability's output with their types; None where it is no object."""
    output = contract.response_schema["properties"].get("output", {})
    if output.get("type") != "object":
        return None
    fields = output.get("properties", {}).items()
    return {
        "type": "object",
        "properties": {
            name: {key: inner[key] for key in ("type",) if key in inner} for name, inner in fields
        },
        "required": output.get("required", []),
    }
