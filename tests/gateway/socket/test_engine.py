"""The engine alone: what is cut off, and what clients hear when the server ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.utils import ClientDisconnected
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from hearthnet.gateway.socket.engine import ABORT, SEND, WebSocketConnection
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
DEADLINE = 30.0
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class App:
    """Takes every socket, and waits until it has gone."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []
        self.sends: list[Send] = []
        self.ended: list[int] = []
        self.asked = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await receive()
        self.asked.set()
        await self.takes.wait()
        await send({"type": "websocket.accept"})
        self.scopes.append(scope)
        self.sends.append(send)
        while (message := await receive())["type"] != "websocket.disconnect":
            pass
        self.ended.append(message["code"])


class Open:
    """Takes every socket, as of a client that is known."""

    def admit_socket(self, scope: MutableMapping[str, Any]) -> bool:
        return True


class Written:
    """A transport that counts what is written to it."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.count += 1
        self._transport.write(data)


class Server(uvicorn.Server):
    """Leaves signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


@contextlib.asynccontextmanager
async def serving(app: App, ping: float | None = None) -> AsyncIterator[tuple[Server, str]]:
    config = uvicorn.Config(
        app,
        ws=functools.partial(WebSocketConnection, Open()),  # type: ignore[arg-type]
        lifespan="off",
        log_config=None,
        ws_ping_interval=ping,
        ws_ping_timeout=ping,
        timeout_graceful_shutdown=1,
    )
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        server = Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await wait_for(lambda: server.started, DEADLINE)
        try:
            yield server, f"ws://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            await asyncio.wait({task})


async def closed(client: ClientConnection) -> int | None:
    with contextlib.suppress(ConnectionClosed):
        await client.recv()
    return client.close_code


@pytest.mark.req("SOCK-16")
async def test_when_the_server_ends_clients_hear_that_they_may_come_back() -> None:
    app = App()
    async with serving(app) as (server, url), connect(url, proxy=None) as client:
        await wait_for(lambda: app.scopes, DEADLINE)
        server.should_exit = True
        assert (await closed(client), client.close_reason) == (1001, "going_away: come back and resume")
        await wait_for(lambda: app.ended == [1001], DEADLINE)


@pytest.mark.req("SOCK-9")
async def test_who_answers_no_ping_is_cut_off() -> None:
    app = App()
    async with serving(app, ping=0.05) as (_, url):
        client = await connect(url, proxy=None, close_timeout=0)
        client.transport.pause_reading()
        await wait_for(lambda: app.ended, DEADLINE)
        client.transport.abort()


@pytest.mark.req("SOCK-8")
async def test_the_application_cuts_a_connection() -> None:
    app = App()
    async with serving(app) as (_, url), connect(url, proxy=None) as client:
        await wait_for(lambda: app.scopes, DEADLINE)
        app.scopes[0]["extensions"][ABORT]["abort"]()
        assert await closed(client) == 1006


@pytest.mark.req("SOCK-3")
async def test_what_is_no_handshake_gets_no_socket() -> None:
    app = App()
    async with serving(app) as (_, url):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url[:-1].rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    assert app.scopes == []


@pytest.mark.req("SOCK-16")
async def test_several_messages_go_out_together_until_the_socket_is_closed() -> None:
    app = App()
    async with serving(app) as (server, url), connect(url, proxy=None) as client:
        await wait_for(lambda: app.scopes, DEADLINE)
        send_texts = app.scopes[0]["extensions"][SEND]["send"]
        written = send_texts.__self__.transport = Written(send_texts.__self__.transport)
        await send_texts([b"one", b"two"])
        assert [await client.recv(), await client.recv()] == ["one", "two"]
        assert written.count == 1
        server.should_exit = True
        assert await closed(client) == 1001
        await wait_for(lambda: app.ended, DEADLINE)
        with pytest.raises(ClientDisconnected):
            await send_texts([b"three"])
        with pytest.raises(ClientDisconnected):
            await app.sends[0]({"type": "websocket.send", "text": "three"})


@pytest.mark.req("SOCK-16")
async def test_what_comes_after_a_close_from_below_is_an_error_of_the_connection() -> None:
    app = App()
    async with serving(app) as (_, url), connect(url, proxy=None):
        await wait_for(lambda: app.scopes, DEADLINE)
        send_texts = app.scopes[0]["extensions"][SEND]["send"]
        send_texts.__self__.conn.send_close(1000)
        with pytest.raises(ClientDisconnected):
            await send_texts([b"late"])


@pytest.mark.req("SOCK-16")
async def test_a_socket_that_is_not_open_yet_does_not_keep_the_server() -> None:
    app = App()
    app.takes.clear()
    async with serving(app) as (server, url):
        asking = asyncio.create_task(connect(url, proxy=None).__aenter__())
        await asyncio.wait_for(app.asked.wait(), DEADLINE)
        server.should_exit = True
        with pytest.raises(InvalidStatus) as refused:
            await asyncio.wait_for(asking, DEADLINE)
        assert refused.value.response.status_code == 500
