"""The NATS server of a node: started, verified, kept running, updated with the roster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final

import blake3
import msgspec

from hearthnet.bus.store import Store
from hearthnet.core.errors import HearthNetError
from hearthnet.core.node_state import ServerState
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.nats.client import NatsClient
from hearthnet.nats.jetstream_client import StoreLink
from hearthnet.supervisor.nats import streams
from hearthnet.supervisor.nats.access_control import AccessControl, ServerRoster, admitted_by
from hearthnet.supervisor.nats.address import Address
from hearthnet.supervisor.nats.guarded_server import GuardedServer
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.leaf_links import Leaf, LinkWatch, linked
from hearthnet.supervisor.nats.leaf_ports import LeafPorts
from hearthnet.supervisor.nats.nats_process import NAME, NatsProcess
from hearthnet.supervisor.nats.restored_logs import settle_restored
from hearthnet.supervisor.nats.server_config import ANY_PORT, BusLogin, ServerSettings, render
from hearthnet.supervisor.os.cancellation import heed_cancelling
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.supervisor.os.os_process import Backoff, exit_text

_NO_ROOM: Final = re.compile(rb"no space left|disk quota exceeded|critical write error", re.IGNORECASE)
LINK_LOOK_SECONDS: Final = 2.0
_MISSING_LOOK_SECONDS: Final = 0.5
"""Pause between looks for a link that is missing: processes exchange what they missed once it is back."""
_RESTART_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class Server:
    """One nats-server.

    `news` takes a line whenever it has ended, is back, or something must be reported to a person.
    """

    def __init__(
        self,
        prepared: Prepared,
        log: LogFile,
        news: Callable[[str], None],
        operators: tuple[str, ...] = (),
    ) -> None:
        self._prepared = prepared
        self._home = prepared.home
        self._log_file = log
        log.watch_for(_NO_ROOM)
        self._news = news
        self.on_linked: Callable[[], Awaitable[None]] = _nothing
        """Called when the link to the upstream home has come about."""
        self.leaf: Final = Leaf(prepared)
        access = AccessControl(
            BusLogin(prepared.identity.node_id, prepared.identity.login().public),
            prepared.identity.peer_login().public,
            admitted_by(prepared.roster, now_ms(), operators),
            news,
        )
        process = NatsProcess(log, prepared.home.log(NAME))
        self.guarded: Final = GuardedServer(
            process, self._home.server_config, self._home.run, access, self._text
        )
        self._restarting = False
        self.unlinked_since: float | None = None
        """Since when (seconds of the monotonic clock) the link is missing; None while it is there."""
        self.state = ServerState("", 0, 0)

    async def start(self) -> None:
        """Start the server on the ports of the settings, or on free ones instead; verify it.

        Clients read the port of this run. Other homes store theirs, so that it is the same at every start
        (leaf_ports.py).

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is too full for JetStream; `bad_request` for
                settings that cannot work, such as a port for other homes that is in use; `internal_error`
                with the server's own message if it does not start or does not follow the configuration.
        """
        configured = self._prepared.config.community.port
        ports = LeafPorts(self._home, self._prepared.roster, configured)
        self.leaf.prepare()
        self.leaf.follow(self._prepared.roster.doors)
        await self._start_at(self._prepared.config.server.port or ANY_PORT, ports)
        await self._check()
        port = self.state.leaf_port
        if configured not in (0, port):
            self.state = msgspec.structs.replace(self.state, preferred_leaf_port=configured)
        if text := ports.news(port):
            self._news(text)
        with file_errors(self._home.leaf_ports):
            ports.keep(port)

    async def _start_at(self, port: int, ports: LeafPorts) -> None:
        """Start the server at the first free one of `ports`, for clients at `port` or a free one."""
        candidates = list(ports.candidates)
        while True:
            try:
                return await self._start(port, candidates[0])
            except HearthNetError as error:
                in_use = self.guarded.nats.port_in_use()
                if in_use == "leaf" and candidates[1:]:
                    candidates.pop(0)
                elif in_use == "leaf" and ports.is_fixed:
                    raise ports.in_use_error() from error
                elif in_use == "client" and port != ANY_PORT:
                    port = ANY_PORT
                else:
                    raise

    async def keep(self) -> None:
        """Restart the server on the same ports whenever it ends; until cancelled."""
        backoff = Backoff(random.random)
        began = time.monotonic()
        while True:
            heed_cancelling()
            nats = self.guarded.nats
            if nats.running:
                code = await nats.ended()
                if not self._restarting:
                    _log.error("%s %s", NAME, exit_text(code, self._log_file.last_line()))
                    self._news(f"{NAME} {exit_text(code, '')}; it is started again")
                self._restarting = False
            await asyncio.sleep(backoff.wait(time.monotonic() - began))
            began = time.monotonic()
            try:
                await self._start(self.state.port, self.state.leaf_port)
            except HearthNetError as error:
                _log.error("%s", error.message)
            else:
                self._news(f"{NAME} is back at {self.state.url}")

    async def admit(self, roster: ServerRoster) -> None:
        """Admit only the logins of `roster` from now on, and link to its doors.

        Raises as `GuardedServer.admit`.
        Where the door of this home opens or closes, the server is restarted by `keep`, as no server reads
        anew where it listens for links.
        """
        listened = self.leaf.listens
        self.leaf.follow(roster.doors)
        self._note_address()
        if self.leaf.listens == listened:
            await self.guarded.admit(roster)
            return
        self.guarded.access.admit(roster)
        self._restarting = self.guarded.nats.running
        await self.guarded.nats.stop(_RESTART_SECONDS)

    async def watch_link(self) -> None:
        """Report when the link to the doors, or to the hub, is made and lost; until cancelled."""
        watch, is_linked = LinkWatch(self._log_file.tail), False
        while self.guarded.system is not None:
            heed_cancelling()
            if self.leaf.remote is None:
                is_linked, self.unlinked_since = False, None
                await asyncio.sleep(LINK_LOOK_SECONDS)
                continue
            # A server that does not answer is being started again, which is reported elsewhere.
            with contextlib.suppress(HearthNetError):
                was_linked, is_linked = is_linked, await linked(self.guarded.system)
                self.unlinked_since = None if is_linked else self.unlinked_since or time.monotonic()
                if news := watch.look(is_linked, time.monotonic(), self.leaf.place):
                    self.state = msgspec.structs.replace(self.state, upstream=watch.state)
                    self._news(news)
                if is_linked and not was_linked:
                    await self.on_linked()
            await asyncio.sleep(LINK_LOOK_SECONDS if is_linked else _MISSING_LOOK_SECONDS)

    async def renew(self) -> None:
        """Take over that this computer has other addresses: in the certificate, and in invites.

        Raises as `GuardedServer.admit`.
        """
        self.leaf.renew()
        self._note_address()
        await self.guarded.refresh()

    async def move_link(self, fingerprint: str, place: Address) -> bool:
        """Link to the home with `fingerprint` at `place`; return whether that is new.

        Raises as `GuardedServer.admit`.
        """
        is_new = self.leaf.move(fingerprint, place)
        if is_new:
            self._note_address()
            await self.guarded.refresh()
        return is_new

    @property
    def met_full_disk(self) -> bool:
        """Return whether this server failed to write; it does not recover from that by itself."""
        return self.guarded.nats.running and self._log_file.alarmed

    @property
    def pid(self) -> int:
        """The id of its process, 0 while there is none."""
        return self.guarded.nats.pid

    async def stop(self, grace: float) -> None:
        """Stop the server, by force after `grace` seconds; a running `keep` starts it again."""
        await self.guarded.nats.stop(grace)

    async def close(self) -> None:
        """Close the connection to the server, before its end."""
        await self.guarded.close()

    def kill(self) -> None:
        """Kill the server at once."""
        self.guarded.nats.kill()

    async def _start(self, port: int, leaf_port: int) -> None:
        await self.guarded.start(render(self._settings(port, leaf_port)))
        url = self.guarded.nats.url
        self.state = msgspec.structs.replace(
            self.state, url=url, port=int(url.rpartition(":")[2]), pid=self.guarded.nats.pid
        )

    def _note_address(self) -> None:
        """Set the addresses in invites, and whether this home links to another."""
        doors = self.leaf.addresses(self.state.leaf_port)
        linking = self.leaf.remote is not None
        self.state = msgspec.structs.replace(
            self.state,
            address=doors[0].address,
            fingerprint=doors[0].fingerprint,
            doors=doors[1:],
            upstream=(self.state.upstream or "lost") if linking else "",
        )

    def _text(self) -> str:
        return render(self._settings(self.state.port, self.state.leaf_port))

    def _settings(self, port: int, leaf_port: int) -> ServerSettings:
        store_login = self._prepared.identity.store_login().public
        members, invites, operators, _ = self.guarded.access.admitted
        return ServerSettings(
            name=_name(store_login),
            port=port,
            ports=self._home.run,
            jetstream=self._home.jetstream,
            members=members,
            store_login=store_login,
            system_login=self.guarded.system_login.public,
            own=self._prepared.identity.node_id,
            peer_login=self._prepared.identity.peer_login().public,
            invites=invites,
            operators=operators,
            listener=self.leaf.listener(leaf_port) if self.leaf.listens else None,
            remote=self.leaf.remote,
        )

    async def _check(self) -> None:
        """Verify with real logins that the server follows the configuration; make the streams."""
        identity = self._prepared.identity
        bus = await NatsClient.connect(self.state.url, identity.login(), "up")
        await bus.close()
        system = await self.guarded.connect()
        await system.check_sync(self._home.server_config)
        # 0 where the door of this home listens in its place.
        leaf_port = await system.leaf_port() or self.leaf.door_port
        self.state = msgspec.structs.replace(self.state, leaf_port=leaf_port)
        self._note_address()
        store = await StoreLink.connect(self.state.url, identity.store_login(), "up")
        try:
            await streams.ensure(store.client.jetstream(), self._home.jetstream)
        finally:
            await store.close()
        await self._settle_restored()

    async def _settle_restored(self) -> None:
        """Have the logs of a home that was restored say so, before the services start."""
        if not self._home.restored.exists():
            return
        async with await Store.join(self._home, self.state.url, "up") as store:
            community = self._prepared.roster.community_id
            mark = await settle_restored(self._home, store, self._prepared.identity, community)
        if mark is not None:
            self._news(
                f"this home was restored from the backup of {rfc3339(mark.time)}; what it did after that is "
                "not known to it (docs/operations.md, Backups)"
            )


def _name(store_login: str) -> str:
    """Return a name known only to those who link to this server.

    An incoming link under the name of another one replaces that one; with a name derived from a node id, any
    member could cut another's link.
    """
    return f"hearthnet-{blake3.blake3(store_login.encode('ascii')).hexdigest(16)}"


async def _nothing() -> None:
    """Do nothing about a link."""
