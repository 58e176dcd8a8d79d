"""A nats-server that admits the logins of the roster, and disconnects all others.

The server of a home and that of its door are both of this kind.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.supervisor.nats.access_control import AccessControl, ServerRoster
from hearthnet.supervisor.nats.nats_admin import NatsAdmin
from hearthnet.supervisor.nats.nats_process import NatsProcess
from hearthnet.supervisor.nats.silent_peers import silent_peers
from hearthnet.supervisor.os.cancellation import heed_cancelling
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.trust.keys import Login

_LOOK_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)


class GuardedServer:
    """The process `nats` with the configuration file `config`, whose text `text` returns.

    It writes its ports to the folder `ports`; `access` has the logins that are admitted.
    """

    def __init__(
        self, nats: NatsProcess, config: Path, ports: Path, access: AccessControl, text: Callable[[], str]
    ) -> None:
        self.nats = nats
        self.system: NatsAdmin | None = None
        # Made anew at every start and kept in memory only: no other process can command the server.
        self.system_login = Login(secrets.token_bytes(32))
        self.access = access
        self._config = config
        self._ports = ports
        self._text = text
        self._changing = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._unread = False
        """Whether the server may not have read its configuration as it is now."""

    async def start(self, text: str) -> None:
        """Start the process with the configuration `text`. Raises as `NatsProcess.start`."""
        async with self._changing:
            await self.nats.start(self._config, text, self._ports)
            self._unread = False

    async def connect(self) -> NatsAdmin:
        """Return the connection to the system account, which is restored by itself after a restart."""
        if self.system is None:
            self.system = await NatsAdmin.connect(self.nats.url, self.system_login)
            await self.system.on_leaf_link(self._arrived.set)
        return self.system

    async def admit(self, roster: ServerRoster) -> None:
        """Admit only the logins of `roster` from now on, and disconnect all others.

        Their leaf links are disconnected too. Connections that stay allowed are not affected.

        Raises:
            HearthNetError: `internal_error` if the server refuses the configuration (the previous one stays);
                `partition` if it does not answer: then it uses the new one once it is back.
        """
        async with self._changing:
            before = self.access.admit(roster)
            if self.nats.running and self.system is not None:
                try:
                    await self._reload(self.system)
                except HearthNetError as error:
                    if error.code != "partition":
                        self.access.admit(before)
                    raise
        await self.clear()

    async def refresh(self) -> None:
        """Have the server read its configuration where something other than the roster changed it.

        Raises as `admit`.
        """
        async with self._changing:
            if self.nats.running and self.system is not None:
                await self._reload(self.system)

    async def clear(self) -> None:
        """Disconnect all connections that are not allowed, repeatedly until none is left."""
        if self.system is None or not self.nats.running:
            return
        shut = await self.access.unmask(self.system)
        while True:
            if shut:
                async with self._changing:
                    await self._reload(self.system)
            shut = await self.access.clear(self.system)
            if not shut:
                return

    async def guard(self) -> None:
        """Check every incoming leaf link at once; until cancelled."""
        while True:
            heed_cancelling()
            await self._arrived.wait()
            self._arrived.clear()
            try:
                await self.clear()
            except HearthNetError as error:
                _log.error("%s", error.message)

    async def end_silent_links(self) -> None:
        """Close links whose other end acknowledges nothing any more; until cancelled.

        Calls over them end then. The server's own pings notice the same after 12 to 20 s.
        """
        while True:
            heed_cancelling()
            await asyncio.sleep(_LOOK_SECONDS)
            silent = silent_peers()
            if not silent or self.system is None or not self.nats.running:
                continue
            try:
                for link in await self.system.links_to(silent):
                    _log.warning("a link is closed, since its other end has acknowledged nothing for seconds")
                    await self.system.kick(link)
            except HearthNetError as error:
                _log.error("%s", error.message)

    async def close(self) -> None:
        """Close the connection to the system account, before the end of the server."""
        if self.system is not None:
            await self.system.close()

    async def _reload(self, system: NatsAdmin) -> None:
        path, text = self._config, self._text()
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
