"""Canonical JSON, content hashes and strict reading of JSON.

At the bottom of the layers because trust, contracts and wire all need it (docs/decisions/0001).

See: docs/protocol/frames.md#canonical-json, docs/protocol/identity.md#reading-json.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

import blake3
import msgspec
import rfc8785

from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import ulid_text

Value = TypeVar("Value")
_SORTED: Final = msgspec.json.Encoder(order="sorted")
_EXACT: Final = 2**53 - 1
_MORE: Final = "Extra data"


def canonical_json(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a JSON value.

    Raises:
        HearthNetError: `bad_request` for NaN, infinities, integers beyond 53 bits, lone surrogates, and
            values nested deeper than the interpreter's stack.
    """
    try:
        return _SORTED.encode(value) if _is_plain(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise HearthNetError("bad_request", f"has no canonical JSON: {error}") from error


def canonical_record(record: msgspec.Struct) -> bytes:
    """Return the RFC 8785 bytes of a struct whose members are texts and integers of at most 53 bits.

    The same as `canonical_json` of its members, in a third of the time.

    Raises:
        HearthNetError: `bad_request` for lone surrogates.
    """
    try:
        return _SORTED.encode(record)
    except UnicodeEncodeError as error:
        raise HearthNetError("bad_request", f"has no canonical JSON: {error}") from error


def is_plain(value: Any) -> bool:
    """Return whether `value` has one written form for each number, and names in ASCII only.

    Its canonical JSON takes a tenth of the time that others take, and equal values have equal sizes: `1.0`
    and `1` are the same number in canonical JSON, and of different length as they are written.
    """
    try:
        return _is_plain(value)
    except RecursionError:
        return False


def _is_plain(value: Any) -> bool:
    """Return whether the fast encoder writes `value` as RFC 8785 requires.

    It takes a tenth of the library's time, but writes fractions in another form, and orders keys by their
    bytes, which differs for keys beyond ASCII. These go to the library, as do values without a canonical
    form, for its error message.
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
    """Return `blake3:` and the 64 hexadecimal digits over `data`: a CID or a schema hash."""
    return "blake3:" + blake3.blake3(data).hexdigest()


def digest(value: Any) -> str:
    """Return the content hash of the canonical JSON of `value`."""
    return content_hash(canonical_json(value))


def read_json(data: bytes | memoryview, decoder: msgspec.json.Decoder[Value]) -> Value:
    """Decode JSON that comes from outside this process.

    The one place to do so, because deep nesting (a thousand brackets) raises RecursionError instead of an
    error of the decoder.

    Raises:
        HearthNetError: `bad_request` for everything that `decoder` does not accept.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HearthNetError("bad_request", f"unreadable JSON: {error}") from error


def refuse_repeated_keys(data: bytes) -> None:
    """Check that no object in `data` names a key twice.

    Readers differ in which of the two members they keep, so a signed text could mean one thing to its
    verifier and another to its executor. Called for signed bytes only, since it costs a second parse.

    Raises:
        HearthNetError: `bad_request` for a repeated key and for bytes that are not JSON.
    """
    try:
        _UNIQUE.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise HearthNetError("bad_request", f"ambiguous JSON: {json_fault(error)}") from error


def json_fault(error: Exception) -> str:
    """Describe for a person why a JSON text is invalid, with line and column if known."""
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
    """Derive a value in the form of a ULID from `purpose` and `parts`.

    Equal arguments give equal ids.
    """
    hashed = blake3.blake3(canonical_json([purpose, *parts])).digest(16)
    return ulid_text(int.from_bytes(hashed, "big"))
