"""A node without its supervisor: a real server with a node's own configuration, and services hosted in
this process.

For tests below `hearthnet up`: everything on the wire is real, only the processes are one.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from hearthnet.bus.bus import Bus
from hearthnet.bus.link import Link
from hearthnet.bus.store import Store
from hearthnet.config import Home, load_config
from hearthnet.service import NodeContext, Service
from hearthnet.service.host import Host
from hearthnet.service.status import Status
from hearthnet.trust.keys import Identity, Login
from hearthnet.up import first_run, streams
from hearthnet.up.server_config import ANY_PORT, ServerSettings, render
from tests.helpers.nats_server import NatsServer

_SET_BY_THE_HELPER = ("listen:", "ports_file_dir:")


@dataclass
class Mesh:
    """A home, its server, and ways to take part."""

    home: Home
    server: NatsServer
    identity: Identity

    async def bus(self, name: str = "test") -> Bus:
        """Another process of the node, as far as the bus can tell."""
        return await Bus.join(self.home, self.server.url, name)

    def restart_server(self) -> None:
        """Kills the server without warning and starts it again where it was."""
        self.server.kill()
        self.server = self.server.again()

    async def store(self) -> Store:
        """The node's store."""
        return await Store.join(self.home, self.server.url, "test store")

    @contextlib.asynccontextmanager
    async def hosting(self, service: Service) -> AsyncIterator[Host]:
        """`service` started and offered, and stopped at the end."""
        bus = await Bus.join(self.home, self.server.url, service.name)
        config = load_config(self.home)
        node = NodeContext(self.home, config, self.server.url, service.name, bus, Status(None))
        await service.start(node)
        host = Host(service, bus.peer)
        try:
            await host.open()
            yield host
        finally:
            await host.close(drain_seconds=1)
            await service.stop()
            await node.close()


def config_of(settings: ServerSettings) -> str:
    """The node's own server configuration, less what the helper sets."""
    lines = render(settings).splitlines()
    return "\n".join(line for line in lines if not line.startswith(_SET_BY_THE_HELPER))


async def start_mesh(folder: Path) -> Mesh:
    """Founds a community of one in `folder` and starts its server."""
    home = Home.resolve(folder / "home")
    first_run.make_folders(home)
    prepared = first_run.prepare(home, lambda line: None)
    settings = ServerSettings(
        name="test",
        port=ANY_PORT,
        ports=folder,
        jetstream=home.jetstream,
        members=prepared.roster.members,
        store_login=prepared.identity.store_login().public,
        system_login=Login(bytes(32)).public,
    )
    server = NatsServer.start(folder / "nats", config_of(settings))
    mesh = Mesh(home, server, prepared.identity)
    link = await Link.connect(server.url, prepared.identity.store_login(), "test set-up")
    try:
        await streams.ensure(link.client.jetstream(), home.jetstream)
    finally:
        await link.close()
    return mesh
