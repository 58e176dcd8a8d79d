"""A call from its first candidate to its answer.

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
    deadline,
    failure_code,
    left_ms,
    parse_body,
    send_call,
    send_control,
)
from hearthnet.bus.calls.candidates import Candidates, ProviderStarting, repeatable
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


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A reply: its body `{output, meta}`, and the process that sent it."""

    body: dict[str, Any]
    provider: str
    instance: str

    @property
    def output(self) -> Any:
        """The result."""
        return self.body.get("output")

    @property
    def meta(self) -> dict[str, Any]:
        """The provider's facts about its work: `ms`, model, corpus ..."""
        return dict(self.body.get("meta") or {})


async def call(peer: Session, discovery: Discovery, request: Request, timeout_seconds: float) -> Reply:
    """Call one process after another until one answers, within `timeout_seconds`.

    Another process is called only if the first provably did not start, or repeating does no harm.
    """
    trace = peer.traces.calling(request.contract.id, request.run)
    try:
        return await _until_answered(peer, discovery, request, deadline(timeout_seconds), trace)
    except BaseException as error:
        trace.code = code_of(error)
        raise
    finally:
        peer.traces.end(trace)


async def _until_answered(
    peer: Session, discovery: Discovery, request: Request, until: float, trace: SpanRecord
) -> Reply:
    candidates = Candidates(peer, discovery, request)
    discovery.retries.earn()
    lost: HearthNetError | None = None
    while True:
        listing = None
        try:
            listing = candidates.at_once() or await candidates.next(until)
            return await _ask(peer, discovery, request, listing, until, trace)
        except HearthNetError as error:
            candidates.forget_gone(listing, error)
            if candidates.clock_corrected(listing, error):
                continue
            if not (repeatable(request, error) and candidates.mark(listing, error)):
                if lost is None or error.code in _UNSURE:
                    raise
                raise _in_doubt(lost, error) from error
            lost = lost or _lost_effect(request, error)
            await candidates.again(error, until)


def _lost_effect(request: Request, error: HearthNetError) -> HearthNetError | None:
    """Return `error` if the request has an effect that may have happened without an answer."""
    harmless = isinstance(error, NoResponders | ProviderStarting)
    return error if request.contract.side_effects and error.code == "partition" and not harmless else None


def _in_doubt(lost: HearthNetError, error: HearthNetError) -> HearthNetError:
    """Return the final error: a later refusal does not settle an effect whose answer was lost."""
    return EffectInDoubt(
        f"it may have happened: {lost.message}; asked again: {error.message}; "
        "ask once more with the same client_id",
    )


async def _ask(
    peer: Session,
    discovery: Discovery,
    request: Request,
    listing: RoutingEntry,
    until: float,
    trace: SpanRecord,
) -> Reply:
    """Call one process, and record the result in its health."""
    registry, view, began, code = discovery.registry, listing.view, steady_ms(), None
    answer = PendingReply(peer, view, ids.new_ulid())
    registry.begin(listing)
    try:
        send_call(peer, request, view, answer, left_ms(request, until), trace)
        if peer.link.full:
            await peer.link.room()
        frame = await answer.within(until)
        reply = _read(request, frame, view, trace)
        code = ""
        return reply
    except asyncio.CancelledError:
        # The caller stopped waiting, so the provider's work is stopped as well.
        await _stop(peer, view, answer)
        raise
    except HearthNetError as error:
        code = failure_code(peer, error)
        # The provider may still work: it only paused, or its answer was lost. An effect is left to end.
        unheard = error.code == "partition" and not answer.is_answered
        if unheard and not (isinstance(error, ProviderGone) or request.contract.side_effects):
            await _stop(peer, view, answer)
        raise
    finally:
        answer.forget()
        now = steady_ms()
        registry.end(listing, code, now - began, now)


async def _stop(peer: Session, view: OfferView, answer: PendingReply) -> None:
    with contextlib.suppress(HearthNetError):
        await send_control(peer, view, answer.call_id, "cancel", b"{}")


def _read(request: Request, frame: Frame, view: OfferView, trace: SpanRecord) -> Reply:
    """Return the reply in the frame; raise the error that it carries, or its fault."""
    trace.bytes_in = len(frame.body)
    body = parse_body(frame)
    _check_reply(request, body, view)
    if request.contract.side_effects and frame.evidence is None:
        raise HearthNetError("invalid_signature", "the reply to a call with side effects must be signed")
    return Reply(body, view.node, view.offer.instance)


def _check_reply(request: Request, body: dict[str, Any], view: OfferView) -> None:
    """Check that the reply fits its contract.

    Raises:
        HearthNetError: `internal_error` if it does not, since that is the provider's fault.
    """
    try:
        request.contract.check_reply(body)
    except HearthNetError as error:
        raise HearthNetError(
            "internal_error", f"the answer of {ids.short_id(view.node)} does not fit: {error.message}"
        ) from error
