"""One request to one process: sending, waiting, and the end of waiting.

See: docs/protocol/discovery.md#deadlines, docs/protocol/subjects.md#reply-subjects.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session import loopback
from hearthnet.bus.session.batching import SentBatch
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.tracing import limit
from hearthnet.contracts import Contract
from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.timer_wheel import Timer
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.batch import BatchedCall
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import Kind
from hearthnet.protocol.stream import SILENCE_MS
from hearthnet.telemetry.span import SpanRecord
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.authorization.grant import Grant

_BODY: Final = msgspec.json.Decoder(dict[str, Any])


LOOK_SECONDS: Final = 3.5
"""Time without a sign of life after which the process is probed; live ones send one every 2 to 3 s."""
_MOST_SAID: Final = 4_096
"""Maximum of header characters for a call in a batch; a longer one is sent alone, and checked for size."""
LONGEST_SECONDS: Final = 3_600.0
"""Maximum duration of a call, whatever its caller requests."""


class ProviderGone(Unavailable):
    """Raised when the server reports that the process is gone; the request may have started."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"the process at {ids.short_id(node)} that was asked is gone; try again in a moment",
            details={"rule": "provider_gone"},
        )


class NoResponders(ProviderGone):
    """Raised when the server reports so for the request itself, which provably never started."""


class ConnectionLost(Unavailable):
    """Raised when this process lost its NATS connection while waiting for a reply.

    Does not count against the provider.
    """

    def __init__(self) -> None:
        super().__init__("the connection to the server broke", details={"rule": "connection_lost"})


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request, the same for every candidate; `body` is the complete `{params, input}`.

    `node`, if not empty, restricts it to that node, and `instance` to that process.
    """

    contract: Contract
    body: dict[str, Any]
    token: str = ""
    run: str = ""
    approval: Approval | None = None
    grant: Grant | None = None
    use: int = 0
    idempotency_key: str = ""
    hops: int = 0
    node: str = ""
    instance: str = ""
    session: str = ""


async def send(
    peer: Session,
    request: Request,
    view: OfferView,
    kind: Kind,
    call_id: str,
    deadline_ms: int,
    trace: SpanRecord,
) -> None:
    """Send the call or the opening of a stream to the process that made the offer.

    It is signed if it has side effects, since it may have to be proved later. `trace` records the provider.
    """
    _send(peer, request, view, kind, call_id, deadline_ms, trace)
    if peer.link.full:
        await peer.link.room()


def _send(
    peer: Session,
    request: Request,
    view: OfferView,
    kind: Kind,
    call_id: str,
    deadline_ms: int,
    trace: SpanRecord,
) -> None:
    header = peer.header(
        kind,
        call_id,
        to=view.node,
        to_instance=view.offer.instance,
        capability=request.contract.id,
        deadline=deadline_ms,
        token=request.token,
        run=request.run,
        approval=_document(request.approval),
        grant=_document(request.grant),
        use=request.use,
        idempotency_key=request.idempotency_key,
        hops=request.hops,
        session=request.session,
        traceparent=trace.traceparent,
        packs=kind == "open",
    )
    body = encode_body(request.body)
    trace.peer, trace.call, trace.bytes_out = view.node, call_id, len(body)
    trace.attempts += 1
    signed = request.contract.side_effects
    here = loopback.local_provider(peer, view.node, view.offer.instance)
    if here is not None:
        here.take(loopback.frame(peer, header, body, signed=signed))
        return
    key = peer.keys.to(view.node)
    if signed:
        data = frames.box(frames.signed(header, body, peer.identity), key)
    else:
        data = frames.sealed(header, body, key)
    subject = subjects.call(peer.node_id, view.node, view.offer.instance, view.capability)
    nobody = subjects.reply(view.node, peer.node_id, peer.instance, call_id)
    peer.link.send(subject, data, nobody)


def send_call(
    peer: Session,
    request: Request,
    view: OfferView,
    answer: PendingReply,
    deadline_ms: int,
    trace: SpanRecord,
) -> None:
    """Send a call, in a batch with others of this turn of the loop if it may be.

    It may if it is plain and its provider accepts batches; otherwise as `send`. The caller must wait while
    the link is full.
    """
    offer = view.offer
    if not (offer.packs and _is_plain(request)) or answer.is_inside:
        _send(peer, request, view, "call", answer.call_id, deadline_ms, trace)
        return
    body = encode_body(request.body)
    if not peer.packer.takes(body):
        _send(peer, request, view, "call", answer.call_id, deadline_ms, trace)
        return
    trace.peer, trace.call, trace.bytes_out = view.node, answer.call_id, len(body)
    trace.attempts += 1
    item = BatchedCall(
        id=answer.call_id,
        body=msgspec.Raw(body),
        deadline=deadline_ms,
        token=request.token,
        run=request.run,
        hops=request.hops,
        traceparent=trace.traceparent,
        session=request.session,
    )
    peer.packer.call(view.node, offer.instance, request.contract.id, view.capability, item, len(body), answer)


def _is_plain(request: Request) -> bool:
    """Return whether the request needs no later proof and its header fits an item of a batch."""
    if request.contract.side_effects or request.idempotency_key or request.approval or request.grant:
        return False
    return len(request.token) + len(request.run) + len(request.session) <= _MOST_SAID


def _document(signed: Approval | Grant | None) -> dict[str, Any] | None:
    """Return a signed document in the form of the header."""
    return None if signed is None else msgspec.to_builtins(signed)


def encode_body(body: dict[str, Any]) -> bytes:
    """Return the bytes of a body.

    Raises:
        HearthNetError: `bad_request` for text that is not Unicode.
    """
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, msgspec.EncodeError) as error:
        raise HearthNetError("bad_request", f"the body has no JSON text: {error}") from error


async def send_control(peer: Session, view: OfferView, call_id: str, kind: Kind, body: bytes) -> None:
    """Send a control frame as `say`; wait while the server reads more slowly."""
    send_control_nowait(peer, view, call_id, kind, body)
    if peer.link.full:
        await peer.link.room()


def send_control_nowait(peer: Session, view: OfferView, call_id: str, kind: Kind, body: bytes) -> None:
    """Send a control frame about a running call: ack, input or cancel.

    If the process is gone, the server reports that to the waiting call.
    """
    instance = view.offer.instance
    header = peer.header(kind, ids.new_ulid(), to=view.node, to_instance=instance, stream=call_id)
    here = loopback.local_provider(peer, view.node, instance)
    if here is not None:
        here.control(loopback.frame(peer, header, body))
        return
    peer.packer.flush_calls()
    subject = subjects.control(peer.node_id, view.node, instance, call_id)
    nobody = subjects.reply(view.node, peer.node_id, peer.instance, call_id)
    peer.link.send(subject, frames.sealed(header, body, peer.keys.to(view.node)), nobody)


def failure_code(peer: Session, error: HearthNetError) -> str | None:
    """Return the code that counts in the health of the provider; None if it is not at fault."""
    if isinstance(error, ConnectionLost | ProviderGone) or (
        error.code == "partition" and not peer.link.is_connected
    ):
        return None
    return error.code


def deadline(timeout_seconds: float) -> float:
    """Return the loop time at which a call that starts now is given up.

    Inside a handler it is at most the time at which its own caller gives up.

    Raises:
        HearthNetError: `bad_request` if the timeout is not a number.
    """
    if timeout_seconds != timeout_seconds:
        raise HearthNetError("bad_request", "the timeout is no number of seconds")
    until = asyncio.get_running_loop().time() + min(max(timeout_seconds, 0.0), LONGEST_SECONDS)
    last = limit()
    return min(until, last) if last else until


def left_ms(request: Request, until: float) -> int:
    """Return the milliseconds left until the loop time `until`.

    Raises:
        HearthNetError: `timeout` if there are none; nothing is sent then.
    """
    left = int((until - asyncio.get_running_loop().time()) * 1000)
    if left <= 0:
        raise HearthNetError("timeout", f"no time was left to ask for {request.contract.id}")
    return left


class PendingReply:
    """The wait for one reply, until `forget`; signs of life of a slow provider extend it."""

    __slots__ = (
        "_alarm",
        "_future",
        "_heard",
        "_looked",
        "_looking",
        "_loop",
        "_peer",
        "_until",
        "_view",
        "call_id",
        "is_inside",
        "pack",
    )

    def __init__(self, peer: Session, view: OfferView, call_id: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._peer = peer
        self._view = view
        self.call_id = call_id
        self.pack: SentBatch | None = None
        self.is_inside = loopback.local_provider(peer, view.node, view.offer.instance) is not None
        self._future: asyncio.Future[Frame] = self._loop.create_future()
        peer.replies.expect(call_id, self)
        self._heard = self._looked = self._loop.time()
        self._until = 0.0
        self._alarm: set[Timer] | None = None
        self._looking: asyncio.Task[None] | None = None

    def on_frame(self, frame: Frame) -> None:
        """Receive the reply, or a sign of life, of the called node; ignore all other nodes."""
        if frame.header.sender != self._view.node:
            return
        self._heard = self._loop.time()
        if frame.header.kind == "reply" and not self._future.done():
            self._future.set_result(frame)

    @property
    def is_answered(self) -> bool:
        """True if the reply has arrived, whatever its contents."""
        future = self._future
        return future.done() and not future.cancelled() and future.exception() is None

    @property
    def waits(self) -> bool:
        """True while no answer or error has arrived."""
        return not self._future.done()

    def fail(self, error: Exception) -> None:
        """Record that the call could not be sent."""
        if not self._future.done():
            self._future.set_exception(error)

    def forget(self) -> None:
        """Stop waiting."""
        if self._alarm is not None:
            self._alarm.discard(self)
        self._peer.replies.forget(self.call_id)
        if self.pack is not None:
            self.pack.ended(self)

    def on_nobody(self, node: str) -> None:
        """Record that the process is gone, before the request or since."""
        if node == self._view.node and not self._future.done():
            gone = NoResponders if self._looking is None else ProviderGone
            self._future.set_exception(gone(self._view.node))

    def on_lost(self) -> None:
        """Record the loss of the connection, except for a call inside this process."""
        if not (self.is_inside or self._future.done()):
            self._future.set_exception(ConnectionLost())

    def within(self, until: float) -> asyncio.Future[Frame]:
        """Return the future reply.

        After some seconds without a sign of life the process is probed: the server does not report the death
        of a process to which it has delivered the call.

        Raises:
            HearthNetError: In the future, `timeout` after the loop time `until`; `partition` after 15 s
                without a sign of life.
        """
        self._until = until
        self._alarm = self._peer.alarms.at(self._next_look(), self)
        return self._future

    def _silent_at(self) -> float:
        return self._heard + SILENCE_MS / 1000

    def _next_look(self) -> float:
        """Return the loop time of the next action, unless the answer arrives before."""
        return min(self._until, self._silent_at(), max(self._heard, self._looked) + LOOK_SECONDS)

    def due(self) -> None:
        """Stop waiting, or probe the process."""
        if self._future.done():
            return
        now = self._loop.time()
        if now >= self._until:
            late = f"{ids.short_id(self._view.node)} gave no answer in time"
            self._future.set_exception(HearthNetError("timeout", late))
        elif now >= self._silent_at():
            silent = f"{ids.short_id(self._view.node)} has gone silent"
            self._future.set_exception(
                HearthNetError("partition", silent, details={"rule": "provider_silent"})
            )
        else:
            if now >= self._next_look():
                self._looked = now
                self._looking = self._loop.create_task(self._look())
            self._alarm = self._peer.alarms.at(self._next_look(), self)

    async def _look(self) -> None:
        """Probe the process: if it is gone, the server reports that."""
        with contextlib.suppress(HearthNetError):
            await send_control(self._peer, self._view, self.call_id, "ack", b"{}")


def parse_body(frame: Frame) -> dict[str, Any]:
    """Return the body of a reply or stream frame.

    Raises:
        HearthNetError: The error in the frame; `internal_error` if the body is not an object.
    """
    try:
        body = read_json(frame.body, _BODY)
    except HearthNetError as error:
        raise HearthNetError(
            "internal_error", f"the provider's answer is no object: {error.message}"
        ) from error
    if frame.header.code:
        raise HearthNetError.from_body(body)
    return body
