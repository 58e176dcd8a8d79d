"""Bad bodies for a capability, made from its contract and one body that is right.

Each is the bytes of a body and a name that says what is wrong with it. Fields are found in the request
schema, so a new capability, and a new field of an old one, are covered by being there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final, NamedTuple

from hearthnet.contracts.contract import Contract

Body = dict[str, Any]
Path = tuple[str, ...]
MEGABYTE: Final = 1_000_000
_DEEP: Final = 5_000
_HOLE: Final = "\ue000hole\ue000"
"""Where bytes go in that no encoder writes."""


class Bad(NamedTuple):
    """One body to send."""

    what: str
    data: bytes


class Field(NamedTuple):
    """One field of a request, with its schema."""

    path: Path
    schema: Body
    required: bool

    def __str__(self) -> str:
        return "/" + "/".join(self.path)


_WRONG: Final[dict[str, Any]] = {
    "null": None,
    "true": True,
    "a number": 7,
    "a fraction": 0.5,
    "a text": "seven",
    "an empty text": "",
    "a list": ["seven"],
    "an empty list": [],
    "an object": {"seven": 7},
}
_TEXTS: Final[dict[str, str]] = {
    "1 MB": "a" * MEGABYTE,
    "NUL": "nul\0nul",
    "bidi controls": "\u202eevil\u2066 \u200f\u061c",
    "control characters": "\x1b[2J\x07\x7f\u0085",
    "half of a pair in another alphabet": "\ud7ff\ue000\ufffe\uffff",
    "no such language": "xx",
    "a path": "../../../../etc/passwd\0.md",
    "an SQL text": "'; DROP TABLE posts; --",
    "full-text operators": '" OR NEAR( * ) AND NOT (: ^',
    "only spaces": " \t\n ",
    "1,000 accents": "e" + "\u0301" * 1_000,
}
_NUMBERS: Final[dict[str, Any]] = {
    "minus one": -1,
    "zero": 0,
    "off the globe": 1_000.0,
    "2 to the 63": 2**63,
    "2 to the 53 and one": 2**53 + 1,
    "minus 2 to the 64": -(2**64),
    "1e308": 1e308,
}
_DEEP_OBJECTS: Final = b'{"a":' * 500 + b"1" + b"}" * 500
_RAW: Final[dict[str, bytes]] = {
    "NaN": b"NaN",
    "infinity": b"-Infinity",
    "1e999": b"1e999",
    "400 digits": b"9" * 400,
    "a lone surrogate": b'"\\ud800"',
    "a lone low surrogate": b'"x\\udfffx"',
    "bytes that are no UTF-8": b'"\xff\xfe\xc0\x80"',
    "brackets without end": b"[" * _DEEP,
    "deep lists": b"[" * _DEEP + b"]" * _DEEP,
    "deep objects": _DEEP_OBJECTS,
    "nothing": b"",
}
_WHOLE: Final[dict[str, bytes]] = {
    "no bytes": b"",
    "null": b"null",
    "a list": b"[]",
    "an empty object": b"{}",
    "half an object": b'{"params": {}, "input"',
    "a key twice": b'{"params": {}, "params": {}, "input": {}}',
    "a byte order mark": b'\xef\xbb\xbf{"params": {}, "input": {}}',
    "UTF-16": '{"params": {}}'.encode("utf-16"),
}


def fields(contract: Contract) -> list[Field]:
    """Every named field of its requests, of objects in objects too."""
    return list(_fields(contract.request_schema, ()))


def _fields(schema: Body, at: Path) -> Iterator[Field]:
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        yield Field((*at, name), inner, name in required)
        yield from _fields(inner, (*at, name))


def mutations(contract: Contract, right: Body) -> Iterator[Bad]:
    """All of them, from `right`, a body that the contract takes.

    What no reader of JSON takes is put in one place only: it does not come as far as to be a field.
    """
    yield from (Bad(f"the body is {what}", data) for what, data in _WHOLE.items())
    everything = fields(contract)
    for field in everything:
        yield from (Bad(f"{field}: {what}", data) for what, data in _of(field, right))
    for what, raw in _RAW.items():
        yield Bad(f"{everything[-1]}: {what}", _holed(right, everything[-1].path, raw))
    yield Bad("fields that nobody knows", _dumped(_strange(right)))
    yield Bad("10,000 fields that nobody knows", _dumped({**right, **{f"x{n}": n for n in range(10_000)}}))


def _of(field: Field, right: Body) -> Iterator[tuple[str, bytes]]:
    if _has(right, field.path):
        yield "left out", _dumped(_without(right, field.path))
    for what, value in _values(field.schema):
        yield what, _dumped(_with(right, field.path, value))
    if "object" in _kinds(field.schema):
        yield "deep objects", _holed(right, field.path, _DEEP_OBJECTS)


def _values(schema: Body) -> Iterator[tuple[str, Any]]:
    """Wrong kinds for every field; beyond that what is bad in its own kind."""
    kinds = _kinds(schema)
    yield from _WRONG.items()
    if "string" in kinds:
        yield from _TEXTS.items()
    if kinds & {"integer", "number"}:
        yield from _NUMBERS.items()
    if "array" in kinds:
        yield from _lists(schema.get("items", {}))
    if "object" in kinds:
        yield "10,000 fields", {f"x{number}": number for number in range(10_000)}


def _lists(items: Body) -> Iterator[tuple[str, Any]]:
    yield "10,000 items", [f"tag{number}" for number in range(10_000)]
    yield "items of all kinds", list(_WRONG.values())
    yield "the same item twice", ["twice", "twice"]
    if "object" in _kinds(items):
        yield "10,000 objects", [{}] * 10_000


def _kinds(schema: Body) -> set[str]:
    """The JSON types that a schema speaks of, in its alternatives too."""
    said = schema.get("type", [])
    kinds = {said} if isinstance(said, str) else set(said)
    for word in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(word, ()):
            kinds |= _kinds(inner)
    if not kinds:
        kinds |= {"string"} if {"pattern", "enum", "const"} & schema.keys() else set()
    return kinds


def _has(body: Any, path: Path) -> bool:
    for name in path:
        if not isinstance(body, dict) or name not in body:
            return False
        body = body[name]
    return True


def _with(right: Body, path: Path, value: Any) -> Body:
    changed = deepcopy(right)
    place = changed
    for name in path[:-1]:
        inner = place.get(name)
        if not isinstance(inner, dict):
            inner = place[name] = {}
        place = inner
    place[path[-1]] = value
    return changed


def _without(right: Body, path: Path) -> Body:
    changed = deepcopy(right)
    place = changed
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return changed


def _holed(right: Body, path: Path, raw: bytes) -> bytes:
    """`right` with `raw`, bytes that no encoder writes, at `path`."""
    return _dumped(_with(right, path, _HOLE)).replace(json.dumps(_HOLE).encode(), raw)


def _strange(right: Body) -> Body:
    """`right` with a further field in each of its objects."""
    if not isinstance(right, dict):
        return right
    return {**{name: _strange(value) for name, value in right.items()}, "no_such_field": ["strange"]}


def _dumped(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=True).encode()
