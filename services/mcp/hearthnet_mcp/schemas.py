"""A tool's input schema as the `input` of a contract: whole in itself, bounded, and an object. Pure.

References are put in where they stand, since a contract's schema is taken apart and put together elsewhere
(contracts/flat.py); one that leads back into itself becomes "anything", which the server judges itself.
"""

from __future__ import annotations

from typing import Any, Final

from hearthnet.errors import HearthNetError

MOST_NODES: Final = 4_000
"""Values in a schema once its references are put in."""
_DEEPEST: Final = 64
_LEFT_OUT: Final = frozenset({"$schema", "$id", "$anchor", "$defs", "definitions", "$comment"})
_NAMES: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose members are names, and not keywords."""


def input_schema(raw: Any) -> dict[str, Any]:
    """The schema of a tool's arguments; `bad_request` says what is wrong with `raw`."""
    if not isinstance(raw, dict) or raw.get("type", "object") != "object":
        raise HearthNetError("bad_request", "its input schema describes no object")
    schema = _Inliner(raw).schema(raw, (), 0)
    properties = schema.setdefault("properties", {})
    if not isinstance(properties, dict):
        raise HearthNetError("bad_request", "the properties of its input schema are no object")
    return {**schema, "type": "object"}


class _Inliner:
    """Copies a schema, references replaced by what they name."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = MOST_NODES

    def schema(self, value: Any, within: tuple[str, ...], depth: int) -> Any:
        """A copy of a schema; `within` are the references it came through."""
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
        return {**named, **own} if isinstance(named, dict) else named

    def _member(self, key: str, value: Any, within: tuple[str, ...], depth: int) -> Any:
        if key in _NAMES and isinstance(value, dict):
            return {name: self.schema(item, within, depth + 1) for name, item in value.items()}
        return self.schema(value, within, depth)

    def _find(self, reference: str) -> Any:
        """What a reference inside the schema names (RFC 6901)."""
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
