"""One call on its way through its handler, and how it is answered.

See: docs/protocol/frames.md#replies, docs/protocol/streams.md#ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

import msgspec

from hearthnet import ids
from hearthnet.bus import local
from hearthnet.bus.attempt import LONGEST_SECONDS
from hearthnet.bus.peer import Peer
from hearthnet.bus.trace import CANCELLED, handled, handling
from hearthnet.canonical import digest
from hearthnet.errors import HearthNetError
from hearthnet.service.admission import Admitted
from hearthnet.service.budget import Budget
from hearthnet.service.call import Call, Reply
from hearthnet.service.effects import claimable
from hearthnet.service.records import UNKNOWN, Records
from hearthnet.service.refusals import ConsentRefused
from hearthnet.service.stream import Stream
from hearthnet.telemetry.entry import Entry
from hearthnet.times import steady_ms
from hearthnet.trust.token import Claims
from hearthnet.wire import frame as frames
from hearthnet.wire import subjects
from hearthnet.wire.frame import Frame
from hearthnet.wire.header import Header, Kind
from hearthnet.wire.pack import Answered
from hearthnet.wire.stream import KEEPALIVE_MS

_log = logging.getLogger(__name__)
ALIVE: Final = "alive"
_ENCODER: Final = msgspec.json.Encoder()
_UNRECORDED: Final = "it was done, but cannot be put on record now; ask again with the same client_id"


class Outbox:
    """Answers to one call: where they go follows from the authenticated header alone.

    `packed`: to a call that came in a pack, so that they may go with others (bus/packer.py).
    """

    __slots__ = ("_inside", "_last_ms", "_packed", "_peer", "_signed", "_to", "_trace")

    def __init__(self, peer: Peer, header: Header, trace: Entry, *, signed: bool, packed: bool) -> None:
        self._peer = peer
        self._trace = trace
        self._to = header
        self._signed = signed
        self._packed = packed
        self._inside = local.inside(peer, header.sender, header.from_instance) is not None
        self._last_ms = steady_ms()

    def reply(self, body: dict[str, Any], code: str = "") -> None:
        """The one reply to a call."""
        self._send("reply", body, code=code, signed=self._signed)

    def frame(self, seq: int, event: str, data: dict[str, Any]) -> None:
        """One frame of a stream; the terminal `error` carries its code."""
        code = str(data.get("error", "internal_error")) if event == "error" else ""
        self._trace.frames = seq
        self._send("frame", data, seq=seq, event=event, code=code)

    def alive_if_due(self) -> None:
        """A sign of life, where nothing was sent for as long as the other end is used to hear one."""
        if steady_ms() - self._last_ms >= KEEPALIVE_MS:
            self._send("frame", {}, event=ALIVE)

    async def room(self) -> None:
        """Waits while the server reads more slowly than is sent."""
        link = self._peer.link
        if link.full:
            await link.room()

    def _send(
        self,
        kind: Kind,
        body: dict[str, Any],
        *,
        seq: int = 0,
        event: str = "",
        code: str = "",
        signed: bool = False,
    ) -> None:
        self._last_ms = steady_ms()
        peer, to, data = self._peer, self._to, _ENCODER.encode(body)
        self._trace.bytes_out += len(data)
        if self._packed and not (self._inside or signed):
            item = Answered(id=to.id, body=msgspec.Raw(data), seq=seq, event=event, code=code)
            peer.packer.answer(to.sender, to.from_instance, item, data)
            return
        header = peer.header(
            kind, to.id, to=to.sender, to_instance=to.from_instance, seq=seq, event=event, code=code
        )
        if self._inside:
            peer.replies.deliver(local.frame(peer, header, data, signed=signed))
            return
        inner = frames.signed(header, data, peer.identity) if signed else frames.plain(header, data)
        subject = subjects.reply(peer.node_id, to.sender, to.from_instance, to.id)
        peer.link.send(subject, frames.box(inner, peer.keys.to(to.sender)))


class Running:
    """A call that was admitted. `run` ends in exactly one reply, or exactly one terminal frame.

    Before its handler runs it is charged to its token (service/budget.py). Where it has side effects, it is
    on record before its handler runs and before it is answered (service/records.py).
    """

    def __init__(
        self,
        peer: Peer,
        records: Records,
        budget: Budget,
        frame: Frame,
        admitted: Admitted,
        *,
        packed: bool = False,
    ) -> None:
        self.header = frame.header
        self._peer = peer
        self.task: asyncio.Task[None] | None = None
        self._records = records
        self._budget = budget
        self._admitted = admitted
        self._evidence = frame.evidence
        self._began: tuple[Call[Any, Any], int] | None = None
        self._late = False
        self._stopped = self._effected = False
        self._started_ns = time.perf_counter_ns()
        contract = admitted.endpoint.contract
        self.trace = peer.traces.serving(frame.header, len(frame.body))
        self.outbox = Outbox(peer, frame.header, self.trace, signed=contract.side_effects, packed=packed)
        self._streaming = Stream(contract, self.outbox) if frame.header.kind == "open" else None
        self._quiet: Stream | None = None
        self._is_plain = admitted.claims is None and not contract.side_effects

    @property
    def stream(self) -> Stream:
        """What its handler sends frames to; for who wants one reply, they are checked and dropped."""
        if self._streaming is not None:
            return self._streaming
        if self._quiet is None:
            self._quiet = Stream(self._admitted.endpoint.contract, None)
        return self._quiet

    @property
    def claims(self) -> Claims | None:
        """What the call's token says, None where it has none."""
        return self._admitted.claims

    async def run(self) -> None:
        """Runs the handler inside the caller's deadline and answers."""
        try:
            if not self._stopped:
                await self._work()
            elif self._late:
                await self._fail(self._timeout())
            else:
                await self._cancelled()
        except HearthNetError as error:
            self.trace.code = error.code
            _log.warning("%s was not answered: %s", self.header.capability, error)

    def stop(self) -> None:
        """Cancels the handler; one that has not begun does not begin."""
        if self.task is None:
            self._stopped = True
        else:
            self.task.cancel()

    async def _work(self) -> None:
        until = asyncio.get_running_loop().time() + min(max(self.header.deadline, 1) / 1000, LONGEST_SECONDS)
        alarm = self._peer.alarms.at(until, self)
        try:
            try:
                call = self._call(until)
                if self._is_plain:
                    reply = await self._handle(call)
                else:
                    reply = await self._carry_out(call)
                    self._effected = self._admitted.endpoint.contract.side_effects
            finally:
                alarm.discard(self)
            if self._is_plain and self._streaming is None:
                self._answer(reply)
            else:
                await self._succeed(reply)
            await self.outbox.room()
        except asyncio.CancelledError:
            if not self._was_late():
                await self._cancelled()
                raise
            await self._fail(self._timeout())
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # What a handler raises is its own failure; not even SystemExit ends the calls of others.
            late = self._was_late()
            await self._fail(self._timeout() if late else self._told(error))

    def _told(self, error: BaseException) -> HearthNetError:
        """What the caller is told of `error`: an effect that happened has not failed because its answer does.

        Asked again under the same key, it tells its outcome.
        """
        told = as_wire_error(error, self.header.capability)
        if not self._effected or told.code in (UNKNOWN, "partition", "timeout"):
            return told
        return HearthNetError(UNKNOWN, f"it was done, but its answer cannot be given: {told.message}")

    def due(self) -> None:
        """The caller's deadline has passed: stops the handler."""
        self._late = True
        self.stop()

    def _was_late(self) -> bool:
        """Whether it was the deadline alone that stopped the handler, in which case its caller is told so."""
        if not self._late:
            return False
        self._late = False
        return self.task is None or self.task.uncancel() == 0

    def _timeout(self) -> HearthNetError:
        return HearthNetError("timeout", f"{self.header.capability} did not finish in time")

    def take_place(self) -> None:
        """Counts against the offer's places from now on, so that calls which come together are counted."""
        self._admitted.hosted.in_flight += 1

    def free_place(self) -> None:
        """Counts no more."""
        self._admitted.hosted.in_flight -= 1

    def lost_caller(self) -> bool:
        """Whether there is nobody left to answer to."""
        return self._streaming is not None and self._streaming.lost_caller()

    def _call(self, until: float) -> Call[Any, Any]:
        admitted = self._admitted
        endpoint = admitted.endpoint
        body = endpoint.contract.with_defaults(admitted.body)
        return Call(
            header=self.header,
            contract=endpoint.contract,
            body=admitted.body,
            params=_typed(body["params"], endpoint.params_type),
            input=_typed(body["input"], endpoint.input_type),
            principal=admitted.principal,
            approval=admitted.approval,
            grant=admitted.grant,
            token=admitted.claims.jti if admitted.claims else "",
            evidence=self._evidence,
            until=until,
            traceparent=self.trace.traceparent,
            claims=admitted.claims,
        )

    async def _carry_out(self, call: Call[Any, Any]) -> Reply:
        """What the handler answers; its effect happens once, and not without a record."""
        endpoint, claims = self._admitted.endpoint, self._admitted.claims
        effect = endpoint.contract.side_effects
        if claims is not None:
            # Services know their own keys only, so that the same one may stand for an effect of each.
            key = f"{call.contract.id} {call.idempotency_key}" if call.idempotency_key else ""
            await self._budget.charge(claims, effect=effect, idempotency_key=key)
        if not effect:
            return await self._handle(call)
        began = await self._records.begin(
            call, event_sourced=endpoint.event_sourced, erasable=endpoint.erasable
        )
        self._began = call, began
        if endpoint.event_sourced or not claimable(call):
            return await self._handle(call)
        return await self._records.once(call, lambda: self._handle(call))

    async def _handle(self, call: Call[Any, Any]) -> Reply:
        """What the service's method returns."""
        endpoint, token = self._admitted.endpoint, handling(self.trace, call.until)
        try:
            if endpoint.contract.stream_schema is None:
                reply = await endpoint.method(call)
            else:
                reply = await endpoint.method(call, self.stream)
        finally:
            handled(self.trace, token)
        return msgspec.convert(reply, Reply)

    def _answer(self, reply: Reply) -> None:
        """Answers a plain call."""
        endpoint, took_ns = self._admitted.endpoint, time.perf_counter_ns() - self._started_ns
        body = {
            "output": msgspec.to_builtins(reply.output),
            "meta": {**reply.meta, "ms": took_ns // 1_000_000},
        }
        endpoint.contract.check_reply(body)
        self.outbox.reply(body)
        endpoint.statistics.answered(took_ns)

    async def _succeed(self, reply: Reply) -> None:
        endpoint, took_ns = self._admitted.endpoint, time.perf_counter_ns() - self._started_ns
        contract, meta = endpoint.contract, {**reply.meta, "ms": took_ns // 1_000_000}
        if self._admitted.approval is not None or self._admitted.grant is not None:
            meta |= self._consent()
        output = msgspec.to_builtins(reply.output)
        if self._streaming is None:
            body = {"output": output, "meta": meta}
            contract.check_reply(body)
            await self._ended("", output)
            self.outbox.reply(body)
        else:
            contract.check_frame("done", meta)
            await self._ended("", output)
            await self._streaming.end("done", meta)
        endpoint.statistics.answered(took_ns)

    def _consent(self) -> dict[str, Any]:
        """What the answer says of the yes under which it happened."""
        approval, grant = self._admitted.approval, self._admitted.grant
        if approval is not None:
            return {"approval": approval.id, "arguments_digest": approval.arguments_digest}
        if grant is not None:
            return {
                "grant": grant.id,
                "use": self._admitted.use,
                "arguments_digest": digest(self._admitted.body),
            }
        return {}

    async def _ended(self, code: str, output: Any = None) -> None:
        """Puts on record how the call ended, where it was put on record that it began.

        Raises `outcome_unknown` where it worked and that cannot be put on record.
        """
        if self._began is None:
            return
        (call, number), self._began = self._began, None
        try:
            await self._records.end(call, number, code, "" if code else digest(output))
        except HearthNetError as error:
            _log.error("the end of %s is not on record: %s", call.contract.id, error)
            if not code:
                raise HearthNetError(UNKNOWN, _UNRECORDED) from error

    async def _fail(self, error: HearthNetError) -> None:
        """Answers with `error`; one that is too large to send, or no JSON, with an id for it."""
        took_ns = time.perf_counter_ns() - self._started_ns
        self._admitted.endpoint.statistics.failed(took_ns, error.code)
        self.trace.code = self.trace.code or error.code
        if isinstance(error, ConsentRefused):
            self._records.refusals.take(self.header, self._evidence, error)
        await self._ended(error.code)
        try:
            await self._end(error)
        except Exception as unsent:
            if isinstance(unsent, HearthNetError) and unsent.code == "partition":
                raise
            await self._end(as_wire_error(ValueError(unsent), self.header.capability))

    async def _end(self, error: HearthNetError) -> None:
        if self._streaming is None:
            self.outbox.reply(error.to_body(), code=error.code)
            await self.outbox.room()
        else:
            await self._streaming.end("error", error.to_body())

    async def _cancelled(self) -> None:
        self.trace.code = CANCELLED
        _log.info("%s from %s was cancelled", self.header.capability, ids.short_id(self.header.sender))
        await self._fail(HearthNetError("partition", f"{self.header.capability} was stopped at the provider"))


def _typed(value: dict[str, Any], wanted: Any) -> Any:
    """`value` as the handler's Struct. JSON Schema takes 5.0 for an integer; a Struct does not."""
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"the request does not fit: {error}") from error


def as_wire_error(error: BaseException, capability: str) -> HearthNetError:
    """What crosses the wire of a handler's exception: its own code, or `internal_error` with the id
    of the log entry.
    """
    if isinstance(error, HearthNetError):
        return error
    incident = ids.new_ulid()
    _log.error("incident %s in %s", incident, capability, exc_info=error)
    return HearthNetError(
        "internal_error",
        f"{capability} failed; its log has the reason under {incident}",
        details={"incident": incident},
    )
