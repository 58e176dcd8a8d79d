"""The body of a request: JSON of one meaning, or a reason why not."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from starlette.requests import Request

from hearthnet.canonical import canonical_json, read_json, refuse_repeated_keys
from hearthnet.errors import HearthNetError

_JSON: Final = msgspec.json.Decoder(dict[str, Any])
_DEEPEST: Final = 100
_LARGE: Final = 262_144
"""What is larger would hold up everybody else while it is read."""


async def read_object(request: Request) -> dict[str, Any]:
    """The object that `request` carries.

    Raises `bad_request` for another kind of content, for packed content (which may be far larger than it
    looks), and for JSON that is broken, deeper than anything asks for, or means two things;
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
    check_depth(value)
    refuse_repeated_keys(data)
    canonical_json(value)
    return value


def check_depth(value: Any) -> None:
    """Raises `bad_request` for what is nested deeper than `_DEEPEST`."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise HearthNetError("bad_request", f"the JSON is nested more than {_DEEPEST} deep")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
