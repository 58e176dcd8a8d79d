"""The NATS server of a node: started, verified, kept running, updated with the roster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import secrets
import time
from collections.abc import Callable
from typing import Final

import blake3
import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.node_state import ServerState
from hearthnet.core.times import now_ms
from hearthnet.nats.client import NatsClient
from hearthnet.nats.jetstream_client import StoreLink
from hearthnet.supervisor.nats import streams
from hearthnet.supervisor.nats.access_control import AccessControl, AllowedLogins, admitted_by
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.leaf_links import Leaf, LinkWatch, linked
from hearthnet.supervisor.nats.leaf_ports import LeafPorts
from hearthnet.supervisor.nats.nats_admin import NatsAdmin
from hearthnet.supervisor.nats.nats_process import NAME, NatsProcess
from hearthnet.supervisor.nats.server_config import ANY_PORT, BusLogin, ServerSettings, render
from hearthnet.supervisor.os.cancellation import heed_cancelling
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.supervisor.os.os_process import Backoff, exit_text
from hearthnet.trust.keys import Login

_NO_ROOM: Final = re.compile(rb"no space left|disk quota exceeded|critical write error", re.IGNORECASE)
LINK_LOOK_SECONDS: Final = 2.0
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
        self._nats = NatsProcess(log, prepared.home.log(NAME))
        # Made anew at every start and kept in memory only: no other process can command the server.
        self._system_login = Login(secrets.token_bytes(32))
        self._system: NatsAdmin | None = None
        self._leaf = Leaf(prepared)
        self._door = AccessControl(
            BusLogin(prepared.identity.node_id, prepared.identity.login().public),
            prepared.identity.peer_login().public,
            admitted_by(prepared.roster, now_ms(), operators),
            news,
        )
        self._changing = asyncio.Lock()
        self._unread = False
        """Whether the server may not have read its configuration as it is now."""
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
        self._leaf.prepare()
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
                in_use = self._nats.port_in_use()
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
            if self._nats.running:
                code = await self._nats.ended()
                _log.error("%s %s", NAME, exit_text(code, self._log_file.last_line()))
                self._news(f"{NAME} {exit_text(code, '')}; it is started again")
            await asyncio.sleep(backoff.wait(time.monotonic() - began))
            began = time.monotonic()
            try:
                await self._start(self.state.port, self.state.leaf_port)
            except HearthNetError as error:
                _log.error("%s", error.message)
            else:
                self._news(f"{NAME} is back at {self.state.url}")

    async def admit(self, allowed: AllowedLogins) -> None:
        """Allow only the logins of `allowed` from now on, and disconnect all others.

        Leaf links are disconnected too. Connections that stay allowed are not affected.

        Raises:
            HearthNetError: `internal_error` if the server refuses the configuration (the previous one stays);
                `partition` if it does not answer: then it uses the new one once it is back.
        """
        async with self._changing:
            before = self._door.admit(allowed)
            if self._nats.running and self._system is not None:
                try:
                    await self._reload(self._system)
                except HearthNetError as error:
                    if error.code != "partition":
                        self._door.admit(before)
                    raise
        await self.clear()

    async def clear(self) -> None:
        """Disconnect all connections that are not allowed, repeatedly until none is left."""
        if self._system is None or not self._nats.running:
            return
        shut = await self._door.unmask(self._system)
        while True:
            if shut:
                async with self._changing:
                    await self._reload(self._system)
            shut = await self._door.clear(self._system)
            if not shut:
                return

    async def guard(self) -> None:
        """Check every incoming leaf link at once; until cancelled."""
        arrived = asyncio.Event()
        if self._system is not None:
            await self._system.on_leaf_link(arrived.set)
        while True:
            heed_cancelling()
            await arrived.wait()
            arrived.clear()
            try:
                await self.clear()
            except HearthNetError as error:
                _log.error("%s", error.message)

    async def watch_link(self) -> None:
        """Report when the link to the upstream home is made and lost; until cancelled.

        A home without an upstream has nothing to watch.
        """
        if self._leaf.upstream is None or self._system is None:
            return
        watch = LinkWatch(self._leaf.upstream.address, self._log_file.tail)
        while True:
            heed_cancelling()
            # A server that does not answer is being started again, which is reported elsewhere.
            with contextlib.suppress(HearthNetError):
                if news := watch.look(await linked(self._system), time.monotonic()):
                    self.state = msgspec.structs.replace(self.state, upstream=watch.state)
                    self._news(news)
            await asyncio.sleep(LINK_LOOK_SECONDS)

    @property
    def met_full_disk(self) -> bool:
        """Return whether this server failed to write; it does not recover from that by itself."""
        return self._nats.running and self._log_file.alarmed

    async def stop(self, grace: float) -> None:
        """Stop the server, by force after `grace` seconds; a running `keep` starts it again."""
        await self._nats.stop(grace)

    async def close(self) -> None:
        """Close the connection to the server, before its end."""
        if self._system is not None:
            await self._system.close()

    def kill(self) -> None:
        """Kill the server at once."""
        self._nats.kill()

    async def _start(self, port: int, leaf_port: int) -> None:
        async with self._changing:
            text = render(self._settings(port, leaf_port))
            await self._nats.start(self._home.server_config, text, self._home.run)
            self._unread = False
            url = self._nats.url
            self.state = msgspec.structs.replace(
                self.state, url=url, port=int(url.rpartition(":")[2]), pid=self._nats.pid
            )

    async def _reload(self, system: NatsAdmin) -> None:
        path = self._home.server_config
        text = render(self._settings(self.state.port, self.state.leaf_port))
        with file_errors(path):
            before = path.read_bytes()
            if before == text.encode("utf-8") and not self._unread:
                return
            write_whole(path, text.encode("utf-8"))
        self._unread = True
        try:
            await system.reload()
        except HearthNetError as error:
            if error.code != "partition":
                with file_errors(path):
                    write_whole(path, before)
            raise
        self._unread = False

    def _settings(self, port: int, leaf_port: int) -> ServerSettings:
        store_login = self._prepared.identity.store_login().public
        members, invites, operators = self._door.admitted
        return ServerSettings(
            name=_name(store_login),
            port=port,
            ports=self._home.run,
            jetstream=self._home.jetstream,
            members=members,
            store_login=store_login,
            system_login=self._system_login.public,
            own=self._prepared.identity.node_id,
            peer_login=self._prepared.identity.peer_login().public,
            invites=invites,
            operators=operators,
            listener=self._leaf.listener(leaf_port),
            remote=self._leaf.remote,
        )

    async def _check(self) -> None:
        """Verify with real logins that the server follows the configuration; make the streams."""
        identity = self._prepared.identity
        bus = await NatsClient.connect(self.state.url, identity.login(), "up")
        await bus.close()
        self._system = await NatsAdmin.connect(self.state.url, self._system_login)
        await self._system.check_sync(self._home.server_config)
        leaf_port = await self._system.leaf_port()
        address, fingerprint = self._leaf.reachable(leaf_port)
        self.state = msgspec.structs.replace(
            self.state,
            leaf_port=leaf_port,
            address=address,
            fingerprint=fingerprint,
            upstream="" if self._leaf.upstream is None else "lost",
        )
        store = await StoreLink.connect(self.state.url, identity.store_login(), "up")
        try:
            await streams.ensure(store.client.jetstream(), self._home.jetstream)
        finally:
            await store.close()


def _name(store_login: str) -> str:
    """Return a name known only to those who link to this server.

    An incoming link under the name of another one replaces that one; with a name derived from a node id, any
    member could cut another's link.
    """
    return f"hearthnet-{blake3.blake3(store_login.encode('ascii')).hexdigest(16)}"
