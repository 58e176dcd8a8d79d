"""What is no good request, byte by byte: refused with a reason, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from tests.helpers.gateway import House
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUERY = json.dumps(
    {"capability": "rag.query", "body": {"params": {"corpus": "probe"}, "input": {"query": "water"}}}
).encode()
ZERO = QUERY.replace(b"rag.query", b"rag.query\\u0000")
CALL, CHAT = b"POST /v1/call", b"POST /v1/chat/completions"


class Sender:
    """Sends bytes as they are to one gateway, as a client that may ask."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._key = house.guest().bearer["Authorization"].encode()

    def request(self, body: bytes, *headers: bytes, line: bytes = CALL, length: bool = True) -> bytes:
        """A request that is right but for what is given."""
        told = [line + b" HTTP/1.1", b"Host: 127.0.0.1", b"Authorization: " + self._key, *headers]
        told += [b"Content-Length: %d" % len(body)] if length else []
        if not any(header.lower().startswith(b"content-type") for header in headers):
            told.append(b"Content-Type: application/json")
        return b"\r\n".join(told) + b"\r\n\r\n" + body

    async def send(self, data: bytes) -> bytes:
        """All that is answered until the other side closes, which it does after an error of the wire, or
        because it was asked to.
        """
        host, port = self._house.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(data)
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(30):
                    return await reader.read()
            return b""
        finally:
            writer.close()

    async def status(self, body: bytes, *headers: bytes, line: bytes = CALL, length: bool = True) -> int:
        """The status of the answer to one request."""
        closing = (*headers, b"Connection: close")
        answer = await self.send(self.request(body, *closing, line=line, length=length))
        return int(answer.split(b" ", 2)[1]) if answer else 0


CHUNKED = b"Transfer-Encoding: chunked"
IN_CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(QUERY), QUERY)


@pytest.mark.req("HTTP-21")
@pytest.mark.parametrize(
    ("headers", "body", "length"),
    [
        pytest.param([CHUNKED], QUERY, True, id="length and chunks"),
        pytest.param([b"Content-Length: 5"], QUERY, True, id="two lengths"),
        pytest.param([b"Content-Length: -5"], QUERY, False, id="a negative length"),
        pytest.param([b"Content-Length: +5"], QUERY, False, id="a signed length"),
        pytest.param([b"Content-Length: 0x10"], QUERY, False, id="a length in hex"),
        pytest.param([b"Content-Length: " + b"9" * 30], QUERY, False, id="a length beyond all numbers"),
        pytest.param([CHUNKED], b"zz\r\nabc\r\n0\r\n\r\n", False, id="chunks without a length"),
        pytest.param([b"Transfer-Encoding: xchunked"], IN_CHUNKS, False, id="chunked misspelt"),
        pytest.param([b"Transfer-Encoding: chunked, identity"], IN_CHUNKS, False, id="chunked not last"),
        pytest.param([b"X-A: a\x00b"], QUERY, True, id="a zero byte"),
        pytest.param([b"X-A: a\nX-B: b"], QUERY, True, id="a bare line feed"),
        pytest.param([b"X-A: a\rX-B: b"], QUERY, True, id="a bare carriage return"),
        pytest.param([b"X-A: a\r\n b"], QUERY, True, id="a folded header"),
        pytest.param([b"X A: a"], QUERY, True, id="a name with a space"),
        pytest.param([b"X-A : a"], QUERY, True, id="a space before the colon"),
        pytest.param([b"Host: evil.example"], QUERY, True, id="two hosts"),
        pytest.param([b"Authorization: Bearer hnk_a_b"], QUERY, True, id="two keys"),
        pytest.param(
            [b"Content-Type: application/json", b"Content-Type: text/plain"], QUERY, True, id="two types"
        ),
        pytest.param(
            [b"Content-Encoding: identity", b"Content-Encoding: gzip"], QUERY, True, id="two codings"
        ),
        pytest.param([b"Content-Encoding: gzip"], QUERY, True, id="packed"),
        pytest.param([b"Content-Type: text/plain"], QUERY, True, id="not JSON by its type"),
        pytest.param([], b"\xef\xbb\xbf" + QUERY, True, id="a byte order mark"),
        pytest.param([], QUERY.decode().encode("utf-16"), True, id="UTF-16"),
    ],
)
async def test_a_request_that_can_be_read_in_two_ways_is_read_in_none(
    shared: House, headers: list[bytes], body: bytes, length: bool
) -> None:
    before = len(shared.workshop.calls)
    assert await Sender(shared).status(body, *headers, length=length) == 400
    assert len(shared.workshop.calls) == before


@pytest.mark.req("HTTP-21")
@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)),
        b"\x16\x03\x01\x00\xc8" + bytes(200),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"BREW / HTTP/1.1\r\n\r\n",
    ],
    ids=["all bytes", "TLS", "HTTP/2", "no method"],
)
async def test_what_is_no_http_is_refused(shared: House, data: bytes) -> None:
    assert (await Sender(shared).send(data)).startswith(b"HTTP/1.1 400")


@pytest.mark.req("HTTP-21")
@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"POST /v1/call%00", 404),
        (b"POST /page/../v1/call", 405),
        (b"POST /" + b"a" * 100_000, 400),
        (b"POST /v1/\xff\xfe", 400),
        (b"TRACE /v1/call", 405),
        (b"CONNECT evil.example:443", 400),
        (b"GET /v1/models/%ff%00..%2f", 404),
        (b"GET /v1/capabilities?name=%00%ff", 200),
    ],
    ids=["zero", "dots", "long", "no UTF-8", "TRACE", "CONNECT", "odd model", "odd name"],
)
async def test_odd_paths_and_methods(shared: House, line: bytes, status: int) -> None:
    assert await Sender(shared).status(b"", line=line) == status


def chat(**members: Any) -> bytes:
    told = {"model": "scripted", "messages": [{"role": "user", "content": "x"}], **members}
    return json.dumps(told).encode()


def own_tool(schema: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [{"name": "a", "description": "", "parameters_schema": {"type": "object", **schema}}]}


@pytest.mark.req("HTTP-21")
@pytest.mark.parametrize(
    ("line", "body", "why"),
    [
        pytest.param(CALL, ZERO, "'rag.query\\x00' is not a capability", id="a zero in a name"),
        pytest.param(CALL, QUERY[:-1] + b',"capability":"rag.query"}', "a key stands twice", id="two names"),
        pytest.param(
            CALL, QUERY[:-1] + b',"timeout_ms":1e400}', "Number out of range", id="a number beyond all"
        ),
        pytest.param(
            CALL, QUERY[:-1] + b',"timeout_ms":99999999999999999999}', "safe integer", id="a large number"
        ),
        pytest.param(CALL, QUERY[:-1] + b',"timeout_ms":true}', "`$.timeout_ms`", id="no number"),
        pytest.param(CALL, b'{"run":[],"decisions":{}}', "`$.run`", id="a run that is none"),
        pytest.param(CALL, b'{"body":' + b"[" * 100_000, "unreadable JSON", id="brackets"),
        pytest.param(CHAT, chat(messages=[]), "/input/messages: the list is empty", id="no messages"),
        pytest.param(CHAT, chat(messages="x"), "Expected `array`, got `str`", id="text for messages"),
        pytest.param(CHAT, chat(max_tokens=2**53 + 1), "safe integer", id="many tokens"),
        pytest.param(CHAT, chat(max_tokens=-1), "/input/max_tokens: -1 is less", id="less than no tokens"),
        pytest.param(CHAT, chat(temperature=-1e300), "/input/temperature: -1e+300", id="very cold"),
        pytest.param(CHAT, chat(stop=[""]), "/input/stop/0", id="stops at nothing"),
        pytest.param(CHAT, chat().replace(b'"x"', b'"\\ud800"'), "unreadable JSON", id="half a pair"),
        pytest.param(
            CHAT,
            chat(hearthnet=own_tool({"$ref": "http://127.0.0.1/x"})),
            "refers to 'http://127.0.0.1/x', which is not in it",
            id="a schema elsewhere",
        ),
        pytest.param(
            CHAT,
            chat(hearthnet=own_tool({"properties": {"a": {"type": "word"}}})),
            '"word"',
            id="a type that is none",
        ),
    ],
)
async def test_json_that_asks_for_nonsense_is_refused(
    shared: House, line: bytes, body: bytes, why: str
) -> None:
    sender = Sender(shared)
    answer = await sender.send(sender.request(body, b"Connection: close", line=line))
    assert answer.startswith(b"HTTP/1.1 400 ")
    told = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert why in (told["error"]["message"] if line == CHAT else told["message"])
    assert await sender.status(QUERY) == 200
    assert await sender.status(chat(hearthnet=own_tool({})), line=CHAT) == 200


@pytest.mark.req("HTTP-21")
async def test_who_hangs_up_in_mid_request_leaves_nothing_behind(
    shared: House, caplog: pytest.LogCaptureFixture
) -> None:
    sender = Sender(shared)
    host, port = shared.url.removeprefix("http://").split(":")
    tasks = len(asyncio.all_tasks())
    for whole in (sender.request(QUERY), sender.request(chat(), line=CHAT)):
        for upto in (1, 20, len(whole) - 5):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(whole[:upto])
            await writer.drain()
            writer.close()
            await writer.wait_closed()
    assert await sender.status(QUERY) == 200
    await wait_for(lambda: len(asyncio.all_tasks()) <= tasks, 30, "the tasks to end")
    assert shared.gateway.limits._open.total() == 0
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.req("HTTP-21")
async def test_a_head_without_end_behind_a_request_in_progress_ends_both(shared: House) -> None:
    workshop, sender = shared.workshop, Sender(shared)
    slow = {
        "capability": "llm.complete",
        "body": {"params": {"model": "echo"}, "input": {"prompt": "slow 1"}},
    }
    workshop.go.clear()
    began, stopped = len(workshop.calls), len(workshop.stopped)
    host, port = shared.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sender.request(json.dumps(slow).encode()))
    await wait_for(lambda: len(workshop.calls) > began, 30)
    with contextlib.suppress(ConnectionError):
        writer.write(b"GET /health HTTP/1.1\r\nX: " + b"a" * 1_000_000)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
    await wait_for(lambda: len(workshop.stopped) > stopped, 30, "the work to stop")
    workshop.go.set()
    writer.close()
    assert await sender.status(QUERY) == 200
