"""The provider's side of a stream: keeps to the window and receives control frames.

See: docs/protocol/streams.md#window.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import steady_ms
from hearthnet.protocol.stream import WINDOW, Outgoing

_MOST_INPUTS: Final = 64
_MAX_INPUT_BYTES: Final = 512 * 1024
"""Maximum size of one input: a chunk of content in base64 has 350 KB. Those that wait have 32 MiB at most."""
_ACK: Final = msgspec.json.Decoder(dict[str, int])
_INPUT: Final = msgspec.json.Decoder(dict[str, Any])


class Publisher(Protocol):
    """A sender of the frames of one stream."""

    def frame(self, seq: int, event: str, data: dict[str, Any]) -> None:
        """Send one frame.

        Raises:
            HearthNetError: `payload_too_large` over the server's limit.
        """

    async def drain(self) -> None:
        """Wait while the server reads more slowly than this process sends."""


class Stream:
    """The stream to which a handler of a streaming capability sends its frames.

    For a unary call, frames are checked and dropped: its answer is the handler's `Reply`.
    """

    def __init__(self, contract: Contract, publisher: Publisher | None) -> None:
        self._contract = contract
        self._publisher = publisher
        self._outgoing = Outgoing(steady_ms())
        self._dropped = 0
        self._waiting: list[asyncio.Future[None]] = []
        """Handlers that wait for room in the window."""

    @cached_property
    def _inputs(self) -> asyncio.Queue[dict[str, Any]]:
        return asyncio.Queue(_MOST_INPUTS)

    @property
    def unary(self) -> bool:
        """True if the caller expects one reply and no frames."""
        return self._publisher is None

    async def send(self, event: str, data: dict[str, Any]) -> None:
        """Send one frame; wait while 16 are unacknowledged.

        Raises:
            ValueError: It does not fit the contract.
            HearthNetError: `payload_too_large` over the server's limit.
        """
        check_output(self._contract.check_frame, event, data)
        publisher = self._publisher
        if publisher is None:
            # Other tasks get a turn now and then, since no window pauses the handler of a unary call.
            self._dropped += 1
            if self._dropped % WINDOW == 0:
                await asyncio.sleep(0)
            return
        while not (self._outgoing.may_send or self._outgoing.ended):
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            await room
        self._emit(publisher, event, data)
        await publisher.drain()

    async def progress(self, stage: str, current: int, total: int) -> None:
        """Send the progress of the work."""
        await self.send("progress", {"stage": stage, "current": current, "total": total})

    async def receive(self) -> dict[str, Any]:
        """Return the caller's next input."""
        return await self._inputs.get()

    async def end(self, event: str, data: dict[str, Any]) -> None:
        """Send the terminal frame, to which no window applies."""
        if self._publisher is not None and not self._outgoing.ended:
            self._emit(self._publisher, event, data)
            self._wake()
            await self._publisher.drain()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for room in waiting:
            if not room.done():
                room.set_result(None)

    def _emit(self, publisher: Publisher, event: str, data: dict[str, Any]) -> None:
        """Send a frame under the next number, reused if the frame is too large or not JSON."""
        seq = self._outgoing.next_seq(event)
        try:
            publisher.frame(seq, event, data)
        except Exception:
            self._outgoing.unsent(seq)
            raise

    def on_ack(self, body: bytes) -> None:
        """Process an acknowledgement, which is also a sign of life."""
        self._outgoing.acknowledge(read_json(body, _ACK).get("upto", 0), steady_ms())
        self._wake()

    def on_input(self, body: bytes) -> None:
        """Queue an input for the handler.

        Raises:
            HearthNetError: `payload_too_large` over the limit; `capacity_exceeded` if too many earlier ones
                are unread.
        """
        self._outgoing.record_activity(steady_ms())
        if len(body) > _MAX_INPUT_BYTES:
            raise HearthNetError("payload_too_large", f"an input has {_MAX_INPUT_BYTES} bytes at most")
        data = read_json(body, _INPUT)
        try:
            self._inputs.put_nowait(data)
        except asyncio.QueueFull as error:
            raise HearthNetError("capacity_exceeded", "too much input waits for the handler") from error

    def lost_caller(self) -> bool:
        """Return whether the caller is lost."""
        return self._publisher is not None and self._outgoing.lost_caller(steady_ms())


def check_output(check: Callable[..., None], *sent: Any) -> None:
    """Check what a handler sends: a misfit is a defect of the service, not of the request.

    Raises:
        ValueError: It does not fit the contract.
    """
    try:
        check(*sent)
    except HearthNetError as error:
        raise ValueError(f"the answer does not fit its contract: {error.message}") from error
