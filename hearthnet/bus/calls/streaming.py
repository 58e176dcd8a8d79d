"""The caller's side of a stream: async iterator and context manager; leaving it cancels.

See: docs/protocol/streams.md#state-machines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from hearthnet.bus.calls.attempt import (
    ConnectionLost,
    NoResponders,
    ProviderGone,
    Request,
    deadline,
    encode_body,
    failure_code,
    left_ms,
    parse_body,
    send,
    send_control,
    send_control_nowait,
)
from hearthnet.bus.calls.candidates import Candidates, worth_waiting
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.routing_table import RoutingEntry
from hearthnet.bus.session import loopback
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.tracing import CANCELLED, code_of
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.timer_wheel import Timer
from hearthnet.core.times import steady_ms
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import Kind
from hearthnet.protocol.stream import KEEPALIVE_MS, TERMINAL, WINDOW, Incoming

_log = logging.getLogger(__name__)
_MOST_WAITING: Final = 2 * WINDOW
_ENCODER: Final = msgspec.json.Encoder()


class StreamFrame(msgspec.Struct, frozen=True):
    """One frame of a stream: its event, its data, its number from 1."""

    event: str
    data: dict[str, Any]
    seq: int


class StreamCall:
    """An open stream: iterate over it; the last frame is `done`, and an error raises.

    Raises:
        HearthNetError: `partition` if frames were lost or the provider is silent for 15 s; `timeout` at the
            deadline.
    """

    def __init__(self, peer: Session, request: Request, discovery: Discovery, timeout_seconds: float) -> None:
        self._peer = peer
        self._request = request
        self._discovery = discovery
        self._candidates = Candidates(peer, discovery, request)
        self._until = deadline(timeout_seconds)
        self._loop = asyncio.get_running_loop()
        self._came: deque[Frame | HearthNetError] = deque()
        self._readers: list[asyncio.Future[None]] = []
        """Readers that wait for the next item."""
        self._incoming = Incoming(steady_ms())
        self._over = self._spoken = self._acking = False
        self._consumed = 0
        self._view: OfferView | None = None
        self._listing: RoutingEntry | None = None
        self._asked_ms = self._first_ms = 0
        self._id = ""
        self._alarm: set[Timer] | None = None

    @property
    def provider(self) -> str:
        """The node that answers; empty before the stream is open."""
        return "" if self._view is None else self._view.node

    async def __aenter__(self) -> Self:
        self._trace = self._peer.traces.calling(self._request.contract.id, self._request.run)
        self._discovery.retries.earn()
        try:
            await self._open()
        except BaseException as error:
            self._ended(error)
            raise
        self._wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._alarm is not None:
            self._alarm.discard(self)
        self._ended(error)
        try:
            await self.cancel()
        except HearthNetError as broken:
            _log.info("not cancelled, the provider will notice: %s", broken)
        finally:
            self._peer.replies.forget(self._id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamFrame:
        while True:
            try:
                taken = self._take(await self._next())
                if self._peer.link.full:
                    await self._peer.link.room()
            except HearthNetError as error:
                self._incoming.ended = True
                asked = self._listing
                self._judge(failure_code(self._peer, error))
                if not self._may_move_on(asked, error):
                    raise
                await self._candidates.again(error, self._until)
                await self._open()
            else:
                # None is an event of a later minor version, which is skipped.
                if taken is not None:
                    return taken

    async def send_input(self, data: dict[str, Any]) -> None:
        """Send `data` to the running handler: a tool result, a decision, a chunk.

        Raises:
            HearthNetError: `bad_request` for text that is not Unicode; `payload_too_large` over the server's
                limit.
        """
        await self._control("input", encode_body(data))

    async def cancel(self) -> None:
        """Stop the work at the provider, unless it has ended already."""
        self._incoming.ended = True
        self._wake()
        if not self._over:
            self._over = True
            await self._control("cancel", b"{}")

    def on_frame(self, frame: Frame) -> None:
        """Process a frame of the stream, or a sign of life."""
        header = frame.header
        if self._view is None or header.sender != self._view.node or header.kind != "frame":
            return
        try:
            wanted = self._incoming.accept(header.seq, header.event, steady_ms())
        except HearthNetError as error:
            self._put(error)
            return
        if not wanted:
            return
        if len(self._came) >= _MOST_WAITING:
            self._give_up(
                HearthNetError(
                    "partition", "the provider ignores the window", details={"rule": "stream_broken"}
                )
            )
            return
        self._first_ms = self._first_ms or steady_ms()
        self._over = header.event in TERMINAL
        self._put(frame)

    def on_nobody(self, node: str) -> None:
        """Handle the report that the process is gone."""
        if self._view is not None and node == self._view.node:
            self._over = True
            gone = ProviderGone if self._spoken else NoResponders
            self._give_up(gone(self._view.node))

    def on_lost(self) -> None:
        """Handle the loss of the connection, and maybe of frames, unless the provider is inside."""
        view = self._view
        if view is None or loopback.local_provider(self._peer, view.node, view.offer.instance) is None:
            self._give_up(ConnectionLost())

    def _give_up(self, error: HearthNetError) -> None:
        """End the stream on this side with `error`, after the frames received before, once."""
        if not self._incoming.ended:
            self._incoming.ended = True
            self._put(error)

    def _put(self, item: Frame | HearthNetError) -> None:
        self._came.append(item)
        self._wake()

    def _wake(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)

    def _ended(self, error: BaseException | None) -> None:
        """End the trace with the raised error, or as cancelled if the stream was left early."""
        self._judge("" if self._first_ms else None)
        trace = self._trace
        trace.frames = self._consumed
        if error is not None:
            trace.code = code_of(error)
        elif not self._over:
            trace.code = CANCELLED
        self._peer.traces.end(trace)

    def _judge(self, code: str | None) -> None:
        """Record in the provider's health the time to its first frame, and the end.

        A stream that is left early counts as a success if frames had arrived.
        """
        listing, self._listing = self._listing, None
        if listing is not None:
            now = steady_ms()
            self._discovery.registry.end(listing, code, (self._first_ms or now) - self._asked_ms, now)

    async def _open(self) -> None:
        self._peer.replies.forget(self._id)
        listing = await self._candidates.next_in_time(self._until)
        self._discovery.registry.begin(listing)
        self._listing, self._view = listing, listing.view
        self._asked_ms, self._first_ms = steady_ms(), 0
        self._id = ids.new_ulid()
        self._came.clear()
        self._incoming = Incoming(steady_ms())
        self._over = self._spoken = False
        self._consumed = 0
        self._peer.replies.expect(self._id, self)
        try:
            left = left_ms(self._request, self._until)
            await send(self._peer, self._request, self._view, "open", self._id, left, self._trace)
        except BaseException as error:
            self._incoming.ended = self._over = True
            self._peer.replies.forget(self._id)
            self._judge(failure_code(self._peer, error) if isinstance(error, HearthNetError) else None)
            raise

    async def _next(self) -> Frame:
        """Return the next frame.

        Raises:
            HearthNetError: The error that ended the stream.
            StopAsyncIteration: The stream is over.
        """
        while not self._came:
            if self._incoming.ended:
                raise StopAsyncIteration
            reader = self._loop.create_future()
            self._readers.append(reader)
            await reader
        item = self._came.popleft()
        if isinstance(item, HearthNetError):
            raise item
        return item

    def _take(self, frame: Frame) -> StreamFrame | None:
        """Return the frame; None for an event that the contract does not know here."""
        self._trace.bytes_in += len(frame.body)
        data = parse_body(frame)
        header, event = frame.header, frame.header.event
        known = self._request.contract.has_event(event)
        if known:
            self._check(event, data)
        self._consumed = header.seq
        if event == "done":
            self._judge("")
        if self._incoming.ack_due(self._consumed) and not self._acking:
            # One acknowledgement for all frames read in this turn of the loop: often the whole window.
            self._acking = True
            self._peer.link.at_end_of_turn(self._acknowledge_turn)
        return StreamFrame(event, data, header.seq) if known else None

    def _check(self, event: str, data: dict[str, Any]) -> None:
        """Check that a frame fits its contract; otherwise the provider is at fault."""
        try:
            self._request.contract.check_frame(event, data)
        except HearthNetError as error:
            raise HearthNetError(
                "internal_error", f"a frame of {ids.short_id(self.provider)} does not fit: {error.message}"
            ) from error

    def _may_move_on(self, asked: RoutingEntry | None, error: HearthNetError) -> bool:
        """Return whether the stream may go to the next process.

        It may before its first frame, if the process provably did nothing.
        """
        self._candidates.forget_gone(asked, error)
        if self._consumed:
            return False
        if self._candidates.clock_corrected(asked, error):
            return True
        contract = self._request.contract
        harmless = contract.idempotent != "no" and not contract.side_effects
        gone = isinstance(error, NoResponders) or (isinstance(error, ProviderGone) and harmless)
        if gone or error.code in ("capacity_exceeded", "rate_limited"):
            return worth_waiting(error) and self._candidates.mark(asked, error)
        return False

    def due(self) -> None:
        """Send and check signs of life while the stream is open; end it at its deadline."""
        if self._loop.time() >= self._until:
            late = f"{self._request.contract.id} did not finish in time"
            self._give_up(HearthNetError("timeout", late))
        elif self._incoming.lost_provider(steady_ms()):
            self._give_up(
                HearthNetError(
                    "partition",
                    f"{ids.short_id(self.provider)} has gone silent",
                    details={"rule": "provider_silent"},
                )
            )
        elif not self._incoming.ended:
            try:
                self._acknowledge()
            except HearthNetError as error:
                self._give_up(error)
        self._wait()

    def _wait(self) -> None:
        """Schedule the next call of `due`."""
        soon = self._loop.time() + KEEPALIVE_MS / 1000
        if self._loop.time() < self._until:
            soon = min(soon, self._until)
        self._alarm = self._peer.alarms.at(soon, self)

    def _acknowledge_turn(self) -> None:
        """Acknowledge the frames read in this turn."""
        self._acking = False
        if not self._over:
            try:
                self._acknowledge()
            except HearthNetError as error:
                self._give_up(error)

    def _acknowledge(self) -> None:
        """Acknowledge the frames read so far, as a sign of life also to the next provider."""
        if self._view is not None:
            self._spoken = True
            send_control_nowait(
                self._peer, self._view, self._id, "ack", _ENCODER.encode({"upto": self._consumed})
            )

    async def _control(self, kind: Kind, body: bytes) -> None:
        if self._view is not None:
            self._spoken = True
            await send_control(self._peer, self._view, self._id, kind, body)
