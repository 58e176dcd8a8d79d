"""What is no JSON of one meaning gets no further than its first reader."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.request_body import read_object

pytestmark = pytest.mark.asyncio


async def read(data: bytes, kind: str = "application/json", **headers: str) -> dict[str, Any]:
    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    raw = [(b"content-type", kind.encode())]
    raw += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "headers": raw, "path": "/", "query_string": b""}
    return await read_object(Request(scope, receive))


@pytest.mark.req("HTTP-20")
async def test_json_is_read_as_it_is() -> None:
    assert await read(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}
    assert await read(b"{}", "application/problem+json; charset=utf-8") == {}
    assert await read(b"{}", content_encoding="identity") == {}


@pytest.mark.req("HTTP-20")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe{}",
        b'{"a": "\\ud800"}',
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": 123456789012345678901234567890}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"a": ' + b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b"{}{}",
        b"{'a': 1}",
    ],
    ids=lambda data: f"{len(data)} {data[:16]!r}",
)
async def test_what_is_no_object_of_one_meaning_is_refused(data: bytes) -> None:
    with pytest.raises(HearthNetError) as refused:
        await read(data)
    assert refused.value.code == "bad_request"
    assert len(refused.value.message) < 1000


@pytest.mark.req("HTTP-20")
async def test_packed_bodies_and_other_kinds_are_refused() -> None:
    bomb = gzip.compress(b" " * 1_000_000)
    for encoding in ("gzip", "GZIP", "br", "deflate, gzip"):
        with pytest.raises(HearthNetError, match="Content-Encoding"):
            await read(bomb, content_encoding=encoding)
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        with pytest.raises(HearthNetError, match="application/json"):
            await read(b"{}", kind)


@pytest.mark.req("HTTP-20")
async def test_a_hundred_levels_are_read_and_no_more() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert await read(nested(99))
    with pytest.raises(HearthNetError, match="deep"):
        await read(nested(100))
