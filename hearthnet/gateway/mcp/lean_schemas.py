"""Short schemas for `tools/list`: the arguments that a model fills in. Pure.

A client's model reads the list with each question, so that its size is limited. Capabilities that serve the
mesh itself are left out of it, and so are fields that only programs set; a call may still have all that the
contract accepts. Outputs are shown by names and types (docs/decisions/0151).
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet.contracts.contract import Contract

Schema = dict[str, Any]
MAX_LIST_BYTES: Final = 24 * 1024
"""The size of all tools of the installation together, as transferred."""
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
"""Capabilities for programs and the mesh itself, listed only for clients whose scope names them."""
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
"""Replacements for a contract's schema of a field; values that fit them fit the contract too."""


def input_schema(contract: Contract, hidden: frozenset[str]) -> Schema:
    """Return the schema of an installed capability's arguments, without the `hidden` ones."""
    schema = contract.tool_schema(None, hidden)
    every: dict[str, Any] = schema["properties"]
    names = [name for name in _FIELDS.get(contract.name, every) if name in every]
    return {
        **schema,
        "properties": {name: _SHOWN.get((contract.name, name), every[name]) for name in names},
        "required": [name for name in schema["required"] if name in names],
    }


def output_schema(contract: Contract) -> Schema | None:
    """Return the fields and types of an installed capability's output.

    None if the output is not an object.
    """
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
