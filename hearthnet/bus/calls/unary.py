"""A call from its first candidate to its answer, read from top to bottom.

See: docs/protocol/discovery.md#choosing, docs/protocol/discovery.md#deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec

from hearthnet.bus.calls.attempt import (
    NoResponders,
    PendingReply,
    ProviderGone,
    Request,
    UnsignedReply,
    failure_code,
    parse_body,
    send_control,
    send_request,
)
from hearthnet.bus.calls.candidates import Candidates, ProviderStarting, is_repeatable
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.routing_table import RoutingEntry
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.tracing import code_of
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, OutcomeUnknown
from hearthnet.core.times import steady_ms
from hearthnet.protocol.frame import Frame
from hearthnet.telemetry.span import SpanRecord

_UNSURE: Final = frozenset({"partition", "timeout", "outcome_unknown"})


class EffectInDoubt(OutcomeUnknown):
    """Raised when an effect may have happened: the answer was lost, and a repetition refused.

    A repetition with the same key returns the outcome.
    """


class ReceivedReply(msgspec.Struct, frozen=True, gc=False):
    """A reply: its body `{output, meta}`, and the process that sent it.

    `entry` is the id of the call in a reply that the provider has signed, else empty.
    """

    body: dict[str, Any]
    provider: str
    instance: str
    entry: str = ""

    @property
    def output(self) -> Any:
        """The result."""
        return self.body.get("output")

    @property
    def meta(self) -> dict[str, Any]:
        """The provider's facts about its work: `ms`, model, corpus ..."""
        return dict(self.body.get("meta") or {})


async def call(session: Session, discovery: Discovery, request: Request) -> ReceivedReply:
    """Call one process after another until one answers, within the time of the request.

    Another process is called only if the first provably did not start, or repeating does no harm.
    """
    trace = session.traces.calling(request.contract.id, request.run)
    lost: HearthNetError | None = None
    try:
        until = request.deadline()
        candidates = Candidates(session, discovery, request)
        discovery.retries.earn()
        while True:
            entry = None
            try:
                entry = await candidates.pick(until)
                return await _attempt(
                    session, discovery, request, entry, until, trace, waits=candidates.waits
                )
            except HearthNetError as error:
                if not candidates.may_retry(entry, error, is_repeatable=is_repeatable(request, error)):
                    if lost is None or error.code in _UNSURE:
                        raise
                    raise _unknown(lost, error) from error
                lost = lost or _lost_effect(request, error)
                await candidates.backoff(error, until)
    except BaseException as error:
        trace.code = code_of(error)
        raise
    finally:
        session.traces.end(trace)


async def _attempt(
    session: Session,
    discovery: Discovery,
    request: Request,
    entry: RoutingEntry,
    until: float,
    trace: SpanRecord,
    *,
    waits: bool,
) -> ReceivedReply:
    """Call one process, and record the result in its health."""
    registry, view, began, code = discovery.registry, entry.view, steady_ms(), None
    pending = PendingReply(session, view, ids.new_ulid())
    registry.call_started(entry)
    try:
        send_request(session, request, view, "call", pending.call_id, until, trace, pending, waits=waits)
        if session.link.is_congested:
            await session.link.drain()
        frame = await pending.within(until)
        trace.bytes_in = len(frame.body)
        body = _checked_body(request, frame, view)
        signed = "" if frame.evidence is None else pending.call_id
        reply = ReceivedReply(body, view.node, view.offer.instance, signed)
        code = ""
        session.usage.used(view.node, request.contract.id, steady_ms() - began, reply.meta)
        return reply
    except asyncio.CancelledError:
        # The caller stopped waiting, so the provider's work is stopped as well.
        await _stop(session, pending, view)
        raise
    except HearthNetError as error:
        code = failure_code(session, error)
        # The provider may still work: it only paused, or its answer was lost. An effect is left to end.
        is_lost = error.code == "partition" and not pending.is_answered
        if is_lost and not (isinstance(error, ProviderGone) or request.contract.side_effects):
            await _stop(session, pending, view)
        raise
    finally:
        pending.forget()
        now = steady_ms()
        registry.call_finished(entry, code, now - began, now)


async def _stop(session: Session, pending: PendingReply, view: OfferView) -> None:
    with contextlib.suppress(HearthNetError):
        await send_control(session, view, pending.call_id, "cancel", b"{}")


def _checked_body(request: Request, frame: Frame, view: OfferView) -> dict[str, Any]:
    """Return the reply's body.

    Raises:
        HearthNetError: The error that it carries; `internal_error` if it does not fit its contract, since
            that is the provider's fault; `invalid_signature` for an unsigned reply to a side effect.
    """
    body = parse_body(frame)
    try:
        request.contract.check_reply(body)
    except HearthNetError as error:
        raise HearthNetError(
            "internal_error", f"the answer of {ids.short_id(view.node)} does not fit: {error.message}"
        ) from error
    if request.contract.side_effects and frame.evidence is None:
        raise UnsignedReply
    return body


def _lost_effect(request: Request, error: HearthNetError) -> HearthNetError | None:
    """Return `error` if the request has an effect that may have happened without an answer."""
    harmless = isinstance(error, NoResponders | ProviderStarting)
    return error if request.contract.side_effects and error.code == "partition" and not harmless else None


def _unknown(lost: HearthNetError, error: HearthNetError) -> HearthNetError:
    """Return the final error: a later refusal does not settle an effect whose answer was lost."""
    return EffectInDoubt(
        f"it may have happened: {lost.message}; asked again: {error.message}; "
        "ask once more with the same client_id",
    )
