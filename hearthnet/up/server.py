"""The NATS server of a node: started, proved to be what the configuration says, kept running, and made to
follow the roster while it runs.
"""

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

from hearthnet.bus.link import Link
from hearthnet.bus.store_link import StoreLink
from hearthnet.errors import HearthNetError
from hearthnet.node_state import ServerState
from hearthnet.times import now_ms
from hearthnet.trust.keys import Login
from hearthnet.up import streams
from hearthnet.up.backoff import Backoff
from hearthnet.up.door import Admitted, Door, admitted_by
from hearthnet.up.ending import heed_cancelling
from hearthnet.up.files import file_errors, write_whole
from hearthnet.up.first_run import Prepared
from hearthnet.up.leaf import Leaf, linked
from hearthnet.up.leaf_ports import LeafPorts
from hearthnet.up.link_watch import LinkWatch
from hearthnet.up.log_file import LogFile
from hearthnet.up.nats_process import NAME, NatsProcess
from hearthnet.up.process import ending
from hearthnet.up.server_config import ANY_PORT, BusLogin, ServerSettings, render
from hearthnet.up.system import System

_NO_ROOM: Final = re.compile(rb"no space left|disk quota exceeded|critical write error", re.IGNORECASE)
LINK_LOOK_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


class Server:
    """One nats-server. `news` takes a line whenever it has ended, is back, or somebody has to know of it."""

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
        # Ours alone, made anew at every start and kept in memory: nobody else asks or commands the server.
        self._system_login = Login(secrets.token_bytes(32))
        self._system: System | None = None
        self._leaf = Leaf(prepared)
        self._door = Door(
            BusLogin(prepared.identity.node_id, prepared.identity.login().public),
            admitted_by(prepared.roster, now_ms(), operators),
            news,
        )
        self._changing = asyncio.Lock()
        self.state = ServerState("", 0, 0)

    async def start(self) -> None:
        """Starts the server on the ports of the settings, or on others where those are taken; checks it.

        Clients read the port of this run. Other homes know theirs for good: that one is the same at every
        start (leaf_ports.py).

        Raises `capacity_exceeded` where the disk is too full for JetStream, `bad_request` for settings that
        cannot work, such as a port for other homes that is taken, and `internal_error` with the server's own
        words where it does not start or does not do as the configuration says.
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
        """Starts the server at the first of `ports` that is free, for clients at `port` or a free one."""
        candidates = list(ports.candidates)
        while True:
            try:
                return await self._start(port, candidates[0])
            except HearthNetError as error:
                taken = self._nats.taken()
                if taken == "leaf" and candidates[1:]:
                    candidates.pop(0)
                elif taken == "leaf" and ports.is_fixed:
                    raise ports.error_taken() from error
                elif taken == "client" and port != ANY_PORT:
                    port = ANY_PORT
                else:
                    raise

    async def keep(self) -> None:
        """Starts the server again, on the same ports, whenever it ends; until cancelled."""
        backoff = Backoff(random.random)
        began = time.monotonic()
        while True:
            heed_cancelling()
            if self._nats.running:
                code = await self._nats.ended()
                _log.error("%s %s", NAME, ending(code, self._log_file.last_line()))
                self._news(f"{NAME} {ending(code, '')}; it is started again")
            await asyncio.sleep(backoff.wait(time.monotonic() - began))
            began = time.monotonic()
            try:
                await self._start(self.state.port, self.state.leaf_port)
            except HearthNetError as error:
                _log.error("%s", error.message)
            else:
                self._news(f"{NAME} is back at {self.state.url}")

    async def admit(self, wanted: Admitted) -> None:
        """From now on those of `wanted` may log in, and nobody else: whoever was let in before and is not
        among them is disconnected, leaf links included. All others notice nothing.

        Raises `internal_error` where the server refuses the configuration (the one before stays), and
        `partition` where it does not answer: then it takes the new one once it is back.
        """
        async with self._changing:
            before = self._door.admit(wanted)
            if self._nats.running and self._system is not None:
                try:
                    await self._reload(self._system)
                except HearthNetError as error:
                    if error.code != "partition":
                        self._door.admit(before)
                    raise
        await self.clear()

    async def clear(self) -> None:
        """Disconnects who may not be here, again and again until nobody is left of them."""
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
        """Looks at every leaf link that comes in, at once; until cancelled."""
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
        """Tells when the link to the home that took this one in is there, and when it is lost; until
        cancelled. There is nothing to watch in a home of its own.
        """
        if self._leaf.upstream is None or self._system is None:
            return
        watch = LinkWatch(self._leaf.upstream.address, self._log_file.tail)
        while True:
            heed_cancelling()
            # Where the server does not answer it is being started again, and that is told already.
            with contextlib.suppress(HearthNetError):
                if news := watch.look(await linked(self._system), time.monotonic()):
                    self.state = msgspec.structs.replace(self.state, upstream=watch.state)
                    self._news(news)
            await asyncio.sleep(LINK_LOOK_SECONDS)

    @property
    def met_full_disk(self) -> bool:
        """Whether this server could not write something. It does not get over that, even with room again."""
        return self._nats.running and self._log_file.alarmed

    async def stop(self, grace: float) -> None:
        """Ends the server, by force after `grace` seconds; where `keep` still runs, that starts it again."""
        await self._nats.stop(grace)

    async def close(self) -> None:
        """Lets go of the connection to the server, before its end."""
        if self._system is not None:
            await self._system.close()

    def kill(self) -> None:
        """Ends the server at once."""
        self._nats.kill()

    async def _start(self, port: int, leaf_port: int) -> None:
        async with self._changing:
            text = render(self._settings(port, leaf_port))
            await self._nats.start(self._home.server_config, text, self._home.run)
            url = self._nats.url
            self.state = msgspec.structs.replace(
                self.state, url=url, port=int(url.rpartition(":")[2]), pid=self._nats.pid
            )

    async def _reload(self, system: System) -> None:
        path = self._home.server_config
        text = render(self._settings(self.state.port, self.state.leaf_port))
        with file_errors(path):
            before = path.read_bytes()
            if before == text.encode("utf-8"):
                return
            write_whole(path, text.encode("utf-8"))
        try:
            await system.reload()
        except HearthNetError as error:
            if error.code != "partition":
                with file_errors(path):
                    write_whole(path, before)
            raise

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
            invites=invites,
            operators=operators,
            listener=self._leaf.listener(leaf_port),
            remote=self._leaf.remote,
        )

    async def _check(self) -> None:
        """Proves with real logins that the server does as configured, and makes what JetStream holds."""
        identity = self._prepared.identity
        bus = await Link.connect(self.state.url, identity.login(), "up")
        await bus.close()
        self._system = await System.connect(self.state.url, self._system_login)
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
    """A name that only those learn who link to this server: a link that comes in under the name of another
    replaces that, so that a name which follows from a node id would let any member cut another's link.
    """
    return f"hearthnet-{blake3.blake3(store_login.encode('ascii')).hexdigest(16)}"
