"""The door of a home: a second nats-server, at which the servers of all homes meet.

It runs while the roster has an open door of this node, without JetStream and with an account of the bus
alone, and is linked to the other doors by routes. The listener for other homes is the one that the home's
server has otherwise, with its port and key, so that homes that know the one find the other.

See: docs/protocol/subjects.md#doors, docs/decisions/0222.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Final, Literal

import blake3

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.times import now_ms
from hearthnet.supervisor.nats import address
from hearthnet.supervisor.nats.access_control import AccessControl, ServerRoster, admitted_by
from hearthnet.supervisor.nats.guarded_server import GuardedServer
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.leaf_links import Leaf, usable
from hearthnet.supervisor.nats.nats_process import NatsProcess
from hearthnet.supervisor.nats.nats_server import LINK_LOOK_SECONDS, Server
from hearthnet.supervisor.nats.server_config import (
    ANY_PORT,
    BusLogin,
    DoorRoutes,
    ServerSettings,
    render,
)
from hearthnet.supervisor.os.cancellation import heed_cancelling
from hearthnet.supervisor.os.disk import file_errors, make_folder
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.supervisor.os.os_process import Backoff, exit_text
from hearthnet.trust.community.doors import Door

NAME: Final = "door"
STOP_SECONDS: Final = 1.0
_AUTHORITIES: Final = "doors.pem"
_log = logging.getLogger(__name__)


class DoorServer:
    """The door of one home, running or not; `leaf` has the listener, `news` takes lines for a person."""

    def __init__(self, prepared: Prepared, log: LogFile, leaf: Leaf, news: Callable[[str], None]) -> None:
        home, identity = prepared.home, prepared.identity
        self._home = home
        self._store_login = identity.store_login().public
        self._node = identity.node_id
        self._leaf = leaf
        self._news = news
        self._ports = home.run / NAME
        admitted = admitted_by(prepared.roster, now_ms())
        access = AccessControl(BusLogin(self._node, identity.login().public), "", admitted, news)
        process = NatsProcess(log, home.log(NAME))
        self.guarded: Final = GuardedServer(process, home.nats / "door.conf", self._ports, access, self._text)
        # Secret, as other doors could command this one by it.
        self._system_account = f"SYS_{secrets.token_hex(16)}"
        self._port = ANY_PORT
        self._wanted = asyncio.Event()
        self._running: Door | None = None
        self.unrouted_since: float | None = None
        """Since when (seconds of the monotonic clock) this door has no route to others; None with one."""
        self._follow(usable(prepared.roster.doors))

    @property
    def state(self) -> Literal["", "starting", "open"]:
        """Empty if this home has no open door."""
        if self._own is None:
            return ""
        return "open" if self._own == self._running else "starting"

    def is_open_in(self, roster: ServerRoster) -> bool:
        """Return whether this home has a door in `roster`."""
        return any(one.node_id == self._node for one in usable(roster.doors))

    async def admit(self, roster: ServerRoster) -> None:
        """Admit only the logins of `roster`, and link to its doors; run only while one is this home's.

        Raises as `GuardedServer.admit`.
        """
        roster = roster._replace(operators=())
        self._follow(usable(roster.doors))
        if self._own is not None and self._own == self._running:
            await self.guarded.admit(roster)
            return
        # No server reads anew where it listens; `keep` starts a door that has moved again.
        self.guarded.access.admit(roster)
        await self.guarded.nats.stop(STOP_SECONDS)

    async def keep(self) -> None:
        """Run the server while this home has an open door, again whenever it ends; until cancelled."""
        backoff, reported = Backoff(random.random), ""
        while True:
            heed_cancelling()
            await self._wanted.wait()
            began = time.monotonic()
            try:
                await self._start()
            except HearthNetError as error:
                if error.message != reported:
                    _log.error("%s", error.message)
                    self._news(f"the door cannot open: {error.message}")
                    reported = error.message
            else:
                reported = ""
                self._news("the door is open")
                code = await self.guarded.nats.ended()
                self._running = None
                self._news("the door is closed" if self._own is None else f"the door {exit_text(code, '')}")
            await asyncio.sleep(backoff.wait(time.monotonic() - began))

    async def watch_routes(self) -> None:
        """Note since when there is no route to another door; until cancelled."""
        while True:
            heed_cancelling()
            system = self.guarded.system
            if system is None or self.state != "open" or len(self._doors) < 2:
                self.unrouted_since = None
            else:
                # A server that does not answer is being started again, which is reported elsewhere.
                with contextlib.suppress(HearthNetError):
                    is_routed = await system.routes() > 0
                    self.unrouted_since = None if is_routed else self.unrouted_since or time.monotonic()
            await asyncio.sleep(LINK_LOOK_SECONDS)

    async def stop(self, grace: float) -> None:
        """Stop the server at the end of the node, by force after `grace` seconds."""
        await self.guarded.nats.stop(grace)

    def _follow(self, doors: tuple[Door, ...]) -> None:
        self._doors = doors
        self._own = next((one for one in doors if one.node_id == self._node), None)
        (self._wanted.set if self._own else self._wanted.clear)()

    async def _start(self) -> None:
        make_folder(self._ports)
        own = self._own
        await self.guarded.start(self._text())
        # The connection to the system account finds the server again at this port.
        self._port = int(self.guarded.nats.url.rpartition(":")[2])
        await self.guarded.connect()
        self._running = own

    def _text(self) -> str:
        own = self._own
        if own is None:
            raise HearthNetError("not_found", "this home has no open door")
        members, invites, _, _ = self.guarded.access.admitted
        return render(
            ServerSettings(
                name=f"hearthnet-door-{blake3.blake3(self._store_login.encode('ascii')).hexdigest(16)}",
                port=self._port,
                ports=self._ports,
                jetstream=None,
                members=members,
                store_login="",
                system_login=self.guarded.system_login.public,
                invites=invites,
                listener=self._leaf.listener(address.parse(own.address).port),
                routes=self._routes(own),
                system_account=self._system_account,
            )
        )

    def _routes(self, own: Door) -> DoorRoutes:
        """Return the settings of the routes; write the certificates by which the other doors are verified."""
        from hearthnet.supervisor.nats import certificate

        files, _ = self._leaf.certificate()
        path = self._home.nats / _AUTHORITIES
        with file_errors(path):
            write_whole(path, "".join(certificate.authority(one.key) for one in self._doors).encode("ascii"))
        listener = self._leaf.listener(1)
        return DoorRoutes(
            host=listener.host,
            port=address.parse(own.route).port,
            tls=files,
            trusted=path,
            pins=tuple(certificate.fingerprint_of(one.key) for one in self._doors),
            routes=tuple(
                place for one in self._doors if one is not own for place in self._leaf.routes_to(one)
            ),
        )


async def admit_at_both(server: Server, door: DoorServer, roster: ServerRoster) -> None:
    """Have the server of a home and its door admit the logins of `roster`. Raises as `GuardedServer.admit`.

    The one that leaves the listener for other homes to the other comes first.
    """
    first, second = (server, door) if door.is_open_in(roster) else (door, server)
    try:
        await first.admit(roster)
    finally:
        await second.admit(roster)
