"""Announcements on loopback as on a network of its own: by homes, and by anybody else there."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from zeroconf import IPVersion
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from hearthnet.supervisor.nats import address, certificate
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.announcer import SERVICE, Announcer
from hearthnet.supervisor.nats.home_finder import LinkSeeker
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import House

OPEN = '[server]\nport = 0\n[community]\nport = 0\nhost = "0.0.0.0"\naddress = "localhost"\n'
"""Settings of a home that others reach."""
GROUP = ("224.0.0.251", 5353)


def on_networks(monkeypatch: pytest.MonkeyPatch, *networks: str) -> None:
    """Have this computer be on `networks` (`127.0.0.1/8`) and on no others."""
    found = tuple(map(ipaddress.IPv4Interface, networks))
    monkeypatch.setattr(address, "own_networks", lambda: found)


def fingerprint_of(house: House) -> str:
    """The fingerprint of the certificate of a home that others reach."""
    return house.server.leaf.certificate()[1]


@contextlib.asynccontextmanager
async def announced(house: House, *, is_on: bool = True) -> AsyncIterator[Announcer]:
    """Announce the house for the block, as its supervisor does."""
    server = house.server
    announcer = Announcer(
        house.prepared.roster.community_id,
        lambda: server.leaf.listening(server.state.leaf_port),
        server.renew,
        lambda: None,
        is_on=is_on,
    )
    async with running(announcer.follow):
        if is_on:
            await wait_for(lambda: announcer.is_announced, what="the announcement")
        yield announcer


@contextlib.asynccontextmanager
async def seeking(house: House) -> AsyncIterator[None]:
    """Have the house look for its hub and doors for the block, as its supervisor does."""

    async def move(fingerprint: str, place: Address) -> bool:
        is_new = await house.server.move_link(fingerprint, place)
        if is_new:
            await house.door.guarded.refresh()
        return is_new

    community, leaf = house.prepared.roster.community_id, house.server.leaf
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(running(house.door.watch_routes))
        for since in (lambda: house.server.unlinked_since, lambda: house.door.unrouted_since):
            seeker = LinkSeeker(community, since, lambda: leaf.fingerprints, move, house.news.append)
            await stack.enter_async_context(running(seeker.follow))
        yield


@contextlib.asynccontextmanager
async def running(work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run the coroutine function `work` for the block."""
    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def speaker(host: str = "127.0.0.1") -> AsyncIterator[AsyncZeroconf]:
    """Whoever says something on the network."""
    zeroconf = AsyncZeroconf([host], ip_version=IPVersion.V4Only)
    try:
        await zeroconf.zeroconf.async_wait_for_start()
        yield zeroconf
    finally:
        await zeroconf.async_close()


async def say(zeroconf: AsyncZeroconf, label: str, port: int, *addresses: str) -> None:
    """Announce `label` at these addresses, and answer questions about it from now on."""
    info = AsyncServiceInfo(
        SERVICE, f"{label}.{SERVICE}", port, server=f"{label}.local.", parsed_addresses=list(addresses)
    )
    await (await zeroconf.async_register_service(info, cooperating_responders=True, strict=False))


class Impostor:
    """A TLS server with a key of its own: how often somebody came, and what came after the handshake."""

    def __init__(self) -> None:
        self.connections = 0
        self.received = b""

    @contextlib.asynccontextmanager
    async def at(self, folder: Path, host: str = "127.0.0.1") -> AsyncIterator[int]:
        """Listen during the block, and yield the port."""
        files = folder / "impostor.pem", folder / "impostor.key"
        certificate.ensure(*files, ("localhost", host))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        server = await asyncio.start_server(self._met, host, 0, ssl=context)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError):
            self.received += await reader.read(65536)
        writer.close()


def listener(host: str = "127.0.0.1") -> socket.socket:
    """A socket that receives what is announced on the network of `host`."""
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind(("", GROUP[1]))
    group = socket.inet_aton(GROUP[0]) + socket.inet_aton(host)
    found.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
    found.setblocking(False)
    return found
