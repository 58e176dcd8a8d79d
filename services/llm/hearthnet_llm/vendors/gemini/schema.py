"""Google's own schema dialect (OpenAPI 3.0's, `parameters` and `responseSchema`), both ways to JSON Schema.

It differs in the spelling of types, STRING or 1 for "string", and in `nullable` for a second type "null".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

TYPES: Final = ("lower", "upper", "number")
"""How a type is written."""
_NUMBERS: Final[dict[str, int]] = {
    "string": 1,
    "number": 2,
    "integer": 3,
    "boolean": 4,
    "array": 5,
    "object": 6,
    "null": 7,
}
_BY_NUMBER: Final = {number: name for name, number in _NUMBERS.items()}
_WRITTEN: Final[dict[str, Callable[[str], Any]]] = {
    "lower": lambda name: name,
    "upper": str.upper,
    "number": lambda name: _NUMBERS.get(name, name),
}


def write(schema: Any, types: str) -> Any:
    """The dialect's schema."""
    return _mapped(schema, lambda inner: _write_type(inner, types))


def _write_type(schema: dict[str, Any], types: str) -> dict[str, Any]:
    kind = schema.get("type")
    made = dict(schema)
    if isinstance(kind, list) and len(kind) == 2 and kind[1] == "null":
        made |= {"type": kind[0], "nullable": True}
        kind = kind[0]
    if isinstance(kind, str):
        made["type"] = _WRITTEN[types](kind)
    return made


def read(schema: Any, spelling: dict[str, str]) -> Any:
    """JSON Schema of the dialect's; notes in `spelling` how types are written."""
    return _mapped(schema, lambda inner: _read_type(inner, spelling))


def _read_type(schema: dict[str, Any], spelling: dict[str, str]) -> dict[str, Any]:
    kind = schema.get("type")
    made = dict(schema)
    if isinstance(kind, int):
        spelling["types"] = "number"
        kind = _BY_NUMBER.get(kind)
    elif isinstance(kind, str) and kind.lower() != kind:
        spelling["types"] = "upper"
        kind = kind.lower()
    if kind is not None:
        made["type"] = kind
        if made.get("nullable") is True and isinstance(kind, str):
            made["type"] = [kind, "null"]
            del made["nullable"]
    return made


def _mapped(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(schema, list):
        return [_mapped(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = change(schema)
    for name in ("items", "anyOf", "additionalProperties"):
        if name in made:
            made[name] = _mapped(made[name], change)
    if isinstance(made.get("properties"), dict):
        made["properties"] = {name: _mapped(inner, change) for name, inner in made["properties"].items()}
    return made
