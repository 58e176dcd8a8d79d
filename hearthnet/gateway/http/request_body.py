"""Reading the body of a request: unambiguous JSON."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from starlette.requests import Request

from hearthnet.agent.tools.result_text import too_deep
from hearthnet.core.canonical_json import canonical_json, read_json, refuse_repeated_keys
from hearthnet.core.errors import HearthNetError

_JSON: Final = msgspec.json.Decoder(dict[str, Any])
_DEEPEST: Final = 100
_LARGE: Final = 262_144
"""Bytes above which a body is read in a thread, since reading it would block other clients."""


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of `request`.

    Raises:
        HearthNetError: `bad_request` for another content type, for compressed content (which may be far
            larger than it looks), and for JSON that is malformed, ambiguous or nested too deep;
            `payload_too_large` over the limit.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise HearthNetError("bad_request", "send JSON, with Content-Type: application/json")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HearthNetError("bad_request", "send the body as it is, without Content-Encoding")
    data = await request.body()
    return _read(data) if len(data) <= _LARGE else await asyncio.to_thread(_read, data)


def _read(data: bytes) -> dict[str, Any]:
    value = read_json(data, _JSON)
    if too_deep(value, _DEEPEST):
        raise HearthNetError("bad_request", f"the JSON is nested more than {_DEEPEST} deep")
    refuse_repeated_keys(data)
    canonical_json(value)
    return value
