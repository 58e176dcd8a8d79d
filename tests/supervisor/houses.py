"""Homes with their real servers, side by side in one test: what their supervisors run, less the processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from hearthnet.bus.session.keyring import load_identity
from hearthnet.core.home import Home
from hearthnet.supervisor.nats import home_setup
from hearthnet.supervisor.nats.access_control import ServerRoster
from hearthnet.supervisor.nats.door_server import DoorServer, admit_at_both
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.leaf_links import Upstream, save_upstream
from hearthnet.supervisor.nats.nats_server import Server
from hearthnet.supervisor.nats.server_config import BusLogin
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.trust.keys import Identity, Login
from tests.helpers.neighbourhood import Neighbourhood, Past, settle_in
from tests.helpers.waiting import DEADLINE_SECONDS

SETTINGS = "[server]\nport = 0\n[community]\nport = 0\n"


def entry(identity: Identity) -> BusLogin:
    """What lets `identity` in."""
    return BusLogin(identity.node_id, identity.login().public)


@dataclass
class House:
    """One home, its key, its server, which is kept running until the end of the test, and its door."""

    prepared: Prepared
    server: Server
    door: DoorServer
    news: list[str]

    @property
    def home(self) -> Home:
        """Its folder."""
        return self.prepared.home

    @property
    def identity(self) -> Identity:
        """Its node's key."""
        return self.prepared.identity

    @property
    def url(self) -> str:
        """Where its processes connect."""
        return self.server.state.url

    async def admit(self, roster: ServerRoster) -> None:
        """What the supervisor does where the roster has changed."""
        await admit_at_both(self.server, self.door, roster)

    @property
    def log(self) -> str:
        """What its server wrote."""
        return self.home.log("nats-server").read_text("utf-8", "replace")


@dataclass
class Street:
    """A community, and the houses of it that are open."""

    folder: Path
    neighbourhood: Neighbourhood
    houses: list[House] = field(default_factory=list)

    @classmethod
    def build(cls, folder: Path, *names: str, past: Past | None = None) -> Street:
        """Founds the community, with `names` beside the founder as members; `past` as in `settle_in`."""
        return cls(folder, settle_in(folder, *names, services=(), past=past))

    def place(self, name: str) -> Home:
        """The home of a member, or of the `founder`."""
        return self.neighbourhood.founder if name == "founder" else self.neighbourhood.home(name)

    def key(self, name: str) -> Identity:
        """A member's key."""
        return load_identity(self.place(name).device_key)

    @contextlib.asynccontextmanager
    async def open(
        self, name: str, *, settings: str = SETTINGS, upstream: Upstream | None = None
    ) -> AsyncIterator[House]:
        """The server of that home, started, and started again whenever it ends."""
        home = self.place(name)
        home_setup.make_folders(home)
        home.config_file.write_text(settings)
        if upstream is not None:
            save_upstream(home, upstream)
        prepared = home_setup.prepare(home, lambda line: None)
        news: list[str] = []
        server = Server(prepared, LogFile(home.log("nats-server")), news.append)
        door = DoorServer(prepared, LogFile(home.log("door")), server.leaf, news.append)
        await server.start()
        works = (server.keep, server.guarded.guard, server.watch_link, door.keep, door.guarded.guard)
        tasks = [asyncio.create_task(work()) for work in works]
        house = House(prepared, server, door, news)
        try:
            yield house
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(server.close(), door.guarded.close())
            await asyncio.gather(server.stop(1), door.stop(1))


def way_to(house: House) -> Upstream:
    """What someone who joins at `house` on this computer keeps of it."""
    return Upstream(house.server.state.address)


def admitted(*members: Identity, invites: tuple[Identity, ...] = ()) -> ServerRoster:
    """These and no others."""
    return ServerRoster(tuple(map(entry, members)), tuple(map(entry, invites)))


class Visitor:
    """A raw client: what it hears, what it is refused, how often it was cut off."""

    def __init__(self) -> None:
        self.client = Client()
        self.heard: list[tuple[str, bytes]] = []
        self.refused: list[str] = []
        self.cut = 0

    @classmethod
    async def connect(cls, url: str, login: Login) -> Visitor:
        """Connects once; one that was cut off stays away."""
        visitor = cls()
        try:
            await visitor.client.connect(
                url,
                nkeys_seed_str=login.seed.decode("ascii"),
                allow_reconnect=False,
                connect_timeout=int(DEADLINE_SECONDS),
                error_cb=visitor._on_error,
                disconnected_cb=visitor._on_cut,
            )
        except BaseException:
            await visitor.client.close()
            raise
        return visitor

    async def listen(self, *subjects: str) -> None:
        """Hears these from when it returns."""
        for subject in subjects:
            await self.client.subscribe(subject, cb=self._on_message)
        await self.settle()

    async def say(self, subject: str, data: bytes = b"x") -> None:
        """Publishes; the server has taken or refused it when this returns."""
        await self.client.publish(subject, data)
        await self.settle()

    async def settle(self) -> None:
        """Two round trips: one can overtake what was sent before it."""
        await self.client.flush()
        await self.client.flush()

    async def may_say(self, subject: str) -> bool:
        """Whether the server takes a message on `subject`."""
        self.refused.clear()
        await self.say(subject)
        return not self.refused

    async def may_listen(self, subject: str) -> bool:
        """Whether the server takes a subscription to `subject`."""
        self.refused.clear()
        await self.listen(subject)
        return not self.refused

    def subjects(self) -> list[str]:
        """The subjects of what it heard."""
        return [subject for subject, _ in self.heard]

    async def _on_message(self, message: Msg) -> None:
        self.heard.append((message.subject, message.data))

    async def _on_error(self, error: Exception) -> None:
        self.refused.append(str(error))

    async def _on_cut(self) -> None:
        self.cut += 1


@dataclass
class Callers:
    """Visitors that are let go of at the end."""

    open: list[Visitor] = field(default_factory=list)

    async def connect(self, url: str, login: Login) -> Visitor:
        """Another one."""
        visitor = await Visitor.connect(url, login)
        self.open.append(visitor)
        return visitor

    async def leave(self) -> None:
        """Closes all."""
        for visitor in self.open:
            await visitor.client.close()


def parsed(data: bytes) -> Any:
    """JSON that a server sent."""
    return msgspec.json.decode(data)
