"""A call from candidates to answer: which process is asked next, and whether it may be (wire.md, "Offers,
routing, health")."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any, Final

import msgspec

from hearthnet import ids
from hearthnet.bus import router
from hearthnet.bus.attempt import (
    Answer,
    NobodyThere,
    Request,
    control,
    deadline,
    left_ms,
    parse_body,
    send,
)
from hearthnet.bus.discovery import Discovery
from hearthnet.bus.peer import Peer
from hearthnet.bus.registry import OfferView
from hearthnet.bus.trace import code_of
from hearthnet.errors import HearthNetError
from hearthnet.telemetry.entry import Entry
from hearthnet.times import now_ms
from hearthnet.wire import subjects

MOST_ATTEMPTS: Final = 5
_STARTING_MS: Final = 500
_BACKOFF_SECONDS: Final = 0.1


class Reply(msgspec.Struct, frozen=True):
    """What came back: the body `{output, meta}`, and who answered."""

    body: dict[str, Any]
    provider: str
    instance: str

    @property
    def output(self) -> Any:
        """The result."""
        return self.body.get("output")

    @property
    def meta(self) -> dict[str, Any]:
        """What the provider says of its work: `ms`, model, corpus ..."""
        return dict(self.body.get("meta") or {})


class Starting(HearthNetError):
    """Nobody offers it yet, but services of the own node are on their way."""


class Candidates:
    """The processes that can answer one request, best first, each asked at most once a round."""

    def __init__(self, peer: Peer, discovery: Discovery, request: Request) -> None:
        self._peer = peer
        self._discovery = discovery
        self._request = request
        self._tried: set[tuple[str, str]] = set()
        self._attempts = 0
        self._why: HearthNetError | None = None

    async def next(self, until: float) -> OfferView:
        """The next process to ask; raises why none is left: the last refusal, or `not_found`.

        Waits for a connection that is broken: who cannot be asked is not said to offer nothing. At the loop
        time `until` raises `partition` where there is no connection, else `timeout`.
        """
        self._attempts += 1
        try:
            async with asyncio.timeout_at(until):
                known = await self._known()
        except TimeoutError:
            raise self._why or self._late() from None
        views = self._untried(known)
        if not views or self._attempts > MOST_ATTEMPTS:
            raise self._nobody(known) if isinstance(self._why, Starting | None) else self._why
        self._tried.add((views[0].node, views[0].offer.instance))
        return views[0]

    async def next_in_time(self, until: float) -> OfferView:
        """As `next`, waiting for a service of the own node that is on its way."""
        while True:
            try:
                return await self.next(until)
            except HearthNetError as error:
                if not (isinstance(error, Starting) and self.mark(None, error)):
                    raise
                await settled(self._peer, self.again(error), until, error)

    async def _known(self) -> list[OfferView]:
        first, link = self._request.node or self._peer.node_id, self._peer.link
        while True:
            await link.connected()
            known = await self._discovery.offers(
                self._request.contract.capability,
                lambda offers: bool(self._untried(offers)),
                # The own node comes first: its answer is enough, and the others need not be waited for. So it
                # is with the node that was chosen.
                lambda offers: any(view.node == first for view in self._untried(offers)),
            )
            if self._untried(known) or self._why is not None or not link.settling:
                return known
            # Both ends lost the server; this one is back, a provider may need another moment.
            await asyncio.sleep(_BACKOFF_SECONDS)

    def _nobody(self, known: list[OfferView]) -> HearthNetError:
        """Why nobody can be asked; while services of the own node start, that is for now only."""
        request, own = self._request, self._peer.node_id
        error = router.no_candidate(request.contract, request.body, self._chosen(known), request.node)
        waits = error.code == "not_found" and request.node in ("", own)
        starting = self._peer.starting() if waits else []
        if not starting:
            return error
        reason = f"nobody offers {self._request.contract.id} yet: {', '.join(starting)} is starting"
        return Starting("partition", f"{reason}; try again in a moment", retry_after_ms=_STARTING_MS)

    def _late(self) -> HearthNetError:
        if not self._peer.link.is_connected:
            return HearthNetError("partition", "the server did not come back in time; is the node running?")
        return HearthNetError("timeout", f"no time was left to ask for {self._request.contract.id}")

    def mark(self, view: OfferView | None, why: HearthNetError) -> bool:
        """Notes that `view` did not do it, and says whether another attempt is left."""
        self._why = why
        if view is not None and isinstance(why, NobodyThere):
            self._discovery.registry.drop_instance(view.node, view.offer.instance)
        return self._attempts < MOST_ATTEMPTS

    def clock_corrected(self, view: OfferView | None, why: HearthNetError) -> bool:
        """Whether `view` refused a frame for its time only, and is worth asking again with the right one."""
        if view is None or not self._peer.clocks.learn(view.node, why):
            return False
        self._tried.discard((view.node, view.offer.instance))
        return True

    def others(self) -> bool:
        """Whether another process that is known can be asked at once."""
        known = self._discovery.registry.offers(subjects.topic(self._request.contract.capability), now_ms())
        return bool(self._untried(known))

    def again(self, why: HearthNetError) -> float:
        """Lets every process be asked once more, after a pause in seconds that grows each time."""
        self._tried.clear()
        wait = _BACKOFF_SECONDS * float(2 ** (self._attempts - 1))
        if why.retry_after_ms is not None:
            wait = max(wait, why.retry_after_ms / 1000)
        return wait * random.uniform(0.5, 1.5)

    def _untried(self, offers: list[OfferView]) -> list[OfferView]:
        chosen = self._chosen(offers)
        found = router.candidates(self._request.contract, self._request.body, chosen, self._peer.node_id)
        return [view for view in found if (view.node, view.offer.instance) not in self._tried]

    def _chosen(self, offers: list[OfferView]) -> list[OfferView]:
        """The offers of those who are members now; where the request names a node, of that one only."""
        chosen, is_member = self._request.node, self._peer.membership.is_member
        return [view for view in offers if chosen in ("", view.node) and is_member(view.node)]


async def call(peer: Peer, discovery: Discovery, request: Request, timeout_seconds: float) -> Reply:
    """Asks one process after another until one answers, inside `timeout_seconds`.

    Another process is asked only where the first provably did not start, or where repeating does no harm.
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
    peer: Peer, discovery: Discovery, request: Request, until: float, trace: Entry
) -> Reply:
    candidates = Candidates(peer, discovery, request)
    while True:
        view = None
        try:
            view = await candidates.next(until)
            return await _ask(peer, request, view, until, trace)
        except HearthNetError as error:
            if candidates.clock_corrected(view, error):
                continue
            if not (_repeatable(request, error) and candidates.mark(view, error)):
                raise
            if not candidates.others():
                await settled(peer, candidates.again(error), until, error)


async def _ask(peer: Peer, request: Request, view: OfferView, until: float, trace: Entry) -> Reply:
    call_id = ids.new_ulid()
    answer = Answer(view)
    forget = peer.replies.expect(call_id, answer)
    try:
        await send(peer, request, view, "call", call_id, left_ms(request, until), trace)
        frame = await answer.wait(until)
    except asyncio.CancelledError:
        # Nobody waits any more: the work behind it is stopped as well.
        with contextlib.suppress(HearthNetError):
            await control(peer, view, call_id, "cancel", b"{}")
        raise
    finally:
        forget()
    trace.bytes_in = len(frame.body)
    body = parse_body(frame)
    _check_reply(request, body, view)
    if request.contract.side_effects and frame.evidence is None:
        raise HearthNetError("invalid_signature", "the reply to a call with side effects must be signed")
    return Reply(body, view.node, view.offer.instance)


def _check_reply(request: Request, body: dict[str, Any], view: OfferView) -> None:
    """Nobody has to expect an answer that its contract does not know: `internal_error` for one."""
    try:
        request.contract.check_reply(body)
    except HearthNetError as error:
        raise HearthNetError(
            "internal_error", f"the answer of {ids.short_id(view.node)} does not fit: {error.message}"
        ) from error


def _repeatable(request: Request, error: HearthNetError) -> bool:
    if isinstance(error, NobodyThere | Starting) or error.code == "capacity_exceeded":
        return True
    return error.code == "partition" and request.contract.idempotent != "no"


async def settled(peer: Peer, pause: float, until: float, error: HearthNetError) -> None:
    """Waits out the pause, and for the connection where that is what broke; raises `error` at the
    deadline.
    """
    await asyncio.sleep(pause)
    try:
        async with asyncio.timeout_at(until):
            await peer.link.connected()
    except TimeoutError:
        raise error from None
