"""The connection to JetStream, by the NATS library, and beside it the one for many messages at once.

The one for frames is nats/client.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.nats.batch_client import BatchClient
from hearthnet.nats.client import connect_error, connection_lost
from hearthnet.trust.keys import Login

if TYPE_CHECKING:
    from nats.aio.client import Client

_log = logging.getLogger(__name__)
CONNECT_SECONDS: Final = 10
RECONNECT_SECONDS: Final = 1
CLOSE_SECONDS: Final = 1.5
_AGAIN: Final = 3


class _ClosedOnTheWay(Unavailable):
    """Raised when the server closed the connection before it accepted or refused the login."""


class StoreLink:
    """A connection that reconnects automatically, to an account with JetStream."""

    def __init__(self, client: Client, join_batches: Callable[[], Awaitable[BatchClient]]) -> None:
        self.client = client
        """The library's own client, for JetStream only (`bus/store.py`)."""
        self._join_batches = join_batches
        self._batches: BatchClient | None = None
        self._joining = asyncio.Lock()
        self._connected = asyncio.Event()
        self._connected.set()
        self._back: list[Callable[[], Awaitable[None]]] = []
        self._lost: list[Callable[[], None]] = []

    @classmethod
    async def connect(cls, url: str, login: Login, name: str) -> StoreLink:
        """Connect to `url`.

        A server that reloads its configuration closes connections that are being made: these are made again.

        Raises:
            HearthNetError: `partition` with the address if no server answers; `unauthorized` if the login is
                refused.
        """
        for _ in range(_AGAIN):
            with contextlib.suppress(_ClosedOnTheWay):
                return await cls._attempt(url, login, name)
        return await cls._attempt(url, login, name)

    @classmethod
    async def _attempt(cls, url: str, login: Login, name: str) -> StoreLink:
        from nats import errors
        from nats.aio.client import Client

        client = Client()
        link = cls(client, lambda: BatchClient.join(url, login, name))
        try:
            await asyncio.wait_for(
                client.connect(
                    url,
                    name=name,
                    nkeys_seed_str=login.seed.decode("ascii"),
                    connect_timeout=CONNECT_SECONDS,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    error_cb=link._on_error,
                    disconnected_cb=link._on_lost,
                    reconnected_cb=link._on_back,
                    closed_cb=link._on_closed,
                ),
                CONNECT_SECONDS,
            )
            # The library reports a connection as made even if it ends before the server's answer.
            await client.flush(CONNECT_SECONDS)
        except (OSError, TimeoutError, ValueError, errors.Error) as error:  # ValueError: not text or JSON
            with contextlib.suppress(Exception):
                await client.close()
            refused = connect_error(url, error)
            cut = (ConnectionResetError, errors.ConnectionClosedError, errors.UnexpectedEOF)
            if isinstance(error, cut) and isinstance(refused, Unavailable):
                raise _ClosedOnTheWay(refused.message, details=refused.details) from error
            raise refused from error
        # Reconnect only after a first success; a first refusal is final and raised at once.
        client.options |= {
            "allow_reconnect": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_SECONDS,
        }
        return link

    def on_restored(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call `callback` whenever the connection is restored, with its subscriptions."""
        self._back.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the connection breaks, so that pending requests have no answer."""
        self._lost.append(callback)

    async def connected(self) -> None:
        """Wait for the connection.

        Raises:
            HearthNetError: `partition` if it was closed for good.
        """
        await self._connected.wait()
        if self.client.is_closed:
            raise connection_lost("the connection to the server was closed")

    async def batches(self) -> BatchClient:
        """Return the connection for many messages at once, which is made when it is first needed.

        Raises:
            HearthNetError: As `connect`; `partition` if the link is closed.
        """
        async with self._joining:
            if self.client.is_closed:
                raise connection_lost("the connection to the server was closed")
            if self._batches is None:
                self._batches = await self._join_batches()
        return self._batches

    async def subscribe(self, subject: str, wake: Callable[[], None]) -> None:
        """Call `wake` for every message on `subject`, and whenever the connection is restored.

        Not for those that this process appends in a batch.

        Raises:
            HearthNetError: As `batches`.
        """

        async def back() -> None:
            wake()

        client = await self.batches()
        await client.subscribe(subject, lambda subject, data, absent: wake())
        client.on_restored(back)
        await client.flush_subscriptions()

    async def close(self) -> None:
        """Send waiting data and close; wait for a reconnection, whose socket would leak otherwise."""
        from nats import errors

        async with self._joining:
            if self._batches is not None:
                await self._batches.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connected.wait()
        with contextlib.suppress(errors.Error, TimeoutError):
            await self.client.flush(timeout=1)
        # The library closes its socket twice, which raises after a reset by the server.
        with contextlib.suppress(OSError):
            await self.client.close()

    async def _on_error(self, error: Exception) -> None:
        _log.warning("nats: %s: %s", type(error).__name__, error)

    async def _on_lost(self) -> None:
        self._connected.clear()
        for callback in self._lost:
            callback()

    async def _on_closed(self) -> None:
        self._connected.set()

    async def _on_back(self) -> None:
        self._connected.set()
        for callback in self._back:
            try:
                await callback()
            except HearthNetError as error:
                _log.warning("after the connection came back: %s", error)
