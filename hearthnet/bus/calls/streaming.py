"""The caller's side of a stream: async iterator and context manager; leaving it cancels.

See: docs/protocol/streams.md#state-machines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Final, Self

import msgspec

from hearthnet.bus.calls.attempt import (
    ConnectionLost,
    NoResponders,
    ProviderGone,
    Request,
    encode_body,
    failure_code,
    parse_body,
    send_control,
    send_control_nowait,
    send_request,
)
from hearthnet.bus.calls.candidates import Candidates, is_wait_short
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.routing_table import RoutingEntry
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.tracing import CANCELLED, code_of
from hearthnet.core import ids
from hearthnet.core.errors import SHARING_RULES, HearthNetError, Unavailable
from hearthnet.core.timer_wheel import Timer
from hearthnet.core.times import steady_ms
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import Kind
from hearthnet.protocol.stream import KEEPALIVE_MS, TERMINAL, WINDOW, Incoming

_log = logging.getLogger(__name__)
_MAX_UNREAD: Final = 2 * WINDOW
_ENCODER: Final = msgspec.json.Encoder()


class StreamFrame(msgspec.Struct, frozen=True):
    """One frame of a stream: its event, its data, its number from 1.

    `signed_by` and `entry` are the node and the call of a frame that the provider has signed, else empty.
    """

    event: str
    data: dict[str, Any]
    seq: int
    signed_by: str = ""
    entry: str = ""


class StreamCall:
    """An open stream: iterate over it; the last frame is `done`, and an error raises.

    Raises:
        HearthNetError: `partition` if frames were lost or the provider is silent for 15 s; `timeout` at the
            deadline.
    """

    def __init__(self, session: Session, discovery: Discovery, request: Request) -> None:
        self._session = session
        self._request = request
        self._discovery = discovery
        self._candidates = Candidates(session, discovery, request)
        self._until = request.deadline()
        self._loop = asyncio.get_running_loop()
        self._received: deque[Frame | HearthNetError] = deque()
        self._readers: list[asyncio.Future[None]] = []
        """Readers that wait for the next item."""
        self._incoming = Incoming(steady_ms())
        self._is_over = self._has_sent = self._acking = self._is_counted = False
        self._consumed = 0
        self._view: OfferView | None = None
        self._entry: RoutingEntry | None = None
        self._opened_ms = self._first_ms = 0
        self._id = ""
        self._timers: set[Timer] | None = None

    @property
    def provider(self) -> str:
        """The node that answers; empty before the stream is open."""
        return "" if self._view is None else self._view.node

    async def __aenter__(self) -> Self:
        self._trace = self._session.traces.calling(self._request.contract.id, self._request.run)
        self._discovery.retries.earn()
        try:
            await self._open()
        except BaseException as error:
            self._end_trace(error)
            raise
        self._wait()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._timers is not None:
            self._timers.discard(self)
        self._end_trace(error)
        try:
            await self.cancel()
        except HearthNetError as broken:
            _log.info("not cancelled, the provider will notice: %s", broken)
        finally:
            self._session.replies.forget(self._id)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamFrame:
        while True:
            try:
                frame = self._read(await self._next())
                if self._session.link.is_congested:
                    await self._session.link.drain()
            except HearthNetError as error:
                self._incoming.ended = True
                entry = self._entry
                self._record_health(failure_code(self._session, error))
                if not self._may_retry(entry, error):
                    raise
                await self._candidates.backoff(error, self._until)
                await self._open()
            else:
                # None is an event of a later minor version, which is skipped.
                if frame is not None:
                    return frame

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
        if not self._is_over:
            self._is_over = True
            await self._control("cancel", b"{}")

    def on_frame(self, frame: Frame) -> bool:
        """Process a frame of the stream, or a sign of life."""
        header = frame.header
        if self._view is None or header.sender != self._view.node or header.kind != "frame":
            return False
        try:
            is_new = self._incoming.accept(header.seq, header.event, steady_ms())
        except HearthNetError as error:
            self._put(error)
            return False
        if not is_new:
            return False
        if len(self._received) >= _MAX_UNREAD:
            self._give_up(Unavailable("the provider ignores the window", rule="stream_broken"))
            return False
        self._first_ms = self._first_ms or steady_ms()
        self._is_over = header.event in TERMINAL
        self._put(frame)
        return True

    def on_no_responders(self, node: str) -> None:
        """Handle the report that the process is gone."""
        if self._view is not None and node == self._view.node:
            self._is_over = True
            gone = ProviderGone if self._has_sent else NoResponders
            self._give_up(gone(self._view.node))

    def on_lost(self) -> None:
        """Handle the loss of the connection, and maybe of frames, unless the provider is inside."""
        view = self._view
        if view is None or not self._session.sender.is_local(view.node, view.offer.instance):
            self._give_up(ConnectionLost())

    def _give_up(self, error: HearthNetError) -> None:
        """End the stream on this side with `error`, after the frames received before, once."""
        if not self._incoming.ended:
            self._incoming.ended = True
            self._put(error)

    def _put(self, item: Frame | HearthNetError) -> None:
        self._received.append(item)
        self._wake()

    def _wake(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)

    def _end_trace(self, error: BaseException | None) -> None:
        """End the trace with the raised error, or as cancelled if the stream was left early."""
        self._record_health("" if self._first_ms else None)
        self._count_use({})
        trace = self._trace
        trace.frames = self._consumed
        if error is not None:
            trace.code = code_of(error)
        elif not self._is_over:
            trace.code = CANCELLED
        self._session.traces.end(trace)

    def _record_health(self, code: str | None) -> None:
        """Record in the provider's health the time to its first frame, and the end.

        A stream that is left early counts as a success if frames had arrived.
        """
        entry, self._entry = self._entry, None
        if entry is not None:
            now = steady_ms()
            took_ms = (self._first_ms or now) - self._opened_ms
            self._discovery.registry.call_finished(entry, code, took_ms, now)

    def _count_use(self, meta: dict[str, Any]) -> None:
        """Count the call, with what the last frame says of it, unless it is counted."""
        if self._consumed and not self._is_counted:
            self._is_counted = True
            took_ms = steady_ms() - self._opened_ms
            self._session.usage.used(self.provider, self._request.contract.id, took_ms, meta)

    async def _open(self) -> None:
        self._session.replies.forget(self._id)
        entry = await self._candidates.pick_patiently(self._until)
        self._discovery.registry.call_started(entry)
        self._entry, self._view = entry, entry.view
        self._opened_ms, self._first_ms = steady_ms(), 0
        self._id = ids.new_ulid()
        self._received.clear()
        self._incoming = Incoming(steady_ms())
        self._is_over = self._has_sent = False
        self._consumed = 0
        self._session.replies.expect(self._id, self)
        try:
            send_request(
                self._session,
                self._request,
                entry.view,
                "open",
                self._id,
                self._until,
                self._trace,
                waits=self._candidates.waits,
            )
            if self._session.link.is_congested:
                await self._session.link.drain()
        except BaseException as error:
            self._incoming.ended = self._is_over = True
            self._session.replies.forget(self._id)
            self._record_health(
                failure_code(self._session, error) if isinstance(error, HearthNetError) else None
            )
            raise

    async def _next(self) -> Frame:
        """Return the next frame.

        Raises:
            HearthNetError: The error that ended the stream.
            StopAsyncIteration: The stream is over.
        """
        while not self._received:
            if self._incoming.ended:
                raise StopAsyncIteration
            reader = self._loop.create_future()
            self._readers.append(reader)
            await reader
        item = self._received.popleft()
        if isinstance(item, HearthNetError):
            raise item
        return item

    def _read(self, frame: Frame) -> StreamFrame | None:
        """Return the frame; None for an event that the contract does not know here."""
        self._trace.bytes_in += len(frame.body)
        data = parse_body(frame)
        header, event = frame.header, frame.header.event
        is_known = self._request.contract.has_event(event)
        if is_known:
            self._check(event, data)
        self._consumed = header.seq
        if event == "done":
            self._count_use(data)
            self._record_health("")
        if self._incoming.ack_due(self._consumed) and not self._acking:
            # One acknowledgement for all frames read in this turn of the loop: often the whole window.
            self._acking = True
            self._session.link.on_loop_end(self._acknowledge_turn)
        record = ("", "") if frame.evidence is None else (header.sender, header.id)
        return StreamFrame(event, data, header.seq, *record) if is_known else None

    def _check(self, event: str, data: dict[str, Any]) -> None:
        """Check that a frame fits its contract; otherwise the provider is at fault."""
        try:
            self._request.contract.check_frame(event, data)
        except HearthNetError as error:
            raise HearthNetError(
                "internal_error", f"a frame of {ids.short_id(self.provider)} does not fit: {error.message}"
            ) from error

    def _may_retry(self, entry: RoutingEntry | None, error: HearthNetError) -> bool:
        """Return whether the stream may go to the next process.

        It may before its first frame, if the process provably did nothing.
        """
        contract, is_new = self._request.contract, not self._consumed
        harmless = contract.idempotent != "no" and not contract.side_effects
        gone = isinstance(error, NoResponders) or (isinstance(error, ProviderGone) and harmless)
        refused = error.code in ("capacity_exceeded", "rate_limited")
        is_repeatable = is_new and (gone or refused) and is_wait_short(error)
        is_repeatable = is_repeatable or (is_new and error.rule in SHARING_RULES)
        return self._candidates.may_retry(entry, error, is_repeatable=is_repeatable, is_new=is_new)

    def due(self) -> None:
        """Send and check signs of life while the stream is open; end it at its deadline."""
        if self._loop.time() >= self._until:
            late = f"{self._request.contract.id} did not finish in time"
            self._give_up(HearthNetError("timeout", late))
        elif self._incoming.lost_provider(steady_ms()):
            self._give_up(
                Unavailable(f"{ids.short_id(self.provider)} has gone silent", rule="provider_silent")
            )
        elif not self._incoming.ended:
            self._acknowledge()
        self._wait()

    def _wait(self) -> None:
        """Schedule the next call of `due`."""
        soon = self._loop.time() + KEEPALIVE_MS / 1000
        if self._loop.time() < self._until:
            soon = min(soon, self._until)
        self._timers = self._session.timers.at(soon, self)

    def _acknowledge_turn(self) -> None:
        """Acknowledge the frames read in this turn."""
        self._acking = False
        if not self._is_over:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge the frames read so far, as a sign of life also to the next provider."""
        if self._view is not None:
            self._has_sent = True
            body = _ENCODER.encode({"upto": self._consumed})
            try:
                send_control_nowait(self._session, self._view, self._id, "ack", body)
            except HearthNetError as error:
                self._give_up(error)

    async def _control(self, kind: Kind, body: bytes) -> None:
        if self._view is not None:
            self._has_sent = True
            await send_control(self._session, self._view, self._id, kind, body)
