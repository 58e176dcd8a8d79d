"""A running call: its handler, and its answer.

See: docs/protocol/frames.md#replies, docs/protocol/streams.md#ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final

import msgspec

from hearthnet.bus.calls.attempt import LONGEST_SECONDS
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.tracing import CANCELLED, span_ended, span_started
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError, Overloaded, Unavailable
from hearthnet.core.timer_wheel import Timer
from hearthnet.protocol.frame import Frame
from hearthnet.service.call import Call, Reply
from hearthnet.service.effects.exactly_once import claimable
from hearthnet.service.effects.journal import UNKNOWN, Records
from hearthnet.service.effects.refusal_audit import ConsentRefused
from hearthnet.service.effects.token_budget import Budget
from hearthnet.service.hosting.admission import AdmittedCall
from hearthnet.service.hosting.reply_sender import ReplySender
from hearthnet.service.sharing.places import Places
from hearthnet.service.stream import Stream, check_output
from hearthnet.trust.authorization.authority import owner_of
from hearthnet.trust.authorization.token import Claims

_log = logging.getLogger(__name__)
_ANSWER_SECONDS: Final = 1.0
_ANSWER_SHARE: Final = 0.2
"""A call that waits for a place is answered so long before its deadline, at most this share of its time."""
_LATER_MS: Final = 5_000
"""Longer than a caller waits by itself (bus/calls/candidates.py): its time is over."""
_UNRECORDED: Final = "it was done, but cannot be put on record now; ask again with the same client_id"


class CallExecution:
    """An admitted call; `run` ends in exactly one reply, or exactly one terminal frame.

    Before its handler runs it is charged to its token (service/effects/token_budget.py). With side effects
    it is recorded before its handler runs and before it is answered (service/effects/journal.py).
    """

    def __init__(
        self,
        peer: Session,
        records: Records,
        budget: Budget,
        frame: Frame,
        admitted: AdmittedCall,
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
        self._refusal: HearthNetError | None = None
        self._began_at: float | None = None
        """The loop time at which it took its place."""
        self._timers: set[Timer] | None = None
        """Set while it waits for a place."""
        self._resume: Callable[[], None] | None = None
        self._until = asyncio.get_running_loop().time() + min(
            max(frame.header.deadline, 1) / 1000, LONGEST_SECONDS
        )
        self._started_ns = time.perf_counter_ns()
        self._meta: dict[str, Any] = {}
        contract = admitted.endpoint.contract
        self.trace = peer.traces.serving(frame.header, len(frame.body))
        self.outbox = ReplySender(peer, frame.header, self.trace, signed=contract.side_effects, packed=packed)
        self._streaming = Stream(contract, self.outbox) if frame.header.kind == "open" else None
        self._quiet: Stream | None = None
        self._is_plain = admitted.claims is None and not contract.side_effects

    @property
    def stream(self) -> Stream:
        """The stream for the handler's frames; for a unary call they are checked and dropped."""
        if self._streaming is not None:
            return self._streaming
        if self._quiet is None:
            self._quiet = Stream(self._admitted.endpoint.contract, None)
        return self._quiet

    @property
    def claims(self) -> Claims | None:
        """The claims of the call's token, None without one."""
        return self._admitted.claims

    @property
    def has_effect(self) -> bool:
        """Return whether it may have begun an effect, which is left to end."""
        return self._admitted.endpoint.contract.side_effects and not self.is_waiting

    async def run(self) -> None:
        """Run the handler within the caller's deadline, and answer."""
        try:
            if not self._stopped:
                await self._work()
            elif self._refusal is not None:
                await self._fail(self._refusal)
            elif self._late:
                await self._fail(self._timeout())
            else:
                await self._cancelled()
        except HearthNetError as error:
            self.trace.code = error.code
            _log.warning("%s was not answered: %s", self.header.capability, error)

    def stop(self) -> None:
        """Cancel the handler, or keep it from beginning."""
        if self.task is not None:
            self.task.cancel()
            return
        self._stopped = True
        if self._timers is not None:
            self._leave_line()
            self.resume()

    def refuse(self, error: HearthNetError) -> None:
        """Answer a call that has not begun with `error`."""
        self._refusal = error
        self.stop()

    @property
    def must_wait(self) -> bool:
        """Whether no place was free for it when it arrived."""
        return self._admitted.must_wait

    def wait_for_slot(self, begin: Callable[[CallExecution], None]) -> CallExecution | None:
        """Wait in line until `acquire_slot` and `resume`; return the call that has no room in the line.

        It is begun by `begin` in the present context, also to answer that it is refused or stopped. It ends
        with an answer shortly before its deadline: a timeout would count as a failure of the provider.
        """
        now, admitted = asyncio.get_running_loop().time(), self._admitted
        crowded_out: CallExecution | None = admitted.hosted.places.wait(self, admitted.holder, now)
        before = min(_ANSWER_SECONDS, (self._until - now) * _ANSWER_SHARE)
        self._timers = self._peer.timers.at(self._until - before, self)
        # Else it would begin in the context of the call whose place it takes.
        self._resume = partial(copy_context().run, begin, self)
        return crowded_out

    def resume(self) -> None:
        """Begin the call that waited."""
        if self._resume is not None:
            self._resume()

    def seconds_of(self, home: str) -> float:
        """Return for how long it has been running, if it is a call of that home; else 0."""
        if self._began_at is None or home != self._admitted.holder:
            return 0.0
        return asyncio.get_running_loop().time() - self._began_at

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a place."""
        return self._timers is not None

    def _leave_line(self) -> None:
        if self._timers is not None:
            self._timers.discard(self)
            self._timers = None
            self._admitted.hosted.places.leave(self, self._admitted.holder)

    async def _work(self) -> None:
        until = self._until
        timers = self._peer.timers.at(until, self)
        try:
            try:
                call = self._call(until)
                if self._is_plain:
                    reply = await self._handle(call)
                else:
                    reply = await self._carry_out(call)
                    self._effected = self._admitted.endpoint.contract.side_effects
            finally:
                timers.discard(self)
            if self._is_plain and self._streaming is None:
                self._answer(reply)
            else:
                await self._succeed(reply)
            await self.outbox.drain()
        except asyncio.CancelledError:
            if not self._was_late():
                await self._cancelled()
                raise
            await self._fail(self._timeout())
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # An error of one handler, even SystemExit, must not end other calls.
            late = self._was_late()
            await self._fail(self._timeout() if late else self._answer_error(error))

    def _answer_error(self, error: BaseException) -> HearthNetError:
        """Return the error to answer; an effect that happened has not failed with its answer."""
        wire_error = as_wire_error(error, self.header.capability)
        if not self._effected or wire_error.code in (UNKNOWN, "partition", "timeout"):
            return wire_error
        return HearthNetError(UNKNOWN, f"it was done, but its answer cannot be given: {wire_error.message}")

    def due(self) -> None:
        """Stop the handler, since the caller's deadline has passed; the wait for a place ends before."""
        if self.is_waiting:
            self._timers = set()  # the one that it is in is being walked through
            self.refuse(self._no_place())
            return
        self._late = True
        self.stop()

    def _was_late(self) -> bool:
        """Return whether the deadline alone stopped the handler; the answer then is a timeout."""
        if not self._late:
            return False
        self._late = False
        return self.task is None or self.task.uncancel() == 0

    def _timeout(self) -> HearthNetError:
        return HearthNetError("timeout", f"{self.header.capability} did not finish in time")

    def _no_place(self) -> HearthNetError:
        return Overloaded(
            f"no place of {self._admitted.endpoint.contract.id} came free in time; ask again with more time",
            rule="no_place_in_time",
            retry_after_ms=_LATER_MS,
        )

    def acquire_slot(self) -> None:
        """Occupy one of the offer's places, now, so that calls arriving together are counted."""
        self._leave_line()
        self._began_at = asyncio.get_running_loop().time()
        self._started_ns = time.perf_counter_ns()
        self._admitted.hosted.places.take(self._admitted.holder, self._began_at)

    def release_slot(self) -> Places[CallExecution]:
        """Release the place, if it has one; return the places of its offer."""
        places: Places[CallExecution] = self._admitted.hosted.places
        if self._began_at is not None:
            holder, now = self._admitted.holder, asyncio.get_running_loop().time()
            places.release(holder, self._began_at, now)
            if holder:
                capability = self._admitted.endpoint.contract.id
                self._peer.usage.served(holder, capability, now - self._began_at, self._meta)
            self._began_at = None
        return places

    def lost_caller(self) -> bool:
        """Return whether the caller of a stream is lost."""
        return self._streaming is not None and self._streaming.lost_caller()

    def _call(self, until: float) -> Call[Any, Any]:
        admitted = self._admitted
        endpoint = admitted.endpoint
        body = endpoint.contract.with_defaults(admitted.body)
        owner = ""
        if endpoint.contract.side_effects:
            approver = "" if admitted.approval is None else admitted.approval.approver
            owner = owner_of(self._peer.roster, admitted.principal, admitted.claims, approver)
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
            owner=owner,
        )

    async def _carry_out(self, call: Call[Any, Any]) -> Reply:
        """Return the handler's answer; its effect happens once, and only with a record."""
        endpoint, claims = self._admitted.endpoint, self._admitted.claims
        effect = endpoint.contract.side_effects
        if claims is not None:
            # A key is unique within one service only.
            key = f"{call.contract.id} {call.idempotency_key}" if call.idempotency_key else ""
            await self._budget.charge(claims, effect=effect, idempotency_key=key)
        if not effect:
            return await self._handle(call)
        began = await self._records.begin(
            call,
            event_sourced=endpoint.event_sourced,
            erasable=endpoint.erasable,
            takes_back=endpoint.takes_back,
        )
        self._began = call, began
        if endpoint.event_sourced or not claimable(call):
            return await self._handle(call)
        return await self._records.once(call, lambda: self._handle(call))

    async def _handle(self, call: Call[Any, Any]) -> Reply:
        """Return the result of the service's method."""
        endpoint, token = self._admitted.endpoint, span_started(self.trace, call.until)
        try:
            if endpoint.contract.stream_schema is None:
                reply = await endpoint.method(call)
            else:
                reply = await endpoint.method(call, self.stream)
        finally:
            span_ended(self.trace, token)
        answer = msgspec.convert(reply, Reply)
        self._meta = answer.meta
        return answer

    def _answer(self, reply: Reply) -> None:
        """Answer a plain call."""
        endpoint, took_ns = self._admitted.endpoint, time.perf_counter_ns() - self._started_ns
        body = {
            "output": msgspec.to_builtins(reply.output),
            "meta": {**reply.meta, "ms": took_ns // 1_000_000},
        }
        check_output(endpoint.contract.check_reply, body)
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
            check_output(contract.check_reply, body)
            await self._ended("", output)
            self.outbox.reply(body)
        else:
            check_output(contract.check_frame, "done", meta)
            await self._ended("", output)
            await self._streaming.end("done", meta)
        endpoint.statistics.answered(took_ns)

    def _consent(self) -> dict[str, Any]:
        """Return the fields of `meta` that name the consent."""
        approval, grant = self._admitted.approval, self._admitted.grant
        if approval is not None:
            return {"approval": approval.id, "arguments_digest": approval.arguments_digest}
        if grant is not None:
            return {
                "grant": grant.id,
                "use": self.header.use,
                "arguments_digest": digest(self._admitted.body),
            }
        return {}

    async def _ended(self, code: str, output: Any = None) -> None:
        """Record the end of the call, if its beginning is on record.

        Raises:
            HearthNetError: `outcome_unknown` if a success cannot be recorded.
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
        """Answer with `error`; if that is too large to send, or not JSON, with an id for it."""
        took_ns = time.perf_counter_ns() - self._started_ns
        self._admitted.endpoint.statistics.failed(took_ns, error.code)
        self.trace.code = self.trace.code or error.code
        if isinstance(error, ConsentRefused):
            self._records.refused(self.header, self._evidence, error)
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
            await self.outbox.drain()
        else:
            await self._streaming.end("error", error.to_body())

    async def _cancelled(self) -> None:
        self.trace.code = CANCELLED
        _log.info("%s from %s was cancelled", self.header.capability, ids.short_id(self.header.sender))
        await self._fail(
            Unavailable(f"{self.header.capability} was stopped at the provider", rule="provider_stopping")
        )


def _typed(value: dict[str, Any], wanted: Any) -> Any:
    """Convert `value` to the handler's Struct; unlike JSON Schema it refuses 5.0 as integer."""
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"the request does not fit: {error}") from error


def as_wire_error(error: BaseException, capability: str) -> HearthNetError:
    """Return the wire error of an exception: its own, or `internal_error` with a log id."""
    if isinstance(error, HearthNetError):
        return error
    incident = ids.new_ulid()
    _log.error("incident %s in %s", incident, capability, exc_info=error)
    return HearthNetError(
        "internal_error",
        f"{capability} failed; its log has the reason under {incident}",
        details={"incident": incident},
    )
