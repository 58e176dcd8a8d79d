"""The host of a service on the bus, the only entry for its calls.

See: docs/protocol/subjects.md#use-of-each-subject.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import Any, Final

import msgspec

from hearthnet.bus.session.frame_budget import FrameBudget
from hearthnet.bus.session.sender import CLOCK_RULE
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.usage_meter import is_of_community
from hearthnet.contracts.namespaces import is_home_only, is_provider_defined
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.config import LimitsConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.rate_limits import TokenBucket
from hearthnet.core.rationed_log import RationedLog
from hearthnet.core.tasks import TaskSet, end
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.nats.client import payload_too_large
from hearthnet.protocol import batch, subjects
from hearthnet.protocol.frame import MAX_FOREIGN_BYTES, Frame, FrameError
from hearthnet.service.decorators import Offer, endpoints
from hearthnet.service.effects.refusal_audit import ConsentRefused
from hearthnet.service.hosting import admission
from hearthnet.service.hosting.active_offers import ActiveOffer, OfferSet, shared_endpoints, shared_offers
from hearthnet.service.hosting.announcer import Announcer
from hearthnet.service.hosting.call_execution import CallExecution, as_wire_error
from hearthnet.service.hosting.caller_watch import CallerWatch
from hearthnet.service.hosting.context import NodeContext
from hearthnet.service.hosting.micro import Monitor, Served
from hearthnet.service.hosting.node_endpoints import ContractEndpoint, TraceEndpoint
from hearthnet.service.hosting.peer_rates import PeerRates
from hearthnet.service.hosting.reply_sender import ReplySender
from hearthnet.service.hosting.scheduler import CallScheduler
from hearthnet.service.hosting.service import Service
from hearthnet.service.sharing.places import line_full
from hearthnet.service.sharing.shared_service import SharedService
from hearthnet.trust.authorization.authority import SELF

_log = logging.getLogger(__name__)
TICK_SECONDS: Final = 1.0
_FAREWELL_SECONDS: Final = 1.0
_UNSIGNED: Final = frozenset({"rate_limited", "capacity_exceeded"})
"""Refusals that are not signed: of floods, and of what the caller sends again."""
_MAX_STALE_ANSWERS: Final = 10
"""Maximum of answers with the right time per node and tick, to stale frames; further ones are dropped."""
_RATIONED: Final = frozenset({"rate_limited", "revoked"})
"""Refusals that any number of calls can cause, since no rate limit precedes them."""
_REFUSALS_PER_SECOND: Final = 50
"""Such answers to one node in the long run: sealing one costs more than the call did.

At once as many as calls are read, since an effect that is not answered has an unknown outcome.
"""
_OVERSIZED_PER_SECOND: Final = 0.1
"""Frames over `MAX_FOREIGN_BYTES` of one node that are opened and answered: earlier versions send them."""
_ULID: Final = 26
_CONTROLS: Final = 1_000
_CONTROLS_PER_SECOND: Final = 500
"""Frames of another node about its running calls, at once and in the long run."""


class Host:
    """One service in one process."""

    def __init__(self, service: Service, node: NodeContext) -> None:
        self._service = service
        self._records, self._budget, self._memory = node.records, node.budget, node.memory
        peer = node.bus.peer
        self.peer: Final[Session] = peer
        self._rates = PeerRates(node.config.limits)
        self._call_budget = _call_budget(peer, node.config.limits)
        self._control_budget = FrameBudget(peer.node_id, "ctl", _CONTROLS, _CONTROLS_PER_SECOND)
        self._refusals = TokenBucket(node.config.limits.total_hard or _CONTROLS, _REFUSALS_PER_SECOND)
        self._oversized = TokenBucket(1, _OVERSIZED_PER_SECOND)
        self._drop_log = RationedLog(_log)
        self._fixed = (
            endpoints(service)
            | endpoints(TraceEndpoint(peer, service.name))
            | endpoints(ContractEndpoint(self._contract_output))
        )
        self._endpoints = self._fixed
        self._shared = shared_endpoints(self._fixed.values())
        self._built_in = [self._host(offer) for offer in _built_in(service, bool(self._shared))]
        self._loop = asyncio.get_running_loop()
        self._tasks, self._answers = TaskSet(), TaskSet()
        self._announcer = Announcer(peer, service.name, service.version, self._tasks)
        self._monitor = Monitor(peer, service, self._served, self._tasks)
        self._active: list[ActiveOffer] = []
        self._offer_set = OfferSet([])
        self._running: dict[str, CallExecution] = {}
        self._callers = CallerWatch(peer, self._running)
        self._terms = SharedService(peer, service.name, self._seconds_of)
        peer.usage.service = service.name
        self._scheduler = CallScheduler(self._on_end)
        self._draining = False
        self._dropped = 0
        self.refused = 0
        self._stale_answers: Counter[str] = Counter()
        peer.traces.in_flight["provider"] = lambda: self.in_flight
        peer.traces.dropped["provider"] = lambda: self.dropped

    @property
    def in_flight(self) -> int:
        """The number of running calls."""
        return len(self._running)

    @property
    def dropped(self) -> int:
        """The number of frames that were dropped."""
        budgets = (self._call_budget, self._control_budget, self._announcer.budget)
        return self._dropped + sum(budget.dropped for budget in budgets)

    @property
    def offers(self) -> list[str]:
        """One line per offer, for people."""
        return sorted(str(entry) for entry in self._active if entry.is_shown)

    async def open(self) -> None:
        """Listen for calls, then offer; an offer is never announced before calls can arrive.

        Before that, read the node's record of the community, and settle the calls that an earlier process of
        the service had begun when it died.
        """
        await self._memory.open()
        self.peer.membership.on_change(self._stop_revoked)
        await self._records.open(self._service.outcome)
        link, node, instance = self.peer.link, self.peer.node_id, self.peer.instance
        await link.subscribe(subjects.calls_to(node, instance), self._on_call)
        await link.subscribe(subjects.control_to(node, instance), self._on_control)
        self.peer.sender.local = self
        await asyncio.to_thread(self._terms.refresh, now_ms())
        await self._announcer.open(self._built_in)
        await self._monitor.open()
        await self.refresh()
        self._tasks.start(self._tick(), "tick")
        self._tasks.start(self._service.opened(), "opened")

    async def refresh(self) -> None:
        """Replace the offers by the service's present ones; an unchanged offer keeps its load."""
        known = {repr(entry.offer): entry for entry in self._active}
        own = self._fixed | {each.contract.id: each for each in self._service.endpoints()}
        added = (endpoint for name, endpoint in own.items() if name not in self._endpoints)
        kept = {name: each for name, each in self._shared.items() if name in own}
        self._shared = kept | shared_endpoints(added)
        self._endpoints = own | {each.endpoint.contract.id: each.endpoint for each in self._shared.values()}
        offers = self._service.offers()
        fresh = [self._host(offer) for offer in (*offers, *shared_offers(offers, self._shared))]
        self._active = [known.get(repr(entry.offer), entry) for entry in fresh]
        self._offer_set = OfferSet([*self._active, *self._built_in], self._terms)
        self._apply_terms()
        await self._announcer.offer(self._active)

    def _apply_terms(self) -> None:
        for entry in self._under_terms():
            entry.is_closed = not self._terms.is_offered
            entry.least_level = self._terms.least_level

    def _under_terms(self) -> list[ActiveOffer]:
        return [entry for entry in self._active if not is_of_community(entry.capability.name)]

    async def _renew_terms(self) -> None:
        """Put terms that have changed into force, and announce what others are to know of them."""
        if await asyncio.to_thread(self._terms.refresh, now_ms()) and not self._draining:
            if not self._terms.is_offered:
                await self._announcer.withhold(self._under_terms())
            self._apply_terms()
            await self._announcer.offer(self._active)

    def _seconds_of(self, home: str) -> float:
        """Return the seconds for which calls of that home have been running."""
        return sum(running.seconds_of(home) for running in self._running.values())

    async def close(self, drain_seconds: float) -> None:
        """Withdraw, refuse new calls, and stop running ones after at most `drain_seconds`."""
        self._draining = True
        for running in [one for one in self._running.values() if one.is_waiting]:
            running.refuse(_stopping())
        await self._announcer.withdraw()
        await self._scheduler.wait_begun()
        tasks = [running.task for running in self._running.values() if running.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=drain_seconds)
        await end(set(tasks))
        await self._answers.finish(_FAREWELL_SECONDS)
        await self._tasks.close()
        self.peer.sender.local = None

    def _served(self) -> list[Served]:
        """Return each capability that is offered now once, for operators."""
        running: Counter[str] = Counter()
        for entry in self._active:
            running[entry.offer.capability] += entry.in_flight
        return [
            Served(endpoint.contract.capability, endpoint.contract.schema_hash, count, endpoint.statistics)
            for endpoint, count in ((self._endpoints[name], count) for name, count in sorted(running.items()))
        ]

    def _contract_output(self, capability: str, caller: str) -> dict[str, Any] | None:
        """Return the output of `node.contract` for a capability that is supplied here, and to `caller`."""
        if is_home_only(capability) and caller != self.peer.node_id:
            return None
        endpoint = self._endpoints.get(capability)
        if endpoint is None or not is_provider_defined(capability):
            return None
        output: dict[str, Any] = {"contract": msgspec.to_builtins(endpoint.contract)}
        for each in self._shared.values():
            if each.endpoint is endpoint:
                output["signed"] = each.signature.as_json()
        return output

    def _host(self, offer: Offer) -> ActiveOffer:
        endpoint = self._endpoints.get(offer.capability)
        if endpoint is None:
            raise HearthNetError(
                "bad_request", f"{self._service.name} offers {offer.capability} and has no method for it"
            )
        if is_home_only(endpoint.contract.name):
            # Another home may have another package with this name (docs/decisions/0187).
            offer = msgspec.structs.replace(offer, trust=SELF)
        return ActiveOffer(endpoint.contract, offer)

    def _on_call(self, subject: str, data: bytes, absent: bool) -> None:
        if not self._call_budget.admits(subject, len(data)):
            if len(data) > MAX_FOREIGN_BYTES:
                self._on_oversized(subject, data)
            return
        frame = self._open(subject, data)
        if frame is None:
            return
        if frame.header.kind != "calls":
            self.receive_call(frame)
            return
        try:
            calls = batch.calls(frame, partial(self._call_budget.charge, subject, batch.MOST))
        except FrameError as error:
            self._drop(error)
            return
        self._call_budget.charge(subject, max(0, len(calls) - 1))
        for call in calls:
            self.receive_call(call, packed=True)

    def _on_oversized(self, subject: str, data: bytes) -> None:
        """Tell a member that its call is too large, now and then: an earlier version sends such calls."""
        try:
            sender = subjects.directed(subject).sender
            is_member = self.peer.membership.is_member(sender)
            if not is_member or not self._oversized.take(sender, 1, steady_ms()):
                return
            frame = admission.open_directed(self.peer, subject, data)
            if frame.header.kind == "calls" or not admission.fresh(self.peer, frame.header):
                return
        except (FrameError, HearthNetError) as error:
            self._drop(error)
            return
        refusal = payload_too_large(len(data), MAX_FOREIGN_BYTES, "another node")
        self._answers.start(self._refuse(frame, refusal, packed=False), "refusal")

    def receive_call(self, frame: Frame, *, packed: bool = False) -> None:
        """Answer or refuse a call that was opened, or comes from this process (bus/session/sender.py).

        `packed`: it arrived in a batch, so its answer may be batched, too; so may the frames of a stream
        whose caller permits it.
        """
        packed = packed or frame.header.packs
        try:
            # A call may outlive the memory of its id; a second one with the same id could not be told apart
            # when one of them is stopped.
            if not admission.fresh(self.peer, frame.header) or frame.header.id in self._running:
                self._dropped += 1
                return
            if self._draining:
                raise _stopping()
            admitted = admission.admit(self.peer, self._rates, self._endpoints, self._offer_set, frame)
            running = CallExecution(self.peer, self._records, self._budget, frame, admitted, packed=packed)
        except HearthNetError as error:
            if isinstance(error, ConsentRefused):
                self._records.refused(frame.header, frame.evidence, error)
            if self._may_answer(frame.header.sender, error, packed):
                self._answers.start(self._refuse(frame, error, packed=packed), "refusal")
        except Exception as error:
            wire = as_wire_error(error, frame.header.capability)
            self._answers.start(self._refuse(frame, wire, packed=packed), "refusal")
        else:
            self._start(running)

    def _stop_revoked(self) -> None:
        """Stop the calls of revoked nodes, and those under revoked tokens."""
        for running in self._running.values():
            if self._is_revoked(running):
                running.stop()

    def _is_revoked(self, running: CallExecution) -> bool:
        peer, claims = self.peer, running.claims
        nodes = {running.header.sender} if claims is None else {running.header.sender, claims.iss}
        if any(peer.roster.is_revoked(node) for node in nodes if node != peer.node_id):
            return True
        return claims is not None and peer.membership.revocations.revoked(claims.iss, claims.jti)

    def _may_answer(self, sender: str, error: HearthNetError, packed: bool) -> bool:
        """Return whether to answer with `error`: not more often than a node may cause it for nothing.

        A batch counts as one.
        """
        account = self.peer.membership.account(sender)
        if error.code in _RATIONED:
            if self._refusals.take(account, 1 / batch.MOST if packed else 1, steady_ms()):
                return True
            self._dropped += 1
            return False
        if error.details.get("rule") != CLOCK_RULE:
            return True
        self._stale_answers[account] += 1 if packed else batch.MOST
        if self._stale_answers[account] > _MAX_STALE_ANSWERS * batch.MOST:
            self._dropped += 1
            return False
        return True

    def _start(self, running: CallExecution) -> None:
        self._running[running.header.id] = running
        if not running.must_wait:
            running.acquire_slot()
            self._scheduler.begin(running)
            return
        crowded_out = running.wait_for_slot(self._scheduler.begin)
        if crowded_out is not None:
            crowded_out.refuse(line_full())

    def _on_end(self, running: CallExecution, error: BaseException | None) -> None:
        places = running.release_slot()
        while (following := places.next(self._loop.time())) is not None:
            following.acquire_slot()
            following.resume()
        self._running.pop(running.header.id, None)
        self.peer.traces.end(running.trace)
        if not (error is None or isinstance(error, asyncio.CancelledError)):
            _log.error("the call %s failed", running.header.id, exc_info=error)

    def _on_control(self, subject: str, data: bytes, absent: bool) -> None:
        # Before it is opened: nothing but a control frame of a running call does anything.
        if subject[-_ULID:] not in self._running or not self._control_budget.admits(subject, len(data)):
            return
        frame = self._open(subject, data)
        if frame is not None and self.receive_control(frame):
            self._control_budget.refund(subject, len(data))

    def receive_control(self, frame: Frame) -> bool:
        """Process a control frame about a running call; True for an input that was accepted."""
        running = self._running.get(frame.header.stream)
        if running is None or running.header.sender != frame.header.sender:
            return False
        try:
            if admission.fresh(self.peer, frame.header):
                self._control(running, frame)
                return frame.header.kind == "input"
        except HearthNetError as error:
            self._drop_log.write("refused a control frame: %s", error)
        return False

    def _control(self, running: CallExecution, frame: Frame) -> None:
        match frame.header.kind:
            case "ack":
                running.stream.on_ack(frame.body)
            case "input":
                running.stream.on_input(frame.body)
            case _:
                running.stop()

    def _open(self, subject: str, data: bytes) -> Frame | None:
        try:
            return admission.open_directed(self.peer, subject, data)
        except (FrameError, HearthNetError) as error:
            self._drop(error)
            return None

    def _drop(self, error: Exception) -> None:
        self._dropped += 1
        self._drop_log.write("dropped a frame: %s", error)

    async def _refuse(self, frame: Frame, error: HearthNetError, *, packed: bool) -> None:
        header = frame.header
        self.refused += 1
        self._count_refusal(header.capability, error.code)
        trace = self.peer.traces.serving(header, len(frame.body))
        trace.code = error.code
        # The caller of an effect can prove that nothing was done; floods are answered without that cost.
        signed = frame.evidence is not None and error.code not in _UNSIGNED
        outbox = ReplySender(self.peer, header, trace, signed=signed, packed=packed)
        try:
            if header.kind == "open":
                outbox.frame(1, "error", error.to_body())
            else:
                outbox.reply(error.to_body(), code=error.code)
                await outbox.drain()
        finally:
            self.peer.traces.end(trace)

    def _count_refusal(self, capability: str, code: str) -> None:
        endpoint = self._endpoints.get(capability)
        if endpoint is None:  # another minor version, or a capability not offered here
            wanted = parse_capability(capability)
            serving = (one for one in self._endpoints.values() if one.contract.capability.serves(wanted))
            endpoint = next(serving, None)
        if endpoint is not None:
            endpoint.statistics.failed(0, code)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                self._stale_answers.clear()
                self._records.refusals.tick()
                self._callers.probe()
                for running in list(self._running.values()):
                    self._check_running(running)
                await self._renew_terms()
            except Exception:  # of whatever kind: the next tick comes all the same
                _log.exception("a tick failed")

    def _check_running(self, running: CallExecution) -> None:
        if running.lost_caller():
            running.stop()
            return
        try:
            running.outbox.alive_if_due()
        except HearthNetError as error:
            _log.info("no sign of life sent: %s", error)


def _stopping() -> HearthNetError:
    return HearthNetError("capacity_exceeded", "this process is stopping", retry_after_ms=0)


def _call_budget(peer: Session, limits: LimitsConfig) -> FrameBudget:
    """Return the budget for calls: as many at once as the hard limit, and twice the soft one in the long run.

    Of a node that stays within the soft limit none is dropped, and of one that does not enough are read to
    tell it so.
    """
    burst = limits.total_hard
    rate = min(burst, 2 * limits.total_soft) if limits.total_soft else burst
    return FrameBudget(peer.node_id, "call", burst, rate, peer.membership.account)


def _built_in(service: Service, shares: bool) -> list[Offer]:
    """Return the offers of every process, and those of a service whose contracts others learn from it."""
    learnable = shares or service.may_define_contracts
    return [TraceEndpoint.OFFER, ContractEndpoint.OFFER] if learnable else [TraceEndpoint.OFFER]
