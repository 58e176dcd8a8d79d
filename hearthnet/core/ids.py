"""Identifiers and their forms.

See: docs/protocol/identity.md#text-forms.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import secrets
from functools import lru_cache
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import CLOCK

PREFIX: Final = "ed25519:"
_GUEST_CONTEXT: Final = "hearthnet 2026 guest in a subject"
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# Two characters at a time halve the cost of an id, which every frame carries.
_PAIRS: Final = tuple(first + second for first in _CROCKFORD for second in _CROCKFORD)
_ULID: Final = re.compile(f"[0-7][{_CROCKFORD}]{{25}}")
_INSTANCE_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_DRAWN_AT_ONCE: Final = 256
_drawn: Final[list[str]] = []
# A forked child must not draw the same ids as its parent.
os.register_at_fork(after_in_child=_drawn.clear)
_NODES: Final = 4096
"""Number of ids whose forms are cached: frames repeat the same few."""


def new_ulid(now_ms: int | None = None) -> str:
    """Return a new ULID: 48 bits of time in milliseconds and 80 random bits in 26 characters.

    ULIDs sort by time. Not taken from a library, since importing one exceeds the time budget of `hearthnet
    version` (docs/decisions/0002).
    """
    millis = CLOCK.now_ms() if now_ms is None else now_ms
    try:
        return _time_text(millis) + _drawn.pop()
    except IndexError:
        return _time_text(millis) + _draw()


@lru_cache(maxsize=8)
def _time_text(millis: int) -> str:
    return "".join([_PAIRS[(millis >> shift) & 1023] for shift in range(40, -1, -10)])


def _draw() -> str:
    """Return 80 random bits as 16 characters.

    Draws many at once, since the system call is most of the cost of one.
    """
    drawn = os.urandom(10 * _DRAWN_AT_ONCE)
    values = [int.from_bytes(drawn[start : start + 10], "big") for start in range(0, len(drawn), 10)]
    texts = ["".join([_PAIRS[(value >> shift) & 1023] for shift in range(70, -1, -10)]) for value in values]
    _drawn.extend(texts[1:])
    return texts[0]


def ulid_text(value: int) -> str:
    """Return the 26 characters of the ULID whose 128 bits are `value`."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def is_ulid(text: str) -> bool:
    """Return whether `text` has the form of a ULID."""
    return _ULID.fullmatch(text) is not None


def new_instance() -> str:
    """Return 8 random characters that identify a process (docs/protocol/identity.md#instance)."""
    return "".join(secrets.choice(_INSTANCE_ALPHABET) for _ in range(8))


def b64(data: bytes) -> str:
    """Encode `data` as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def unb64(text: str) -> bytes:
    """Decode base64url without padding.

    Each byte string has exactly one text. Ids are compared as text, and a second text of a key would be a
    second identity.

    Raises:
        HearthNetError: `bad_request` for padding, characters of the other alphabet, stray bits in the last
            character, and all other text that `b64` does not write.
    """
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise HearthNetError("bad_request", f"not base64url: {error}") from error
    if b64(data) != text:
        raise HearthNetError("bad_request", "not base64url: another text than the bytes give")
    return data


def node_id(public_key: bytes) -> str:
    """Return the full node id of a 32-byte Ed25519 public key."""
    return PREFIX + b64(public_key)


@lru_cache(maxsize=_NODES)
def token_form(node: str) -> str:
    """Return the 43 characters that represent a full node id in a subject."""
    public_key(node)
    return node.removeprefix(PREFIX)


def subject_token(principal: str) -> str:
    """Return the token that represents a principal in a subject.

    For a node it is the token form. For a guest (`<node id>/<name>`) it is 43 characters derived from the
    name, which may hold characters that a subject may not.
    """
    if "/" not in principal:
        return token_form(principal)
    import blake3

    return b64(blake3.blake3(principal.encode("utf-8"), derive_key_context=_GUEST_CONTEXT).digest())


@lru_cache(maxsize=_NODES)
def from_token_form(token: str) -> str:
    """Return the full node id of a subject token."""
    node = PREFIX + token
    public_key(node)
    return node


@lru_cache(maxsize=_NODES)
def public_key(node: str) -> bytes:
    """Return the 32-byte key in a full node id.

    Raises:
        HearthNetError: `bad_request` if `node` is not a node id.
    """
    text = node.removeprefix(PREFIX)
    if node.startswith(PREFIX) and len(text) == 43:
        with contextlib.suppress(HearthNetError):
            return unb64(text)
    raise HearthNetError("bad_request", f"{node[:60]!r} is not a node id (ed25519: and 43 characters)")


def short_id(node: str) -> str:
    """Return the form for people: 16 base32 characters (ten bytes) in groups of four.

    Never used on the wire.
    """
    text = base64.b32encode(public_key(node)[:10]).decode("ascii")
    return PREFIX + "-".join(text[start : start + 4] for start in range(0, 16, 4))
