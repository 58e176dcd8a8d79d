"""Ids that follow from a run and one of its calls, so that repetitions are known (wire.md, "Approvals")."""

from __future__ import annotations

from typing import Final

import blake3

from hearthnet.canonical import canonical_json

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BITS: Final = 128


def derived_id(purpose: str, *parts: str) -> str:
    """A value in the form of a ULID: 128 bits of BLAKE3 over `purpose` and `parts`.

    Equal parts give equal ids.
    """
    hashed = blake3.blake3(canonical_json([purpose, *parts])).digest(_BITS // 8)
    value = int.from_bytes(hashed, "big")
    return "".join(_CROCKFORD[(value >> shift) & 31] for shift in range(125, -1, -5))


def client_id(run: str, tool_call_id: str) -> str:
    """The idempotency key of a call: the same for every repetition of this call, and for no other."""
    return derived_id("client", run, tool_call_id)


def confirmation_id(run: str, tool_call_id: str) -> str:
    """The id under which a person is asked about a call."""
    return derived_id("confirmation", run, tool_call_id)
