"""A bus connection of two: one for the frames of this node, one for those of other nodes.

Whatever other nodes send waits in the server, the socket and the parser in the order of its arrival. With a
connection of its own it delays a frame of this node by a turn of the event loop at most.

See: docs/protocol/subjects.md#logins, docs/decisions/0200.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.nats.client import Handler, NatsClient
from hearthnet.trust.keys import Identity

_log = logging.getLogger(__name__)
_DIRECTED: Final = ("hn.call.", "hn.ctl.", "hn.rep.")


class SplitClient(NatsClient):
    """The connection for this node, with `others`, which carries everything from and to other nodes.

    The loss of either counts as the loss of both.
    """

    def __init__(self, others: NatsClient, url: str, identity: Identity, name: str) -> None:
        super().__init__(url, identity.login(), name, inbox_of(identity))
        self._others = others
        self._token = identity.token
        self._inside = f".{identity.token}.{identity.token}."
        others._closed = self._closed  # a refused login ends both

    @classmethod
    async def join(cls, url: str, identity: Identity, name: str) -> NatsClient:
        """Connect to this node's server; with one connection if it does not know the second login.

        Raises:
            HearthNetError: As `connect`.
        """
        try:
            others = await NatsClient.connect(url, identity.peer_login(), name)
        except HearthNetError as error:
            if error.code != "unauthorized":
                raise
            # The server was started by an earlier version.
            _log.warning("frames of other nodes share this node's connection: %s", error)
            return await NatsClient.connect(url, identity.login(), name, inbox=inbox_of(identity))
        link = cls(others, url, identity, name)
        try:
            await link.open()
        except BaseException:
            await others.close()
            raise
        return link

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever one of the connections ends."""
        super().on_lost(callback)
        self._others.on_lost(callback)

    def on_restored(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call `callback` whenever both connections are there again."""

        async def restored() -> None:
            if self.is_connected:
                await callback()

        super().on_restored(restored)
        self._others.on_restored(restored)

    @property
    def is_connected(self) -> bool:
        """True if both connections are there now."""
        return self._connection is not None and self._others._connection is not None

    @property
    def is_settling(self) -> bool:
        """True if one of the connections was restored recently."""
        return super().is_settling or self._others.is_settling

    @property
    def is_congested(self) -> bool:
        """True if the server reads one of the connections more slowly than this process sends."""
        own, others = self._connection, self._others._connection
        return (own is not None and own.is_congested) or (others is not None and others.is_congested)

    async def connected(self) -> None:
        """Wait for both connections.

        Raises:
            HearthNetError: As `NatsClient.connected`.
        """
        await self._others.connected()
        await super().connected()

    async def drain(self) -> None:
        """Wait until the server has read more of both."""
        await super().drain()
        await self._others.drain()

    def flush(self) -> None:
        """Hand sent data to the sockets at once."""
        super().flush()
        self._others.flush()

    def send(self, subject: str, data: bytes, reply: str = "") -> None:
        """Send on the connection that the subject belongs to.

        Raises:
            HearthNetError: As `NatsClient.send`.
        """
        if subject.startswith(_DIRECTED) and self._inside not in subject:
            self._others.send(subject, data, reply)
        else:
            super().send(subject, data, reply)

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """Call `handler` for every message on `subject`, in order for each of its senders.

        Raises:
            HearthNetError: As `NatsClient.subscribe`.
        """
        own = self._of_own(subject)
        if own != subject:
            # The server leaves this node's out there: the login of that connection is denied them.
            await self._others.subscribe(subject, handler)
        await super().subscribe(own, handler)

    def unsubscribe(self, subject: str) -> None:
        """End a subscription of `subscribe`."""
        own = self._of_own(subject)
        if own != subject:
            self._others.unsubscribe(subject)
        super().unsubscribe(own)

    async def flush_subscriptions(self) -> None:
        """Make a round trip on both connections.

        Raises:
            HearthNetError: As `NatsClient.flush_subscriptions`.
        """
        await self._others.flush_subscriptions()
        await super().flush_subscriptions()

    def _end(self) -> None:
        super()._end()
        self._others._connected.set()  # so that `connected` does not wait for it

    async def close(self) -> None:
        """Send the waiting data and close both."""
        await super().close()
        await self._others.close()

    def _run_at_loop_end(self) -> None:
        super()._run_at_loop_end()
        self._others.flush()

    def _of_own(self, subject: str) -> str:
        """Return the part of a subject of frames whose sender is this node."""
        return subject.replace("*", self._token, 1) if subject.startswith("hn.") else subject


def inbox_of(identity: Identity) -> str:
    """Return the subjects on which a node's requests to its server are answered."""
    return f"_INBOX.{identity.token}"
