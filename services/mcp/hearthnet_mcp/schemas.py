"""A tool's schemas as parts of a contract: self-contained and bounded. Pure.

References are replaced by their targets, because a contract's schema is taken apart and put together
elsewhere (contracts/tool_schema.py). A recursive reference is replaced by an unrestricted schema; the MCP
server validates that part itself.
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet import HearthNetError
from hearthnet.contracts import compile_schema

MOST_NODES: Final = 4_000
"""Values in a schema after its references are replaced."""
_DEEPEST: Final = 64
_LEFT_OUT: Final = frozenset({"$schema", "$id", "$anchor", "$defs", "definitions", "$comment"})
_COMBINED: Final = frozenset({"allOf", "anyOf", "oneOf", "if", "dependentSchemas", "patternProperties"})
_NAMES: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose members are names instead of keywords."""
_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "deprecated"})


def input_schema(raw: Any) -> dict[str, Any]:
    """Return the schema of a tool's arguments.

    Raises:
        HearthNetError: `bad_request` if `raw` is not a usable schema of an object.
    """
    if not isinstance(raw, dict) or raw.get("type", "object") != "object":
        raise HearthNetError("bad_request", "its input schema describes no object")
    schema = _Inliner(raw).schema(raw, (), 0)
    if not isinstance(schema, dict):
        raise HearthNetError("bad_request", "its input schema describes no object")
    if "properties" not in schema and not schema.keys() & _COMBINED:
        schema.setdefault("additionalProperties", True)  # an object without named properties accepts any
    properties = schema.setdefault("properties", {})
    if not isinstance(properties, dict):
        raise HearthNetError("bad_request", "the properties of its input schema are no object")
    return {**schema, "type": "object"}


def output_schema(raw: Any) -> dict[str, Any] | None:
    """Return the schema of a tool's structured results, or None without a usable one."""
    if not isinstance(raw, dict):
        return None
    try:
        schema = _Inliner(raw).schema(raw, (), 0)
        compile_schema(schema)
    except HearthNetError:
        return None
    return schema if isinstance(schema, dict) else None


class _Inliner:
    """Copy of a schema with its references replaced by their targets."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = MOST_NODES

    def schema(self, value: Any, within: tuple[str, ...], depth: int) -> Any:
        """Return a copy of a schema; `within` has the references that led to it."""
        self._count(depth)
        if isinstance(value, list):
            return [self.schema(item, within, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        own = {
            key: self._member(key, item, within, depth + 1)
            for key, item in value.items()
            if key not in _LEFT_OUT and key != "$ref"
        }
        if reference is None:
            return own
        if not isinstance(reference, str) or reference in within:
            return own
        named = self.schema(self._find(reference), (*within, reference), depth + 1)
        return _joined(named, own)

    def _member(self, key: str, value: Any, within: tuple[str, ...], depth: int) -> Any:
        if key in _NAMES and isinstance(value, dict):
            return {name: self.schema(item, within, depth + 1) for name, item in value.items()}
        return self.schema(value, within, depth)

    def _find(self, reference: str) -> Any:
        """Return the target of a reference inside the schema (RFC 6901)."""
        steps = reference.removeprefix("#").split("/")
        place: Any = self._root
        try:
            if not reference.startswith("#") or steps[0]:
                raise KeyError(reference)
            for step in steps[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                place = place[int(name)] if isinstance(place, list) else place[name]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise HearthNetError(
                "bad_request", f"its input schema refers to {reference[:80]!r}, which is not in it"
            ) from error
        return place

    def _count(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise HearthNetError(
                "bad_request", f"its input schema has more than {MOST_NODES} parts, or is too deep"
            )


def _joined(named: Any, own: dict[str, Any]) -> Any:
    """Combine the target of a reference with the keywords beside the reference; both apply."""
    if named is True:
        return own or True
    if not isinstance(named, dict):
        return named
    shared = (named.keys() & own.keys()) - _ANNOTATIONS
    if any(named[key] != own[key] for key in shared):
        return {**own, "allOf": [named, *own.get("allOf", [])]}
    return {**named, **own}
