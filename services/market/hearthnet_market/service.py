"""The market service.

The event log is the only store that is written: a post, its update and its end are appended events, and the
view follows the log, whichever process appended. A decision that depends on the state of a post is made from
the view at a place of the log and appended as the very next event; if another event took that place, it is
made again.

See: docs/market.md, docs/protocol/effects.md#event-sourced-effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from hearthnet import Call, HearthNetError, NodeContext, Offer, Reply, Service, capability
from hearthnet.core import TaskSet, now_ms
from hearthnet.service import EventLog
from hearthnet_market import lending
from hearthnet_market.database import DamagedView
from hearthnet_market.decisions import Decisions, guarded
from hearthnet_market.distances import with_km
from hearthnet_market.export import exported, reply_of, reply_output
from hearthnet_market.following import apply_events
from hearthnet_market.incoming import check_incoming, level_of, may_change
from hearthnet_market.lending import LendInput, ReserveInput, concerns, lending_of, reservation_of
from hearthnet_market.mutes import Mutes, Muting
from hearthnet_market.notes import MarketNotes
from hearthnet_market.read_model import View
from hearthnet_market.schemas import (
    CREATED,
    DELETED,
    EXPIRED,
    HIDDEN,
    UNHIDDEN,
    UPDATED,
    DeleteInput,
    Erased,
    ExpireInput,
    ExportInput,
    HideInput,
    ListInput,
    MuteInput,
    PersonInput,
    PostInput,
    PostState,
    SearchInput,
    SyncInput,
    SyncParams,
    UpdateInput,
    answers_for,
    check_text,
    end_of,
    hiding_of,
    no_post,
    reused,
    unhiding_of,
    update_of,
    without_unknown,
)
from hearthnet_market.semantic_search import SemanticIndex
from hearthnet_market.upkeep import ERASED_AT_ONCE, Upkeep, deliver

_log = logging.getLogger(__name__)
STREAM: Final = "MARKET"
PREFIX: Final = "mk.post"
TOPIC: Final = "market"
_SYNC: Final = "community.log.sync@1.0"
_LOOKS: Final = (0.0, 0.05, 0.3)
"""Seconds before each reading of the log: an event is announced while it is still on its way to disk."""
_Answer = TypeVar("_Answer")
_DataOf = Callable[[PostState, Collection[str], str], dict[str, Any]]
"""Returns an event's data, for a post, the principals of the caller and its level, or raises the refusal."""


class MarketService(Service):
    """Posts of the community: list, search, post, update, expire, hide, delete, export."""

    name: ClassVar[str] = "market"
    sweep_seconds: ClassVar[float] = 60.0
    follow_seconds: ClassVar[float] = 5.0
    deliver_seconds: ClassVar[float] = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._woken = asyncio.Event()
        self._catching_up = asyncio.Lock()
        self._tasks = TaskSet()
        self._notes = MarketNotes()
        self._has_new_rights = True

    async def start(self, node: NodeContext) -> None:
        """Open the view, bring it up to the log, and start the background tasks."""
        self._node = node
        peer = node.bus.peer
        self._view = await asyncio.to_thread(
            View, node.data / "view.db", lambda event, author: may_change(event, author, peer.roster)
        )
        self._muting = Muting(node, await asyncio.to_thread(Mutes, node.data / "mutes.db"))
        self._notes.are_mutes_lost = self._muting.are_lost
        self._meanings = SemanticIndex(node.bus, self._view, self._look)
        self._events = EventLog(
            await node.store(),
            STREAM,
            PREFIX,
            node.bus.peer.community,
            home=node.home,
            own=node.identity.node_id,
        )
        self._decisions = Decisions(self._events, lambda: self._catch_up(), self._quota_used)
        self._upkeep = Upkeep(node.bus, self._events, self._view, self._look)
        await self._catch_up()
        await self._events.watch(self._woken)
        self._topic = await node.topic(TOPIC, self._events, check_incoming)
        await self._topic.open(self._update_note)
        self._update_note()
        peer.membership.on_change(self._roster_changed)
        self._meanings.open()
        self._tasks.start(self._follow(), "follow the market's log")
        sweeping = self._upkeep.sweep(self.sweep_seconds, self._update_note, self._catch_up)
        self._tasks.start(sweeping, "sweep the market")
        self._tasks.start(deliver(node, self.deliver_seconds), "send what waits in the outbox")

    async def stop(self) -> None:
        """Close the view; the next start reads the missing events from the log."""
        await self._tasks.close()
        if hasattr(self, "_topic"):
            await self._topic.close()
        if hasattr(self, "_meanings"):
            await self._meanings.close()
            await asyncio.to_thread(self._view.close)
            await self._muting.close()

    def offers(self) -> list[Offer]:
        """Return the offers; that of the event log is for this topic."""
        others = [offer for offer in super().offers() if offer.capability != _SYNC]
        return [*others, Offer(capability=_SYNC, params={"topic": TOPIC})]

    @capability("community.log.sync@1.0")
    async def sync(self, call: Call[SyncParams, SyncInput]) -> Reply:
        """Return the events of the market that the caller lacks, a page of them."""
        wanted = call.input
        given = (wanted.heads, wanted.limit, wanted.bodies, wanted.packs, wanted.compact, wanted.after)
        return Reply(await self._topic.page(call.caller, *given))

    @capability("market.list@1.0")
    async def list_posts(self, call: Call[Any, ListInput]) -> Reply:
        """Return current posts, newest or nearest first.

        With `since_lamport`, return the posts that changed and those that ended or were hidden since.
        """
        without = frozenset[str]() if call.input.muted else await self._muting.left_out(call)
        posts, lamport = await self._look(self._view.current, call.input, now_ms(), without)
        output: dict[str, Any] = {"posts": posts, "max_lamport": lamport}
        if call.input.muted:
            output["muted"] = await self._muting.shown(call)
        if call.input.since_lamport and not call.input.hidden:
            ended = await self._look(self._view.removed, call.input.since_lamport)
            hidden = await self._look(self._view.hidden, call.input.since_lamport)
            removed = dict.fromkeys(one["event_id"] for one in [*ended, *hidden])
            output |= {"removed": list(removed), "ended": ended, "hidden": hidden}
        return Reply(output)

    @capability("market.search@1.0")
    async def search(self, call: Call[Any, SearchInput]) -> Reply:
        """Return current posts by words, and by meaning while the mesh has an `embed.text`."""
        wanted, without = call.input, await self._muting.left_out(call)
        found = await self._meanings.search(wanted.query, wanted.k, call.remaining(), without)
        posts = with_km(found.posts, wanted.near)
        return Reply({"posts": posts, "max_lamport": found.lamport}, {"degraded": found.degraded})

    @capability("market.post@1.0", event_sourced=True, erasable=True)
    async def post(self, call: Call[Any, PostInput]) -> Reply:
        """Create a post, once for each client id of its author."""
        data = without_unknown(msgspec.to_builtins(call.input))
        check_text(data)
        if (erased := await self._erased(call)) is not None:
            return erased
        recorded = await self._decisions.append(call, CREATED, data)
        # The event is recorded, so the reply is a success even if the view cannot follow yet (a full disk).
        await guarded(self._catch_up(), "following what was recorded")
        # Another process may have deleted the post before this process read that event.
        return await self._erased(call) or reply_of(recorded)

    @capability("market.update@1.0", event_sourced=True, erasable=True)
    async def update(self, call: Call[Any, UpdateInput]) -> Reply:
        """Update a post of the caller."""
        wanted = call.input
        check_text(wanted.fields, "/input/fields")
        return await self._change(call, UPDATED, lambda post, mine, level: update_of(wanted, post, mine))

    @capability("market.expire@1.0", event_sourced=True, erasable=True, takes_back=True)
    async def expire(self, call: Call[Any, ExpireInput]) -> Reply:
        """End a post early."""
        wanted = call.input
        check_text({"note": wanted.note})
        return await self._change(call, EXPIRED, lambda post, mine, level: end_of(wanted, post, mine, level))

    @capability("market.hide@1.0", event_sourced=True, erasable=True, takes_back=True)
    async def hide(self, call: Call[Any, HideInput]) -> Reply:
        """Hide a post from lists and searches; members can list it with the reason."""
        check_text({"reason": call.input.reason})
        return await self._change(call, HIDDEN, lambda post, mine, level: hiding_of(call.input, post, level))

    @capability("market.unhide@1.0", event_sourced=True, erasable=True, takes_back=True)
    async def unhide(self, call: Call[Any, HideInput]) -> Reply:
        """Take back what hides a post."""
        check_text({"reason": call.input.reason})

        def decide(post: PostState, mine: Collection[str], level: str) -> dict[str, Any]:
            return unhiding_of(call.input, post, call.principal, mine, level)

        return await self._change(call, UNHIDDEN, decide)

    @capability("market.reserve@1.0", event_sourced=True, erasable=True)
    async def reserve(self, call: Call[Any, ReserveInput]) -> Reply:
        """Take a step of the borrower of what a post offers."""
        wanted = call.input
        check_text({"note": wanted.note})
        kind = lending.RESERVED if wanted.step == "ask" else lending.BORROWER
        return await self._change(
            call, kind, lambda post, mine, level: reservation_of(wanted, post, mine), ended=True
        )

    @capability("market.lend@1.0", event_sourced=True, erasable=True)
    async def lend(self, call: Call[Any, LendInput]) -> Reply:
        """Decide about a reservation as the author of the post."""
        return await self._change(
            call, lending.LENDER, lambda post, mine, level: lending_of(call.input, post, mine), ended=True
        )

    @capability("market.mute@1.0", erasable=True)
    async def mute(self, call: Call[Any, MuteInput]) -> Reply:
        """Leave the posts of an author out of lists and searches of the caller, or show them again."""
        await self._muting.decide(call)
        return Reply({"muted": call.input.muted})

    @capability("market.remove_person@1.0")
    async def remove_person(self, call: Call[Any, PersonInput]) -> Reply:
        """Delete what the service keeps for a removed person of the home alone."""
        return Reply({"mutes_removed": await self._muting.forget(call.input.person)})

    @capability("market.delete@1.0", event_sourced=True, erasable=True, takes_back=True)
    async def delete(self, call: Call[Any, DeleteInput]) -> Reply:
        """Delete one post or all posts of the caller from the view, the log and its disk.

        The home's owner may delete any post. A token does not carry that right.
        """
        wanted, own, mine = call.input, self._node.identity.node_id, self._node.principals_of(call)
        is_owner = call.caller == call.principal == own and not call.token

        async def decide() -> tuple[dict[str, Any], int]:
            found, left, place = await self._look(self._view.written, mine, wanted.event_id)
            if not found:
                what = f"no post {wanted.event_id}" if wanted.event_id else "nothing of yours"
                raise HearthNetError("not_found", f"there is {what}; see: market.export")
            if not is_owner and any(not answers_for(mine, post["author"]) for post in found):
                raise HearthNetError("unauthorized", "only its author may delete a post; see: market.expire")
            return {"client_id": wanted.client_id, "posts": found, "remaining": left}, place

        recorded = await self._decisions.append_decided(call, DELETED, decide)
        await guarded(self._upkeep.erase(), "erasing what was deleted")
        waiting = set(await self._look(self._view.erasing, ERASED_AT_ONCE))
        acts = [act["lamport"] for post in recorded.event.data["posts"] for act in post["acts"]]
        return reply_of(recorded, erased=waiting.isdisjoint(acts))

    @capability("market.export@1.0")
    async def export(self, call: Call[Any, ExportInput]) -> Reply:
        """Return the events of the caller, or of one post, with the frames that prove authorship."""
        wanted, mine = call.input, self._node.principals_of(call)
        if wanted.event_id:
            standing, _ = await self._look(self._view.standing, wanted.event_id, mine)
            if standing is None or not (standing.current or concerns(standing, mine)):
                raise no_post(wanted.event_id)
        arguments = (mine, wanted.event_id, wanted.since_lamport, wanted.limit + 1)
        places = await self._look(self._view.acts, *arguments)
        found = [await self._events.at(place) for place in places[: wanted.limit]]
        output = exported([recorded for recorded in found if recorded is not None])
        made = [event["event_id"] for event in output["events"] if event["event_type"] == CREATED]
        posts = await self._look(self._view.posts, made)
        more = len(places) > wanted.limit
        upto = places[wanted.limit - 1] if more else max([wanted.since_lamport, *places])
        return Reply({**output, "posts": posts, "more": more, "max_lamport": upto})

    async def outcome(
        self, principal: str, idempotency_key: str, arguments_digest: str
    ) -> dict[str, Any] | None:
        """Return the output of an earlier call, even if its event was erased since."""
        found = await self._events.outcome(principal, idempotency_key, arguments_digest)
        if found is not None:
            recorded = await self._events.at(found["lamport"])
            return found if recorded is None else reply_output(recorded)
        erased = await self._look(self._view.erased, (principal,), idempotency_key)
        if erased is None or erased.digest != arguments_digest:
            return None
        return {"event_id": erased.event_id, "lamport": erased.lamport}

    async def _change(
        self, call: Call[Any, Any], event_type: str, data_of: _DataOf, *, ended: bool = False
    ) -> Reply:
        """Append the event that changes a current post, or one that has `ended`, once."""

        async def decide() -> tuple[dict[str, Any], int]:
            mine = self._node.principals_of(call)
            level = level_of(call.principal, self._node.bus.peer.roster)
            standing, place = await self._current(call.input.event_id, mine, ended=ended)
            return data_of(standing, mine, level), place

        return await self._erased(call) or reply_of(
            await self._decisions.append_decided(call, event_type, decide)
        )

    async def _current(
        self, event_id: str, mine: Collection[str], *, ended: bool = False
    ) -> tuple[PostState, int]:
        """Return a current post, one of `mine` first, and the place of the log that this reflects.

        Raises:
            HearthNetError: `not_found` if there is none.
        """
        standing, place = await self._look(self._view.standing, event_id, mine)
        if standing is None or not (standing.current or ended):
            raise no_post(event_id)
        return standing, place

    async def _erased(self, call: Call[Any, Any]) -> Reply | None:
        """Return the reply to a call whose event was erased since, or None.

        Raises:
            HearthNetError: `bad_request` if the client id was used with other arguments.
        """
        authors = self._node.principals_of(call)
        found: Erased | None = await self._look(self._view.erased, authors, call.idempotency_key)
        if found is None:
            return None
        if found.digest != call.arguments_digest:
            raise reused(call.idempotency_key)
        return Reply({"event_id": found.event_id, "lamport": found.lamport}, {"repeated": True})

    def _quota_used(self, caller: str) -> None:
        self._notes.quota_used(caller, now_ms())
        self._update_note()

    def _update_note(self) -> None:
        note = self._notes.text(self._topic.state, now_ms())
        if note != self.note:
            self.note = note
            self.offers_changed()

    async def _catch_up(self) -> None:
        """Read the log up to its end, so that events of this process are visible in the view."""
        async with self._catching_up:
            try:
                await self._derive()
            except DamagedView as error:
                _log.warning("the view is damaged and derived anew: %s", error)
                await self._derive()

    async def _derive(self) -> None:
        log, last = await self._events.place()
        after = await asyncio.to_thread(self._view.follow, log, last)
        if after < last:
            await apply_events(self._events, self._view, after)
            await asyncio.to_thread(self._view.reached, log, last)
            self._meanings.wake()
        await asyncio.to_thread(self._view.settle, log, last)

    async def _look(self, query: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Run a query of the view; a damaged view is derived again first."""
        try:
            return await asyncio.to_thread(query, *arguments)
        except DamagedView as error:
            _log.warning("the view is damaged, the answer waits for it: %s", error)
            await self._catch_up()
            return await asyncio.to_thread(query, *arguments)

    async def _follow(self) -> None:
        """Apply appended events soon after their announcement, and poll in case one is lost."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.follow_seconds):
                    await self._woken.wait()
            self._woken.clear()
            for pause in _LOOKS:
                await asyncio.sleep(pause)
                await guarded(self._catch_up(), "following the log")
            if self._has_new_rights:
                self._has_new_rights = False
                await guarded(asyncio.to_thread(self._view.retry), "applying what waited")
                self._meanings.wake()
            # Deletions of other homes are erased here as soon as they arrive.
            await guarded(self._upkeep.erase(), "erasing what was deleted")

    def _roster_changed(self) -> None:
        self._has_new_rights = True
        self._woken.set()
