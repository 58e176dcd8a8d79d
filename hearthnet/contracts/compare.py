"""The compatibility of a changed contract with callers and providers of the old one.

See: docs/contracts.md#what-compatible-means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from hearthnet.contracts.contract import Contract, Schema

_UPPER: Final = ("maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum")
_LOWER: Final = ("minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum")


class Comparison(NamedTuple):
    """The outcome of a comparison, with reasons if it is breaking.

    `equal`: the same hash; `additive`: a new minor version suffices; `breaking`: a new major version is
    required.
    """

    kind: Literal["equal", "additive", "breaking"]
    reasons: list[str]


def compare(old: Contract, new: Contract) -> Comparison:
    """Compare `old` and `new` as they appear on the wire.

    Breaking in requests: a field newly required, removed, or allowed fewer values. In replies and frames,
    which the other side reads: a field removed, no longer promised, or of a new type; a frame removed.
    """
    parts = ("request_schema", "response_schema", "stream_schema")
    if all(getattr(old, part) == getattr(new, part) for part in parts):
        return Comparison("equal", [])
    reasons = [f"request{reason}" for reason in _narrowed(old.request_schema, new.request_schema)]
    reasons += [f"reply{reason}" for reason in _loosened(old.response_schema, new.response_schema)]
    frames, now = old.stream_schema or {}, new.stream_schema or {}
    for event, schema in frames.items():
        if event in now:
            reasons += [f"frame {event}{reason}" for reason in _loosened(schema, now[event])]
        else:
            reasons.append(f"frame {event} is gone")
    return Comparison("breaking" if reasons else "additive", reasons)


def _narrowed(old: Schema | bool, new: Schema | bool, path: str = "") -> Iterator[str]:
    """Yield the reasons for which a value valid for `old` may be invalid for `new`."""
    old, new = _keywords(old), _keywords(new)
    for name in _required(new) - _required(old):
        yield f"{path}/{name} is now required"
    if lost_types := _types(old) - _types(new):
        yield f"{path} may no longer be {' or '.join(sorted(lost_types))}"
    if "enum" in new and (lost := [value for value in old.get("enum", []) if value not in new["enum"]]):
        yield f"{path} may no longer be {lost}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{path} has another pattern"
    for limit in _UPPER:
        if limit in new and new[limit] < old.get(limit, float("inf")):
            yield f"{path} has a lower {limit}"
    for limit in _LOWER:
        if limit in new and new[limit] > old.get(limit, float("-inf")):
            yield f"{path} has a higher {limit}"
    for name, before, after in _children(old, new):
        yield from [f"{path}/{name} is gone"] if after is None else _narrowed(before, after, f"{path}/{name}")


def _loosened(old: Schema | bool, new: Schema | bool, path: str = "") -> Iterator[str]:
    """Yield the reasons for which a reader of `old` may fail on `new`."""
    old, new = _keywords(old), _keywords(new)
    for name in _required(old) - _required(new):
        yield f"{path}/{name} is no longer promised"
    if added := _types(new) - _types(old):
        yield f"{path} may now be {' or '.join(sorted(added))}"
    for name, before, after in _children(old, new):
        yield from [f"{path}/{name} is gone"] if after is None else _loosened(before, after, f"{path}/{name}")


def _children(old: Schema, new: Schema) -> Iterator[tuple[str, Schema | bool, Schema | bool | None]]:
    """Yield each field and item of `old` with its schema there and in `new`, None if removed."""
    properties = new.get("properties", {})
    for name, schema in old.get("properties", {}).items():
        yield name, schema, properties.get(name)
    if "items" in old:
        yield "items", old["items"], new.get("items", {})


def _keywords(schema: Schema | bool) -> Schema:
    """Return a schema as keywords: `true` demands nothing, and nothing is valid for `false`."""
    if isinstance(schema, bool):
        return {} if schema else {"type": []}
    return schema


def _required(schema: Schema) -> set[str]:
    return set(schema.get("required", ()))


def _types(schema: Schema) -> frozenset[str]:
    """Return the types that a schema names; a number may always be an integer."""
    named: Any = schema.get("type", _ANY)
    types = {named} if isinstance(named, str) else set(named)
    return frozenset(types | {"integer"} if "number" in types else types)


_ANY: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
