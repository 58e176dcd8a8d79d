"""One request to one process: sending, waiting, and the end of waiting.

See: docs/protocol/discovery.md#deadlines, docs/protocol/subjects.md#reply-subjects.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, TypedDict

import msgspec

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session.batching import SentBatch
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.tracing import limit
from hearthnet.contracts.contract import Contract
from hearthnet.core import ids
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.timer_wheel import Timer
from hearthnet.protocol.batch import BatchedCall
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import Kind
from hearthnet.protocol.stream import SILENCE_MS
from hearthnet.telemetry.span import SpanRecord
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.authorization.grant import Grant

_BODY: Final = msgspec.json.Decoder(dict[str, Any])
_CALLERS_DETAIL: Final = "happened"
"""The detail of an error that the caller's own tool loop adds, and no provider.

See: docs/protocol/agent.md#what-happened.
"""
PROBE_SECONDS: Final = 3.5
"""Time without a sign of life after which the process is probed; live ones send one every 2 to 3 s."""
_AGAIN_SECONDS: Final = 1.0
_SIGN_SECONDS: Final = 1.0
"""A sign of life that follows the one before sooner was not waited for."""
_MAX_BATCHED_TEXT: Final = 4_096
"""Maximum of header characters for a call in a batch; a longer one is sent alone, and checked for size."""
_BUSY_SECONDS: Final = 45.0
"""Time by which the signs of life of other calls to a process extend the wait for one."""
LONGEST_SECONDS: Final = 3_600.0
"""Maximum duration of a call, whatever its caller requests."""


class ProviderGone(Unavailable):
    """Raised when the server reports that the process is gone; the request may have started."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"the process at {ids.short_id(node)} that was asked is gone; try again in a moment",
            rule="provider_gone",
        )


class NoResponders(ProviderGone):
    """Raised when the server reports so for the request itself, which provably never started."""


class ConnectionLost(Unavailable):
    """Raised when this process lost its NATS connection while waiting for a reply.

    Does not count against the provider.
    """

    def __init__(self) -> None:
        super().__init__("the connection to the server broke", rule="connection_lost")


class UnsignedReply(HearthNetError):
    """Raised for an unsigned result of a call with side effects."""

    def __init__(self) -> None:
        super().__init__("invalid_signature", "the reply to a call with side effects must be signed")


class CallOptions(TypedDict, total=False):
    """The options of `Bus.call` and `Bus.stream`, which a caller gives by their names.

    `node` (a full node id) restricts the call to that node, as does an `approval` for one node; `instance`
    restricts it to that process. `use` is the number of this use of the standing `grant`. Calls with the same
    `session` go to the same process, until ten minutes after the last or until it is gone. `hops` is the
    nesting depth, counted automatically inside a handler. `timeout_seconds` defaults to the contract's.
    """

    timeout_seconds: float | None
    token: str
    run: str
    approval: Approval | None
    grant: Grant | None
    use: int
    idempotency_key: str
    hops: int
    node: str
    instance: str
    session: str


class Request(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request, the same for every candidate; `body` is the complete `{params, input}`.

    The other fields are those of `CallOptions`, empty by default.
    """

    contract: Contract
    body: dict[str, Any]
    timeout_seconds: float | None = None
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

    def deadline(self) -> float:
        """Return the loop time at which a call that starts now is given up.

        Inside a handler it is at most the time at which its own caller gives up.

        Raises:
            HearthNetError: `bad_request` if the timeout is not a number.
        """
        seconds = self.contract.timeout_seconds if self.timeout_seconds is None else self.timeout_seconds
        if seconds != seconds:
            raise HearthNetError("bad_request", "the timeout is no number of seconds")
        until = asyncio.get_running_loop().time() + min(max(seconds, 0.0), LONGEST_SECONDS)
        last = limit()
        return min(until, last) if last else until


def send_request(
    session: Session,
    request: Request,
    view: OfferView,
    kind: Kind,
    call_id: str,
    until: float,
    trace: SpanRecord,
    caller: PendingReply | None = None,
    *,
    waits: bool = False,
) -> None:
    """Send the call or the opening of a stream to the process that made the offer.

    It is signed if it has side effects, since it may have to be proved later. A plain call of `caller` to a
    provider that accepts batches is sent with others of this turn of the loop. `trace` records the provider.
    With `waits` the provider keeps it until a place is free.
    The caller must wait while the link is congested.

    Raises:
        HearthNetError: `timeout` if no time is left until the loop time `until`; `bad_request` for text that
            is not Unicode; `payload_too_large` over the contract's limit; errors of `Sender.send_call`.
    """
    left_ms = int((until - asyncio.get_running_loop().time()) * 1000)
    if left_ms <= 0:
        raise HearthNetError("timeout", f"no time was left to ask for {request.contract.id}")
    body, offer, sender = encode_body(request.body), view.offer, session.sender
    request.contract.check_request_size(len(body))
    trace.peer, trace.call, trace.bytes_out = view.node, call_id, len(body)
    trace.attempts += 1
    if caller is not None and _is_batchable(request, view, caller) and session.batcher.accepts(body):
        item = BatchedCall(
            id=call_id,
            body=msgspec.Raw(body),
            deadline=left_ms,
            token=request.token,
            run=request.run,
            hops=request.hops,
            traceparent=trace.traceparent,
            session=request.session,
            waits=waits,
        )
        name, capability = request.contract.id, view.capability
        session.batcher.add_call(view.node, offer.instance, name, capability, item, len(body), caller)
        return
    header = sender.header(
        kind,
        call_id,
        to=view.node,
        to_instance=offer.instance,
        capability=request.contract.id,
        deadline=left_ms,
        token=request.token,
        run=request.run,
        approval=None if request.approval is None else msgspec.to_builtins(request.approval),
        grant=None if request.grant is None else msgspec.to_builtins(request.grant),
        use=request.use,
        idempotency_key=request.idempotency_key,
        hops=request.hops,
        session=request.session,
        traceparent=trace.traceparent,
        packs=kind == "open",
        waits=waits,
    )
    sender.send_call(view.capability, header, body, signed=request.contract.side_effects)


def _is_batchable(request: Request, view: OfferView, caller: PendingReply) -> bool:
    """Return whether the request needs no later proof, and its header fits an item of a batch."""
    if not view.offer.packs or caller.is_local or request.contract.side_effects:
        return False
    if request.idempotency_key or request.approval or request.grant:
        return False
    return len(request.token) + len(request.run) + len(request.session) <= _MAX_BATCHED_TEXT


def encode_body(body: dict[str, Any]) -> bytes:
    """Return the bytes of a body.

    Raises:
        HearthNetError: `bad_request` for text that is not Unicode.
    """
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, msgspec.EncodeError) as error:
        raise HearthNetError("bad_request", f"the body has no JSON text: {error}") from error


async def send_control(session: Session, view: OfferView, call_id: str, kind: Kind, body: bytes) -> None:
    """Send a control frame as `send_control_nowait`; wait while the server reads more slowly."""
    send_control_nowait(session, view, call_id, kind, body)
    if session.link.is_congested:
        await session.link.drain()


def send_control_nowait(session: Session, view: OfferView, call_id: str, kind: Kind, body: bytes) -> None:
    """Send a control frame about a running call: ack, input or cancel.

    If the process is gone, the server reports that to the waiting call.
    """
    session.batcher.flush_calls()
    header = session.sender.header(
        kind, ids.new_ulid(), to=view.node, to_instance=view.offer.instance, stream=call_id
    )
    session.sender.send_control(header, body)


def failure_code(session: Session, error: HearthNetError) -> str | None:
    """Return the code that counts in the health of the provider; None if it is not at fault."""
    if isinstance(error, ConnectionLost | ProviderGone) or (
        error.code == "partition" and not session.link.is_connected
    ):
        return None
    if error.code == "invalid_signature" and not isinstance(error, UnsignedReply):
        return None  # the provider refused what it was sent: a guest's approval, for example
    return error.code


class PendingReply:
    """The wait for one reply, until `forget`; signs of life of a slow provider extend it."""

    __slots__ = (
        "_future",
        "_last_sign",
        "_loop",
        "_probe",
        "_probed",
        "_session",
        "_timers",
        "_until",
        "_view",
        "batch",
        "call_id",
        "is_local",
    )

    def __init__(self, session: Session, view: OfferView, call_id: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._view = view
        self.call_id = call_id
        self.batch: SentBatch | None = None
        self.is_local = session.sender.is_local(view.node, view.offer.instance)
        self._future: asyncio.Future[Frame] = self._loop.create_future()
        session.replies.expect(call_id, self)
        self._last_sign = self._probed = self._loop.time()
        self._until = 0.0
        self._timers: set[Timer] | None = None
        self._probe: asyncio.Task[None] | None = None

    def on_frame(self, frame: Frame) -> bool:
        """Receive the reply, or a sign of life, of the called node; ignore all other nodes."""
        if frame.header.sender != self._view.node:
            return False
        now = self._loop.time()
        before, self._last_sign = self._last_sign, now
        self._session.replies.record_sign(frame.header.sender, self._view.offer.instance, now)
        if frame.header.kind == "reply" and not self._future.done():
            self._future.set_result(frame)
            return True
        return now - before >= _SIGN_SECONDS

    @property
    def is_answered(self) -> bool:
        """True if the reply has arrived, whatever its contents."""
        future = self._future
        return future.done() and not future.cancelled() and future.exception() is None

    @property
    def is_waiting(self) -> bool:
        """True while no answer or error has arrived."""
        return not self._future.done()

    def fail(self, error: Exception) -> None:
        """End the wait with `error`, unless it has ended."""
        if not self._future.done():
            self._future.set_exception(error)

    def forget(self) -> None:
        """Stop waiting."""
        if self._timers is not None:
            self._timers.discard(self)
        self._session.replies.forget(self.call_id)
        if self.batch is not None:
            self.batch.remove(self)

    def on_no_responders(self, node: str) -> None:
        """Record that the process is gone, before the request or since."""
        if node == self._view.node:
            self.fail((NoResponders if self._probe is None else ProviderGone)(node))

    def on_lost(self) -> None:
        """Record the loss of the connection, except for a call inside this process."""
        if not self.is_local:
            self.fail(ConnectionLost())

    def within(self, until: float) -> asyncio.Future[Frame]:
        """Return the future reply.

        After some seconds without a sign of life the process is probed: the server does not report the death
        of a process to which it has delivered the call.

        Raises:
            HearthNetError: In the future, `timeout` after the loop time `until`; `partition` after 15 s
                without a sign of life of the process, or 60 s without one of this call.
        """
        self._until = until
        self._timers = self._session.timers.at(self._next_check(), self)
        return self._future

    def _next_check(self) -> float:
        """Return the loop time of the next action, unless the answer arrives before."""
        probe = max(self._last_sign + PROBE_SECONDS, self._probed + _AGAIN_SECONDS)
        return min(self._until, self._silent_at(), probe)

    def _silent_at(self) -> float:
        """Return the loop time from which the process counts as silent.

        A process with thousands of calls answers the last one late. While it answers others it is there, and
        this call is lost only if its frame is, which takes longer to conclude.
        """
        process = self._session.replies.last_sign(self._view.node, self._view.offer.instance)
        last = min(max(self._last_sign, process), self._last_sign + _BUSY_SECONDS)
        return last + SILENCE_MS / 1000

    def due(self) -> None:
        """Stop waiting, or probe the process."""
        if self._future.done():
            return
        now = self._loop.time()
        if now >= self._until:
            self.fail(HearthNetError("timeout", f"{ids.short_id(self._view.node)} gave no answer in time"))
        elif now >= self._silent_at():
            silent = f"{ids.short_id(self._view.node)} has gone silent"
            self.fail(Unavailable(silent, rule="provider_silent"))
        else:
            if now >= self._next_check():
                self._probed = now
                self._probe = self._loop.create_task(self._send_probe())
            self._timers = self._session.timers.at(self._next_check(), self)

    async def _send_probe(self) -> None:
        """Probe the process: if it is gone, the server reports that."""
        with contextlib.suppress(HearthNetError):
            await send_control(self._session, self._view, self.call_id, "ack", b"{}")


def parse_body(frame: Frame) -> dict[str, Any]:
    """Return the body of a reply or stream frame.

    Raises:
        HearthNetError: The error in the frame, with the signer of the frame if it is signed;
            `internal_error` if the body is not an object.
    """
    try:
        body = read_json(frame.body, _BODY)
    except HearthNetError as error:
        raise HearthNetError(
            "internal_error", f"the provider's answer is no object: {error.message}"
        ) from error
    if frame.header.code:
        answered = HearthNetError.from_body(body)
        answered.details.pop(_CALLERS_DETAIL, None)
        if frame.evidence is not None:
            answered.signed_by, answered.entry = frame.header.sender, frame.header.id
        raise answered
    return body
