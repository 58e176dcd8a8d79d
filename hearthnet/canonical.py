"""Canonical JSON and content hashes, and JSON read so that it has one meaning.

Lies at the bottom because trust, contracts and wire all need it (docs/decisions/0001).

See: docs/protocol/frames.md#canonical-json, docs/protocol/identity.md#reading-json.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

import blake3
import msgspec
import rfc8785

from hearthnet.errors import HearthNetError
from hearthnet.ids import ulid_text

Value = TypeVar("Value")
_SORTED: Final = msgspec.json.Encoder(order="sorted")
_EXACT: Final = 2**53 - 1
_MORE: Final = "Extra data"


def canonical_json(value: Any) -> bytes:
    """The RFC 8785 bytes of a JSON value.

    Raises `bad_request` for NaN, infinities, integers beyond 53 bits, halves of surrogate pairs, and what is
    nested deeper than the interpreter's stack.
    """
    try:
        return _SORTED.encode(value) if _is_plain(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise HearthNetError("bad_request", f"has no canonical JSON: {error}") from error


def _is_plain(value: Any) -> bool:
    """Whether `value` holds only what the fast encoder writes as RFC 8785 asks, in a tenth of the time.

    It writes fractions in another form, and orders keys by their bytes, which for those beyond ASCII is
    another order: both go to the library, and so does whatever has no canonical form, for its reason.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-_EXACT <= value <= _EXACT)
    if kind is dict:
        return all(type(key) is str and key.isascii() and _is_plain(member) for key, member in value.items())
    return (kind is list or kind is tuple) and all(map(_is_plain, value))


def content_hash(data: bytes) -> str:
    """`blake3:` and 64 hex characters over `data`: a CID or a schema hash."""
    return "blake3:" + blake3.blake3(data).hexdigest()


def digest(value: Any) -> str:
    """The content hash of the canonical JSON of `value`."""
    return content_hash(canonical_json(value))


def read_json(data: bytes | memoryview, decoder: msgspec.json.Decoder[Value]) -> Value:
    """What `decoder` makes of JSON from outside; `bad_request` for all that it does not take.

    A thousand brackets raise RecursionError rather than an error of the decoder, hence this one place.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HearthNetError("bad_request", f"unreadable JSON: {error}") from error


def refuse_repeated_keys(data: bytes) -> None:
    """Raises `bad_request` where an object in `data` names a key twice, or is no JSON.

    Readers differ in which of the two they take, so what is signed could mean one thing to the one who
    checks it and another to the one who acts on it. Asked only of signed bytes: it costs a second parse.
    """
    try:
        _UNIQUE.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise HearthNetError("bad_request", f"ambiguous JSON: {json_fault(error)}") from error


def json_fault(error: Exception) -> str:
    """What is wrong with a JSON text, in words for a person, with line and column where these are known."""
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    what = "more stands behind the end of the value" if error.msg == _MORE else error.msg
    return f"line {error.lineno}, column {error.colno}: {what}"


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(members)
    if len(names) != len(members):
        raise ValueError("a key stands twice in one object")
    return names


_UNIQUE: Final = json.JSONDecoder(object_pairs_hook=_once)


def derived_id(purpose: str, *parts: str) -> str:
    """A value in the form of a ULID that follows from `purpose` and `parts`: equal ones give equal ids."""
    hashed = blake3.blake3(canonical_json([purpose, *parts])).digest(16)
    return ulid_text(int.from_bytes(hashed, "big"))
