"""Connecting while the server closes what is just being connected."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.nats.client import NatsClient
from hearthnet.nats.jetstream_client import StoreLink
from hearthnet.trust.keys import Login
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


class Doorkeeper:
    """Stands before a server and shuts the door on the first so many who come in."""

    def __init__(self, port: int, shut: int) -> None:
        self._port = port
        self.shut = shut
        self.came = 0
        self.inside = 0

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One who comes in: the server's first line, then the door, or all that follows."""
        self.came += 1
        self.inside += 1
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(await inner_reader.readline())
        await writer.drain()
        if self.came <= self.shut:
            await reader.readline()
        else:
            await asyncio.gather(_pour(reader, inner_writer), _pour(inner_reader, writer))
        for each in (writer, inner_writer):
            each.close()
            with contextlib.suppress(OSError):
                await each.wait_closed()
        self.inside -= 1


def _login(mesh: Mesh, kind: type[NatsClient | StoreLink]) -> Login:
    return mesh.identity.login() if kind is NatsClient else mesh.identity.store_login()


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


@contextlib.asynccontextmanager
async def door(mesh: Mesh, shut: int) -> AsyncIterator[tuple[str, Doorkeeper]]:
    """Its address, and who stands there."""
    keeper = Doorkeeper(int(mesh.server.url.rpartition(":")[2]), shut)
    server = await asyncio.start_server(keeper.meet, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", keeper
        await wait_for(lambda: keeper.inside == 0, what="everybody to be gone")


@pytest.mark.req("BUS-34")
@pytest.mark.parametrize("kind", [NatsClient, StoreLink])
async def test_a_connection_that_is_closed_while_it_is_made_is_made_again(
    mesh: Mesh, kind: type[NatsClient | StoreLink]
) -> None:
    async with door(mesh, shut=2) as (url, keeper):
        link = await kind.connect(url, _login(mesh, kind), "test")
        assert keeper.came == 3
        await link.connected()
        await link.close()


@pytest.mark.req("BUS-34")
@pytest.mark.parametrize("kind", [NatsClient, StoreLink])
async def test_one_that_is_always_closed_is_given_up(mesh: Mesh, kind: type[NatsClient | StoreLink]) -> None:
    async with door(mesh, shut=100) as (url, keeper):
        with pytest.raises(HearthNetError, match=f"no NATS server answers at {url}") as caught:
            await kind.connect(url, _login(mesh, kind), "test")
        assert caught.value.code == "partition"
        assert keeper.came == 4
