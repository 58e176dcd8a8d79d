"""The work behind a stream: a call of the mesh, made under the client's token.

    stream      the provider's own frames
    unary call  `result` {output, meta}, then `done` {}

Calls with effects: effect_work.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hearthnet.bus.bus import Bus
from hearthnet.contracts import Contract
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.errors import as_hearthnet_error
from hearthnet.gateway.socket.channel import Channel
from hearthnet.gateway.socket.frames import Confirm, ToolResult

_log = logging.getLogger(__name__)
CANCELLED: Final = {"stop_reason": "cancelled"}


class BusWork:
    """One call of the mesh, put into a channel."""

    def __init__(self, channel: Channel, work: Callable[[Channel], Coroutine[Any, Any, None]]) -> None:
        self._channel = channel
        self.task = asyncio.create_task(self._run(work), name=f"stream {channel.stream}")
        # A callback, since a task that is cancelled before its first step would never end the stream.
        self.task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Stop the call at the provider."""
        self.task.cancel()

    async def heard(self, frame: ToolResult | Confirm) -> None:
        """Refuse an answer, since a plain call has no questions.

        Raises:
            HearthNetError: `bad_request` in any case.
        """
        raise HearthNetError("bad_request", "this call asks its client nothing")

    def left(self) -> None:
        """Do nothing: the provider continues, as far as the channel has room."""

    def back(self) -> None:
        """Do nothing: the channel has the frames that were put since."""

    async def close(self) -> None:
        """Stop the call at the provider, and wait for its end."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def _run(self, work: Callable[[Channel], Coroutine[Any, Any, None]]) -> None:
        try:
            await work(self._channel)
        except Exception as error:
            self._channel.put("error", as_hearthnet_error(error).to_body())

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._channel.put("done", dict(CANCELLED))


def streaming(
    bus: Bus, contract: Contract, body: dict[str, Any], token: str, timeout: float | None
) -> Callable[[Channel], Coroutine[Any, Any, None]]:
    """Return work that passes on a provider's stream, no faster than the channel takes it."""

    async def work(channel: Channel) -> None:
        async with bus.stream(contract.id, body, token=token, timeout_seconds=timeout) as stream:
            async for frame in stream:
                if channel.full:
                    await channel.room()
                channel.put(frame.event, frame.data)

    return work


def answering(
    bus: Bus, contract: Contract, body: dict[str, Any], token: str, timeout: float | None
) -> Callable[[Channel], Coroutine[Any, Any, None]]:
    """Return work that passes on the one answer of a provider."""

    async def work(channel: Channel) -> None:
        reply = await bus.call(contract.id, body, token=token, timeout_seconds=timeout)
        channel.put("result", {**reply.body, "provider": reply.provider})
        channel.put("done", {})

    return work
