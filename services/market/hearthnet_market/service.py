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
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from hearthnet import Call, HearthNetError, NodeContext, Reply, Service, capability
from hearthnet.bus import Outbox
from hearthnet.core import TaskSet, now_ms, short_id
from hearthnet.service import EventLog, LogAdvanced, Recorded
from hearthnet_market.database import DamagedView
from hearthnet_market.export import exported
from hearthnet_market.read_model import View
from hearthnet_market.schemas import (
    CREATED,
    DELETED,
    EXPIRED,
    UPDATED,
    DeleteInput,
    Erased,
    ExpireInput,
    ExportInput,
    ListInput,
    PostInput,
    SearchInput,
    UpdateInput,
    answers_for,
    check_expiry,
    check_text,
    check_update,
    no_post,
    sweep_id,
    without_unknown,
)
from hearthnet_market.semantic_search import SemanticIndex

_log = logging.getLogger(__name__)
STREAM: Final = "MARKET"
PREFIX: Final = "mk.post"
_LOOKS: Final = (0.0, 0.05, 0.3)
"""Seconds before each reading of the log: an event is announced while it is still on its way to disk."""
_SWEPT_AT_ONCE: Final = 100
_ERASED_AT_ONCE: Final = 500
_QUOTA_RULE: Final = "bytes_a_day"
_DAY_MS: Final = 24 * 3_600_000
_Answer = TypeVar("_Answer")
_Decision = Callable[[], Awaitable[tuple[dict[str, Any], int]]]
"""Returns an event's data and the place of the log on which it is based, or raises the refusal."""


class MarketService(Service):
    """Posts of the community: list, search, post, update, expire, delete, export."""

    name: ClassVar[str] = "market"
    sweep_seconds: ClassVar[float] = 60.0
    follow_seconds: ClassVar[float] = 5.0
    deliver_seconds: ClassVar[float] = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._woken = asyncio.Event()
        self._catching_up = asyncio.Lock()
        self._tasks = TaskSet()
        self._noted_day = 0
        """The day (UTC) of `note`, counted from 1970."""

    async def start(self, node: NodeContext) -> None:
        """Open the view, bring it up to the log, and start the background tasks."""
        self._node = node
        self._view = await asyncio.to_thread(View, node.data / "view.db")
        self._meanings = SemanticIndex(node.bus, self._view, self._look)
        self._events = EventLog(
            await node.store(),
            STREAM,
            PREFIX,
            node.bus.peer.community,
            home=node.home,
            own=node.identity.node_id,
        )
        await self._catch_up()
        await self._events.watch(self._woken)
        self._meanings.open()
        self._tasks.start(self._follow(), "follow the market's log")
        self._tasks.start(self._sweep(), "sweep the market")
        self._tasks.start(self._deliver(), "send what waits in the outbox")

    async def stop(self) -> None:
        """Close the view; the next start reads the missing events from the log."""
        await self._tasks.close()
        if hasattr(self, "_meanings"):
            await self._meanings.close()
            await asyncio.to_thread(self._view.close)

    @capability("market.list@1.0")
    async def list_posts(self, call: Call[Any, ListInput]) -> Reply:
        """Return current posts, newest first.

        With `since_lamport`, return the posts that changed and those that ended since.
        """
        posts, lamport = await self._look(self._view.current, call.input, now_ms())
        output: dict[str, Any] = {"posts": posts, "max_lamport": lamport}
        if call.input.since_lamport:
            ended = await self._look(self._view.removed, call.input.since_lamport)
            output |= {"removed": [one["event_id"] for one in ended], "ended": ended}
        return Reply(output)

    @capability("market.search@1.0")
    async def search(self, call: Call[Any, SearchInput]) -> Reply:
        """Return current posts by words, and by meaning while the mesh has an `embed.text`."""
        found = await self._meanings.search(call.input.query, call.input.k, call.remaining())
        return Reply({"posts": found.posts, "max_lamport": found.lamport}, {"degraded": found.degraded})

    @capability("market.post@1.0", event_sourced=True, erasable=True)
    async def post(self, call: Call[Any, PostInput]) -> Reply:
        """Create a post, once for each client id of its author."""
        data = without_unknown(msgspec.to_builtins(call.input))
        check_text(data)
        if (erased := await self._erased(call)) is not None:
            return erased
        recorded = await self._append(call, CREATED, data)
        # The event is recorded, so the reply is a success even if the view cannot follow yet (a full disk).
        await self._guarded(self._catch_up(), "following what was recorded")
        # Another process may have deleted the post before this process read that event.
        return await self._erased(call) or _reply(recorded)

    @capability("market.update@1.0", event_sourced=True, erasable=True)
    async def update(self, call: Call[Any, UpdateInput]) -> Reply:
        """Update a post of the caller."""
        wanted = call.input
        check_text(wanted.fields, "/input/fields")

        async def decide() -> tuple[dict[str, Any], int]:
            standing, place = await self._look(self._view.standing, wanted.event_id)
            if standing is None or not standing.current:
                raise no_post(wanted.event_id)
            check_update(standing, call.principal, wanted.expected_lamport)
            return {
                "client_id": wanted.client_id,
                "target_event_id": wanted.event_id,
                "fields": without_unknown(wanted.fields),
            }, place

        return await self._erased(call) or _reply(await self._decided(call, UPDATED, decide))

    @capability("market.expire@1.0", event_sourced=True, erasable=True, takes_back=True)
    async def expire(self, call: Call[Any, ExpireInput]) -> Reply:
        """End a post early."""
        wanted = call.input
        check_text({"note": wanted.note})

        async def decide() -> tuple[dict[str, Any], int]:
            standing, place = await self._look(self._view.standing, wanted.event_id)
            if standing is None or not standing.current:
                raise no_post(wanted.event_id)
            level = self._node.bus.peer.roster.level(call.principal)
            check_expiry(standing.author, call.principal, level, wanted.reason)
            return {
                "client_id": wanted.client_id,
                "target_event_id": wanted.event_id,
                "reason": wanted.reason,
                **({"note": wanted.note} if wanted.note else {}),
            }, place

        return await self._erased(call) or _reply(await self._decided(call, EXPIRED, decide))

    @capability("market.delete@1.0", event_sourced=True, erasable=True, takes_back=True)
    async def delete(self, call: Call[Any, DeleteInput]) -> Reply:
        """Delete one post or all posts of the caller from the view, the log and its disk.

        The home's owner may delete the post of anybody. A token does not carry that right.
        """
        wanted, own = call.input, self._node.identity.node_id
        is_owner = call.caller == call.principal == own and not call.token

        async def decide() -> tuple[dict[str, Any], int]:
            found, left, place = await self._look(self._view.written, call.principal, wanted.event_id)
            if not found:
                what = f"no post {wanted.event_id}" if wanted.event_id else "nothing of yours"
                raise HearthNetError("not_found", f"there is {what}; see: market.export")
            if not is_owner and any(not answers_for(call.principal, post["author"]) for post in found):
                raise HearthNetError("unauthorized", "only its author may delete a post; see: market.expire")
            return {"client_id": wanted.client_id, "posts": found, "remaining": left}, place

        recorded = await self._decided(call, DELETED, decide)
        await self._guarded(self._erase(), "erasing what was deleted")
        waiting = set(await self._look(self._view.erasing, _ERASED_AT_ONCE))
        acts = [act["lamport"] for post in recorded.event.data["posts"] for act in post["acts"]]
        return _reply(recorded, erased=waiting.isdisjoint(acts))

    @capability("market.export@1.0")
    async def export(self, call: Call[Any, ExportInput]) -> Reply:
        """Return the events of the caller, or of one post, with the frames that prove authorship."""
        wanted = call.input
        if wanted.event_id:
            standing, _ = await self._look(self._view.standing, wanted.event_id)
            if standing is None or not (standing.current or answers_for(call.principal, standing.author)):
                raise no_post(wanted.event_id)
        arguments = (call.principal, wanted.event_id, wanted.since_lamport, wanted.limit + 1)
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
            return found if recorded is None else _call_output(recorded)
        erased = await self._look(self._view.erased, principal, idempotency_key)
        if erased is None or erased.digest != arguments_digest:
            return None
        return {"event_id": erased.event_id, "lamport": erased.lamport}

    async def _erased(self, call: Call[Any, Any]) -> Reply | None:
        """Return the reply to a call whose event was erased since, or None.

        Raises:
            HearthNetError: `bad_request` if the client id was used with other arguments.
        """
        found: Erased | None = await self._look(self._view.erased, call.principal, call.idempotency_key)
        if found is None:
            return None
        if found.digest != call.arguments_digest:
            raise HearthNetError(
                "bad_request",
                f"client_id {call.idempotency_key} was used for something else; make a new one",
                details={"path": "/input/client_id", "rule": "reused"},
            )
        return Reply({"event_id": found.event_id, "lamport": found.lamport}, {"repeated": True})

    async def _decided(self, call: Call[Any, Any], event_type: str, decide: _Decision) -> Recorded:
        """Append the event that `decide` returns directly after the place that it is based on.

        A repeated call returns the first event, even if the post has changed since.
        """
        behind = True
        while call.allowed() > 0:
            try:
                data, place = await decide()
            except HearthNetError:
                if await self._events.known(call):
                    return await self._events.append(call, event_type, {})
                if not behind:
                    raise
                behind = False
                await self._catch_up()
                continue
            try:
                recorded = await self._append(call, event_type, data, after=place)
            except LogAdvanced:
                await self._catch_up()
                continue
            await self._guarded(self._catch_up(), "following what was recorded")
            return recorded
        raise HearthNetError(
            "partition",
            "too much happens on the market just now; send it again",
            details={"rule": "contended"},
        )

    async def _append(
        self, call: Call[Any, Any], event_type: str, data: dict[str, Any], after: int | None = None
    ) -> Recorded:
        """Append an event; a member that has used up its quota is named in the status of the service."""
        takes_back = event_type in (EXPIRED, DELETED)
        try:
            return await self._events.append(
                call, event_type, data, after=after, takes_back=takes_back, for_good=event_type == DELETED
            )
        except HearthNetError as error:
            if error.rule == _QUOTA_RULE and self.note is None:
                self.note = (
                    f"{short_id(call.caller)} has added all that it may today; see: hearthnet market erase"
                )
                self._noted_day = now_ms() // _DAY_MS
                self.offers_changed()
            raise

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
            await self._apply_events(after)
            await asyncio.to_thread(self._view.reached, log, last)
            self._meanings.wake()
        await asyncio.to_thread(self._view.settle, log, last)

    async def _apply_events(self, after: int) -> None:
        """Apply the events after place `after`; the next batch is read while one is applied."""
        applying: asyncio.Task[None] | None = None
        try:
            async for batch in self._events.read(after):
                if applying is not None:
                    await applying
                applying = asyncio.create_task(asyncio.to_thread(self._view.apply, batch))
        finally:
            if applying is not None:
                await applying

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
                await self._guarded(self._catch_up(), "following the log")

    async def _sweep(self) -> None:
        """End overdue posts by ordinary calls of this node, and finish interrupted erasures."""
        await self._guarded(self._erase(), "erasing what was deleted")
        while True:
            await asyncio.sleep(self.sweep_seconds)
            if self.note is not None and self._noted_day != now_ms() // _DAY_MS:
                self.note = None
                self.offers_changed()
            await self._guarded(self._sweep_once(), "sweeping")
            await self._guarded(self._erase(), "erasing what was deleted")

    async def _sweep_once(self) -> None:
        while overdue := await self._look(self._view.overdue, now_ms(), _SWEPT_AT_ONCE):
            for event_id in overdue:
                ended = {"client_id": sweep_id(event_id), "event_id": event_id, "reason": "stale"}
                try:
                    await self._node.bus.call("market.expire@1.0", {"params": {}, "input": ended})
                except HearthNetError as error:
                    if error.code != "not_found":  # another process ended it first
                        raise
            await self._catch_up()

    async def _deliver(self) -> None:
        """Send the calls that were stored while this node was away (docs/decisions/0125)."""
        outbox = Outbox(self._node.home, self._node.bus.peer.identity)
        while True:
            await asyncio.sleep(self.deliver_seconds)
            await self._guarded(outbox.deliver(self._node.bus.call, now_ms), "sending what waits")

    async def _erase(self) -> None:
        """Have the server overwrite events of deleted posts, and the view drop their words."""
        while places := await asyncio.to_thread(self._view.erasing, _ERASED_AT_ONCE):
            for place in places:
                await self._events.erase(place)
            await asyncio.to_thread(self._view.record_erased, places)

    async def _guarded(self, work: Any, what: str) -> None:
        try:
            await work
        except (HearthNetError, sqlite3.Error, OSError, DamagedView) as error:
            _log.warning("%s: %s; tried again later", what, error)


def _reply(recorded: Recorded, **meta: bool) -> Reply:
    return Reply(_call_output(recorded), {"repeated": recorded.repeated, **meta})


def _call_output(recorded: Recorded) -> dict[str, Any]:
    """Return the output of the call that made this event; a deletion's has its counts."""
    output: dict[str, Any] = {"event_id": recorded.event.event_id, "lamport": recorded.lamport}
    if recorded.event.event_type == DELETED:
        data = recorded.event.data
        output |= {"deleted": len(data["posts"]), "remaining": data["remaining"]}
    return output
