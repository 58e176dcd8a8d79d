"""A node without its supervisor: a real server with a node's own configuration, and services hosted in
this process.

For tests below `hearthnet up`: everything on the wire is real, only the processes are one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import msgspec

from hearthnet import NodeContext, Service
from hearthnet.bus.bus import Bus, find_contract
from hearthnet.bus.calls.attempt import CallOptions
from hearthnet.bus.calls.streaming import StreamCall
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.session import keyring
from hearthnet.bus.store import HomeStore
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.core.config_loader import load_config
from hearthnet.core.home import Home
from hearthnet.core.node_state import NodeState, ServerState, ServiceState
from hearthnet.service.hosting.host import Host
from hearthnet.service.hosting.status import Status
from hearthnet.supervisor.nats import home_setup, streams
from hearthnet.supervisor.nats.server_config import ANY_PORT, BusLogin, ServerSettings, render
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity, Login
from tests.helpers.members import take_in
from tests.helpers.nats_server import NatsServer

_SET_BY_THE_HELPER = ("listen:", "ports_file_dir:")


class GuestBus(Bus):
    """A member's process that asks another home, `host`, for effects where a call names no node."""

    host = ""

    @classmethod
    async def at(cls, host: str, home: Home, url: str, name: str) -> GuestBus:
        """Joins as `Bus.join`; `host` is the id of the other home's node."""
        bus = await cls.join(home, url, name)
        assert isinstance(bus, GuestBus)
        bus.host = host
        return bus

    async def call(
        self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]
    ) -> ReceivedReply:
        """As `Bus.call`."""
        return await super().call(capability, body, **self._named(capability, options))

    def stream(self, capability: str, body: dict[str, Any], **options: Unpack[CallOptions]) -> StreamCall:
        """As `Bus.stream`."""
        return super().stream(capability, body, **self._named(capability, options))

    def _named(self, capability: str, options: CallOptions) -> CallOptions:
        contract = None if is_provider_defined(capability) else find_contract(capability)
        if contract is not None and contract.side_effects and not contract.is_shared_effect:
            options["node"] = options.get("node") or self.host
        return options


@dataclass
class Mesh:
    """A home, its server, and ways to take part."""

    home: Home
    guest: Home
    server: NatsServer
    identity: Identity
    settings: ServerSettings
    others: tuple[Home, ...] = ()

    async def bus(self, name: str = "test", at: Home | None = None) -> Bus:
        """Another process of the node, or of the one `at` another home, as far as the bus can tell."""
        return await Bus.join(at or self.home, self.server.url, name)

    def let_in(self, roster: Roster) -> None:
        """Has the server know the members and the open invites of `roster`, and nobody else, from now on."""
        invites = tuple(BusLogin(invite.invite_key, invite.login) for invite in roster.invites)
        self.settings = replace(self.settings, members=roster.members, invites=invites)
        self.server.reload(config_of(self.settings, self.guest, *self.others))

    def restart_server(self) -> None:
        """Kills the server without warning and starts it again where it was."""
        self.server.kill()
        self.server = self.server.again()

    async def guest_bus(self, name: str = "guest") -> Bus:
        """The second member's node, on the same server; its effects are asked for at the first one's."""
        return await GuestBus.at(self.identity.node_id, self.guest, self.server.url, name)

    async def store(self, at: Home | None = None, url: str = "") -> HomeStore:
        """The node's store, or that of the node `at` another home; by way of `url`, where that is given."""
        return await HomeStore.join(at or self.home, url or self.server.url, "test store")

    @contextlib.contextmanager
    def published(self, *services: ServiceState, at: Home | None = None) -> Iterator[None]:
        """The mesh as a running node with these services: its state is there, and its lock is held."""
        home = at or self.home
        home.run.mkdir(parents=True, exist_ok=True)
        server = ServerState(self.server.url, 0, 0, address="127.0.0.1:7422")
        state = NodeState(os.getpid(), self.identity.node_id, "test", "0", server, services, 0, ready=True)
        home.state.write_bytes(msgspec.json.encode(state))
        with home.lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    @contextlib.asynccontextmanager
    async def hosting(
        self, service: Service, at: Home | None = None, *, store_url: str = ""
    ) -> AsyncIterator[Host]:
        """`service` started and offered, at the founder's node or `at` the guest's, then stopped; its records
        are reached by way of `store_url`, where that is given.
        """
        home = at or self.home
        bus = await Bus.join(home, self.server.url, service.name)
        config = load_config(self.home)
        node = NodeContext(home, config, store_url or self.server.url, service.name, bus, Status(None))
        try:
            await service.start(node)
            host = Host(service, node)
            try:
                await host.open()
                yield host
            finally:
                await host.close(drain_seconds=1)
        finally:
            await service.stop()
            await node.close()


def _take_in(home: Home, guest: Home, roster: Roster) -> Roster:
    """The roster with the guest as a plain member, as invited and let in by the founder; both know it."""
    founder, newcomer = keyring.load_identity(home.device_key), keyring.create_identity(guest.device_key)
    larger = take_in(roster, founder, newcomer, guest.path.name)
    write_roster(larger, home, guest)
    return larger


def write_roster(roster: Roster, *homes: Home) -> None:
    """What the nodes of `homes` know when they start."""
    for home in homes:
        home.roster.unlink(missing_ok=True)
        sealed = rosters.seal(roster, keyring.load_identity(home.device_key))
        keyring.write_new(home.roster, rosters.encode(sealed))


def config_of(settings: ServerSettings, *guests: Home) -> str:
    """The node's own server configuration, less what the helper sets; with a store for each of `guests`."""
    lines = render(settings).splitlines()
    text = "\n".join(line for line in lines if not line.startswith(_SET_BY_THE_HELPER))
    stores = "".join(
        f"  STORE_{number} {{\n    jetstream: enabled\n    users: [ {{ nkey: {login.public} }} ]\n  }}\n"
        for number, login in enumerate(
            keyring.load_identity(home.device_key).store_login() for home in guests
        )
    )
    return text.replace("  SYS {\n", f"{stores}  SYS {{\n", 1)


async def start_mesh(
    folder: Path, *others: str, stores: bool = True, operators: tuple[str, ...] = ()
) -> Mesh:
    """Founds a community in `folder`, takes in a guest as a member, and a member for each of `others`, and
    starts the founder's server. There each of them has a store of its own, in place of the one that its own
    server would have; without `stores` only the founder.
    `operators` are public nkeys.
    """
    home, guest = Home.resolve(folder / "home"), Home.resolve(folder / "guest")
    more = tuple(Home.resolve(folder / name) for name in others)
    home_setup.make_folders(home)
    prepared = home_setup.prepare(home, lambda line: None)
    roster = prepared.roster
    for place in (guest, *more):
        roster = _take_in(home, place, roster)
    write_roster(roster, home, guest, *more)
    settings = ServerSettings(
        name="test",
        port=ANY_PORT,
        ports=folder,
        jetstream=home.jetstream,
        members=roster.members,
        store_login=prepared.identity.store_login().public,
        system_login=Login(bytes(32)).public,
        own=prepared.identity.node_id,
        operators=operators,
    )
    guests = (guest, *more) if stores else ()
    # Others on this loop may be connecting, and have seconds for that.
    server = await asyncio.to_thread(NatsServer.start, folder / "nats", config_of(settings, *guests))
    mesh = Mesh(home, guest, server, prepared.identity, settings, more)
    for place in (home, *guests):
        async with await mesh.store(place) as store:
            await streams.ensure(store.js, home.jetstream)
    return mesh
