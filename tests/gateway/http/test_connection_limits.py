"""Connections that dawdle, that are too many, that come and go: cut, refused, and nothing of them is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hearthnet.core.config import GatewayConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway import server
from hearthnet.gateway.app import build
from hearthnet.gateway.context import Gateway
from hearthnet.gateway.http.connection_limits import ConnectionLimits, GuardedProtocol, protocol
from hearthnet.gateway.http.rate_limits import is_loopback
from hearthnet.gateway.middleware import AuthMiddleware
from hearthnet.supervisor.supervisor import SERVICE_GRACE_SECONDS
from tests.helpers.certificates import certificate
from tests.helpers.gateway import House
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")
DEADLINE = 30
HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
PIECES, PIECE = 400, 65_536


@contextlib.asynccontextmanager
async def opened(house: House, **changes: Any) -> AsyncIterator[Gateway]:
    """Another gateway of the house's node, with other limits or settings."""
    patience = ConnectionLimits(
        **{name: changes.pop(name) for name in list(changes) if hasattr(ConnectionLimits(), name)}
    )
    settings = msgspec.structs.replace(GatewayConfig(port=0), **changes)
    config = msgspec.structs.replace(house.gateway.config, gateway=settings)
    async with server.serving(Gateway.on(house.bus, house.mesh.home, config), patience) as gateway:
        yield gateway


@contextlib.asynccontextmanager
async def connected(gateway: Gateway) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = int(gateway.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def opened_with_pieces(house: House, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    """A gateway that answers with 26 MB; on `/broken` its answer fails in the middle."""

    async def long(request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            for number in range(PIECES):
                if number == 9 and "broken" in request.url.path:
                    raise ZeroDivisionError("in mid-answer")
                yield b"x" * PIECE

        return StreamingResponse(parts())

    only = Starlette(routes=[Route("/{name}", long)])
    monkeypatch.setattr(server, "build", lambda gateway: (build(gateway), AuthMiddleware(only, gateway))[1])
    async with opened(house) as gateway:
        yield gateway


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends, in whichever way."""
    try:
        async with asyncio.timeout(DEADLINE):
            return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.req("GATE-11")
@pytest.mark.parametrize(
    "begun",
    [b"", b"GET /hea", HEAD, b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"],
    ids=["nothing", "half a line", "no end", "half a body"],
)
async def test_who_sends_too_slowly_is_cut_and_others_are_served(shared: House, begun: bytes) -> None:
    async with opened(shared, head=1.0, body=1.0) as gateway, connected(gateway) as (slow, writer):
        writer.write(begun)
        async with connected(gateway) as (reader, other):
            other.write(HEAD + b"Connection: close\r\n\r\n")
            assert b'"ok":true' in await rest(reader)
        assert await rest(slow) == b""


@pytest.mark.req("GATE-11")
async def test_the_second_request_of_a_connection_is_clocked_too(shared: House) -> None:
    async with opened(shared, head=1.0) as gateway, connected(gateway) as (reader, writer):
        writer.write(HEAD + b"\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        assert b'"ok":true' in await reader.readuntil(b"}")
        writer.write(HEAD)
        assert await rest(reader) == b""


@pytest.mark.req("GATE-11", "ATTACK-43")
async def test_who_sends_many_requests_before_an_answer_is_cut(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    most: list[int] = []
    complete = GuardedProtocol.on_headers_complete

    def count(connection: GuardedProtocol) -> None:
        try:
            complete(connection)
        finally:
            most.append(len(connection.pipeline))

    monkeypatch.setattr(GuardedProtocol, "on_headers_complete", count)
    async with opened(shared) as gateway:
        async with connected(gateway) as (reader, writer):
            writer.write((HEAD + b"\r\n") * 4_000)
            await rest(reader)
        assert max(most) == 16
        async with connected(gateway) as (reader, writer):
            writer.write((HEAD + b"\r\n") * 16 + HEAD + b"Connection: close\r\n\r\n")
            assert (await rest(reader)).count(b'"ok":true') == 17


@pytest.mark.req("GATE-11", "GATE-9")
async def test_a_head_without_end_is_refused(shared: House) -> None:
    async with opened(shared) as gateway:
        async with connected(gateway) as (reader, writer):
            writer.write(HEAD + b"X: " + b"x" * (65_000 - len(HEAD)) + b"\r\n\r\n")
            assert b"200" in await reader.readline()
        async with connected(gateway) as (reader, writer):
            writer.write(HEAD + b"X: " + b"x" * 66_000)
            assert b"400" in await reader.readline()


@pytest.mark.req("GATE-11")
async def test_who_reads_too_slowly_is_cut(shared: House, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def endless(_request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 65_536
                    await asyncio.sleep(0)
            finally:
                ended.set()

        return StreamingResponse(pieces())

    only = Starlette(routes=[Route("/", endless)])
    monkeypatch.setattr(server, "build", lambda gateway: (build(gateway), only)[1])
    async with opened(shared, reading=0.3) as gateway, connected(gateway) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        await asyncio.wait_for(ended.wait(), DEADLINE)


@pytest.mark.req("GATE-11")
async def test_reader_in_bursts_gets_new_time_with_each(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[GuardedProtocol] = []
    made = GuardedProtocol.connection_made

    def remembered(self: GuardedProtocol, transport: asyncio.Transport) -> None:
        clients.append(self)
        made(self, transport)

    monkeypatch.setattr(GuardedProtocol, "connection_made", remembered)
    async with opened_with_pieces(shared, monkeypatch) as gateway, connected(gateway) as (reader, writer):
        writer.write(b"GET /whole HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200" in await reader.readline()
        timers = []
        for _ in range(3):
            # The buffers between the two are full: the server waits for its reader.
            timers.append(await wait_for(lambda: clients[0]._timers.get("reads its answer"), DEADLINE))
            read = await reader.readexactly(PIECES * PIECE // 8)
            while not timers[-1].cancelled():
                read += await reader.readexactly(PIECE)
        assert len(set(map(id, timers))) == 3
        assert len(await rest(reader)) > PIECES * PIECE // 4


@pytest.mark.req("GATE-11")
@pytest.mark.parametrize(("name", "whole"), [(b"whole", True), (b"broken", False)])
async def test_broken_answer_is_not_whole(
    name: bytes, whole: bool, shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_with_pieces(shared, monkeypatch) as gateway, connected(gateway) as (reader, writer):
        writer.write(b"GET /" + name + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200" in await reader.readline()
        answer = await rest(reader)
        assert (len(answer) > PIECES * PIECE) == whole
        assert answer.endswith(b"0\r\n\r\n") == whole


@pytest.mark.req("GATE-12")
@pytest.mark.parametrize(
    ("soft", "hard", "most"),
    [(1024, 4096, 3968), (1024, -1, 4000), (-1, -1, 4000), (100, 100, 8), (9000, 9000, 4000)],
)
async def test_connections_leave_files_for_the_rest(
    shared: House, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _what: (soft, hard))
    monkeypatch.setattr("resource.setrlimit", lambda _what, _limits: None)
    patience, _ = protocol(ConnectionLimits(), shared.gateway.bodies).args  # type: ignore[attr-defined]
    assert patience.most == most


@pytest.mark.req("GATE-12")
async def test_what_is_this_computers_own() -> None:
    own = [
        is_loopback(address) for address in ("127.0.0.1", "::1", "127.9.9.9", "192.0.2.1", "", "localhost")
    ]
    assert own == [True, True, True, False, False, False]


@pytest.mark.req("GATE-5")
async def test_the_end_waits_for_nobody_for_long(shared: House, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.GRACE_SECONDS < SERVICE_GRACE_SECONDS, "the supervisor would end the gateway by force"
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits(_request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Response()

    only = Starlette(routes=[Route("/", waits)])
    monkeypatch.setattr(server, "build", lambda gateway: (build(gateway), only)[1])
    monkeypatch.setattr(server, "GRACE_SECONDS", 0.1)
    clock = asyncio.get_running_loop().time
    async with asyncio.timeout(DEADLINE), contextlib.AsyncExitStack() as stack:
        async with opened(shared) as gateway:
            _, writer = await stack.enter_async_context(connected(gateway))
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await begun.wait()
            left = clock()
        took = clock() - left
    assert ended.is_set()
    assert took < 2


@pytest.mark.req("GATE-12")
async def test_one_connection_too_many_is_told_so(shared: House) -> None:
    async with opened(shared, most=3) as gateway, contextlib.AsyncExitStack() as stack:
        there = [await stack.enter_async_context(connected(gateway)) for _ in range(3)]
        async with connected(gateway) as (reader, writer):
            writer.write(HEAD + b"\r\n")
            said = await rest(reader)
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 5\r\n" in said
        assert json.loads(said.partition(b"\r\n\r\n")[2])["error"] == "capacity_exceeded"
        for reader, writer in there:
            writer.write(HEAD + b"Connection: close\r\n\r\n")
            assert b"200 OK" in await rest(reader), "who was there before is served"
        await stack.aclose()

        async def served() -> bool:
            async with connected(gateway) as (reader, writer):
                writer.write(HEAD + b"Connection: close\r\n\r\n")
                return b"200 OK" in await rest(reader)

        await wait_for(served, DEADLINE, "room for another")


@pytest.mark.req("GATE-12")
async def test_an_address_elsewhere_has_fewer(shared: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hearthnet.gateway.http.connection_limits.is_loopback", lambda address: address != "127.0.0.1"
    )
    async with (
        opened(shared, most_of_address=1) as gateway,
        connected(gateway),
        connected(gateway) as (reader, writer),
    ):
        writer.write(HEAD + b"\r\n")
        assert (await rest(reader)).startswith(b"HTTP/1.1 503 ")


@pytest.mark.req("GATE-12")
async def test_a_thousand_opens_and_closes_leave_nothing(shared: House) -> None:
    async def knock(number: int) -> None:
        async with connected(gateway) as (reader, writer):
            if number % 4 == 0:
                return
            writer.write(HEAD if number % 4 == 1 else HEAD + b"\r\n")
            if number % 4 == 2:
                await reader.readline()
            elif number % 4 == 3:
                writer.transport.abort()

    async with opened(shared) as gateway:
        await knock(2)
        await wait_for(lambda: sockets(gateway) == 1, DEADLINE, "the first one to be gone")
        tasks = len(asyncio.all_tasks())
        for start in range(0, 1000, 50):
            await asyncio.gather(*(knock(number) for number in range(start, start + 50)))
        await wait_for(lambda: sockets(gateway) == 1, DEADLINE, "all connections to be gone")
        await wait_for(lambda: len(asyncio.all_tasks()) <= tasks, DEADLINE, "all tasks to be gone")


def sockets(gateway: Gateway) -> int:
    """How many sockets of this process have the gateway's port: its listening one, and a connection's end."""
    port = int(gateway.url.rpartition(":")[2])
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    inodes = {line[9] for line in lines if line[1].endswith(f":{port:04X}")}
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").removeprefix("socket:[").rstrip("]") in inodes
    return found


@pytest.mark.req("GATE-13")
async def test_beyond_this_computer_there_is_tls_or_nothing(shared: House, tmp_path: Path) -> None:
    with pytest.raises(HearthNetError, match="with TLS only"):
        async with opened(shared, host="0.0.0.0"):
            pass
    with pytest.raises(HearthNetError, match="cannot use"):
        async with opened(shared, certificate="nowhere.pem"):
            pass
    with pytest.raises(HearthNetError, match="cannot listen"):
        async with opened(shared, host="192.0.2.7", certificate=certificate(tmp_path)):
            pass
    pem = certificate(tmp_path)
    async with opened(shared, host="0.0.0.0", certificate=pem, names=("kitchen.example",)) as gateway:
        assert gateway.url.startswith("https://kitchen.example:")
        context = ssl.create_default_context(cafile=pem)
        port = int(gateway.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="kitchen.example"
        )
        writer.write(HEAD.replace(b"localhost", b"kitchen.example") + b"Connection: close\r\n\r\n")
        assert b'"ok":true' in await rest(reader)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
