"""Google's own schema dialect (OpenAPI 3.0's), converted to and from JSON Schema.

It is used by `parameters` and `responseSchema`. It differs in the spelling of types, STRING or 1 for
"string", and in `nullable` for a second type "null", which some clients nevertheless write as a list.
`prefix` is that of the choices in a spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

TYPES: Final = ("lower", "upper", "number")
"""Spellings of a type."""
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
_NAMED: Final = ("properties", "$defs", "defs")
_INNER: Final = ("items", "anyOf", "additionalProperties", "prefixItems", "oneOf", "allOf")


def write(schema: Any, spelling: Mapping[str, str], prefix: str = "") -> Any:
    """Return the schema in the dialect."""
    types = spelling.get(f"{prefix}types", TYPES[0])
    listed = spelling.get(f"{prefix}nullable") == "list"
    return _mapped(schema, lambda inner: _write_type(_without_booleans(inner), _WRITTEN[types], listed))


def _without_booleans(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` without boolean schemas, which the dialect lacks.

    `true` becomes {}, and `false` is dropped.
    """
    made = dict(schema)
    for name in _NAMED:
        if isinstance(made.get(name), dict):
            made[name] = {key: _object(inner) for key, inner in made[name].items() if inner is not False}
    for name in _INNER:
        if isinstance(made.get(name), list):
            made[name] = [_object(inner) for inner in made[name] if inner is not False]
    if isinstance(made.get("items"), bool):
        made["items"] = {}
    return made


def _object(schema: Any) -> Any:
    return {} if schema is True else schema


def _write_type(schema: dict[str, Any], written: Callable[[str], Any], listed: bool) -> dict[str, Any]:
    kind = schema.get("type")
    made = dict(schema)
    if isinstance(kind, list) and len(kind) == 2 and kind[1] == "null" and not listed:
        made |= {"type": kind[0], "nullable": True}
        kind = kind[0]
    if isinstance(kind, str):
        made["type"] = written(kind)
    elif isinstance(kind, list):
        made["type"] = [written(one) if isinstance(one, str) else one for one in kind]
    return made


def read(schema: Any, spelling: dict[str, str], prefix: str = "") -> Any:
    """Return the JSON Schema of one in the dialect; records the spelling of types."""
    return _mapped(schema, lambda inner: _read_type(inner, spelling, prefix))


def _read_type(schema: dict[str, Any], spelling: dict[str, str], prefix: str) -> dict[str, Any]:
    kind = schema.get("type")
    made = dict(schema)
    if isinstance(kind, list):
        spelling[f"{prefix}nullable"] = "list"
        made["type"] = [_plain(one, spelling, prefix) for one in kind]
        return made
    kind = _plain(kind, spelling, prefix)
    if kind is not None:
        made["type"] = kind
        if made.get("nullable") is True and isinstance(kind, str):
            made["type"] = [kind, "null"]
            del made["nullable"]
    return made


def _plain(kind: Any, spelling: dict[str, str], prefix: str) -> Any:
    """Return a type in the spelling of JSON Schema."""
    if isinstance(kind, int):
        spelling[f"{prefix}types"] = "number"
        return _BY_NUMBER.get(kind)
    if isinstance(kind, str) and kind.lower() != kind:
        spelling[f"{prefix}types"] = "upper"
        return kind.lower()
    return kind


def _mapped(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(schema, list):
        return [_mapped(item, change) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = change(schema)
    for name in _INNER:
        if name in made:
            made[name] = _mapped(made[name], change)
    for name in _NAMED:
        if isinstance(made.get(name), dict):
            made[name] = {key: _mapped(inner, change) for key, inner in made[name].items()}
    return made
