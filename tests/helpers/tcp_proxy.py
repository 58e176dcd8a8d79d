"""A TCP proxy before a real NATS server, which breaks connections at chosen messages, or falls silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

_READ_BYTES = 1 << 20


class TcpProxy:
    """Passes on what clients and the server at `server_url` send, and loses what it is told to."""

    def __init__(self, server_url: str) -> None:
        self._port = int(server_url.rpartition(":")[2])
        self._publish = b""
        self._left = 0
        self._written = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._is_cut = False
        self.url = ""
        self.lost = 0
        """How many messages were lost so far, or their answers."""

    def lose(self, subject: str, count: int, *, written: bool) -> None:
        """Breaks the connection at each of the next `count` publishes under `subject`: with `written` behind
        the server's answer, which is lost, else before the server reads the message.
        """
        self._publish, self._left, self._written = f"PUB {subject}".encode(), count, written

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Passes nothing on in the block, and closes nothing: as where a router drops packets."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    def cut(self) -> None:
        """Breaks all connections, and every one that is tried until `heal`."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        """Passes on again."""
        self._is_cut = False

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self._is_cut:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            back, forth = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers.append(forth)
            answering = asyncio.Event()
            pumps = [
                self._start(self._requests(reader, forth, answering)),
                self._start(self._answers(back, writer, answering)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                forth.transport.abort()
        writer.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, forth: asyncio.StreamWriter, answering: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                if self._left and self._publish in data:
                    self._left -= 1
                    self.lost += 1
                    if not self._written:
                        return
                    answering.set()
                await self._flowing.wait()
                forth.write(data)
                await forth.drain()

    async def _answers(
        self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, answering: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await back.read(_READ_BYTES):
                if answering.is_set() and b"MSG " in data:
                    return
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


@contextlib.asynccontextmanager
async def tcp_proxy(server_url: str) -> AsyncIterator[TcpProxy]:
    """A proxy on a free port of this computer, in front of the server at that address."""
    proxy = TcpProxy(server_url)
    listening = await asyncio.start_server(
        lambda reader, writer: proxy._start(proxy._meet(reader, writer)), "127.0.0.1", 0, limit=_READ_BYTES
    )
    proxy.url = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()
        await proxy._close()
        await listening.wait_closed()
