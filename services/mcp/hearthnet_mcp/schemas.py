"""A tool's schemas as parts of a contract: self-contained and bounded. Pure.

What a contract may not hold is left out (docs/contracts.md#schemas-that-providers-supply); the MCP server
validates that part itself.
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet import HearthNetError
from hearthnet.contracts import compile_schema, self_contained

_COMBINED: Final = frozenset({"allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"})


def input_schema(raw: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments.

    Raises:
        HearthNetError: `bad_request` if `raw` is not a usable schema of an object.
    """
    if not isinstance(raw, dict) or raw.get("type", "object") != "object":
        raise HearthNetError("bad_request", "its input schema describes no object")
    schema = self_contained(raw)
    if not isinstance(schema, dict):
        raise HearthNetError("bad_request", "its input schema describes no object")
    if "properties" not in schema and not schema.keys() & _COMBINED:
        schema.setdefault("additionalProperties", True)  # an object without named properties accepts any
    properties = schema.setdefault("properties", {})
    if not isinstance(properties, dict):
        raise HearthNetError("bad_request", "the properties of its input schema are no object")
    return {**schema, "type": "object"}


def output_schema(raw: Any) -> dict[str, Any] | None:
    """Return the schema of a tool's structured results, or None without a usable one.

    It has no patterns: the time that they may take would bound the size of the results.
    """
    if not isinstance(raw, dict):
        return None
    try:
        schema = self_contained(raw, max_patterns=0)
        compile_schema(schema)
    except HearthNetError:
        return None
    return schema if isinstance(schema, dict) else None
