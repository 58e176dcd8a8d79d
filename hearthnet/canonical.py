"""Canonical JSON and content hashes (conventions.md 3; RFC 8785).

Lies at the bottom because trust, contracts and wire all need it (docs/decisions/0001).
"""

from __future__ import annotations

from typing import Any

import blake3
import rfc8785

from hearthnet.errors import HearthNetError


def canonical_json(value: Any) -> bytes:
    """The RFC 8785 bytes of a JSON value; `bad_request` for NaN, infinities and integers beyond 53 bits."""
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise HearthNetError("bad_request", f"has no canonical JSON: {error}") from error


def content_hash(data: bytes) -> str:
    """`blake3:` and 64 hex characters over `data`: a CID or a schema hash."""
    return "blake3:" + blake3.blake3(data).hexdigest()


def digest(value: Any) -> str:
    """The content hash of the canonical JSON of `value`."""
    return content_hash(canonical_json(value))
