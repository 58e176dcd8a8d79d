"""The market service (capabilities.md, "market"; wire.md, "Effects happen once").

The event log is the only writer: a post or an end is an append, and the view follows the log, whoever
appended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet.service import Call, NodeContext, Offer, Reply, Service, capability
from hearthnet.service.events import EventLog, Recorded
from hearthnet.service.tasks import TaskSet
from hearthnet.times import now_ms
from hearthnet_market.posts import (
    CREATED,
    EXPIRED,
    ExpireInput,
    ListInput,
    NoParams,
    PostInput,
    SearchInput,
    check_expiry,
    sweep_id,
)
from hearthnet_market.view import Damaged, View

_log = logging.getLogger(__name__)
STREAM: Final = "MARKET"
PREFIX: Final = "mk.post"
SWEEP_SECONDS: Final = 60.0
FOLLOW_SECONDS: Final = 5.0
_LOOKS: Final = (0.0, 0.05, 0.3)
"""Seconds before each look at the log: word of an event comes while it is still on its way to the disk."""
_SWEPT_AT_ONCE: Final = 100
_Answer = TypeVar("_Answer")


class MarketService(Service):
    """Posts of the community: list, search, post, expire."""

    name: ClassVar[str] = "market"
    sweep_seconds: ClassVar[float] = SWEEP_SECONDS
    follow_seconds: ClassVar[float] = FOLLOW_SECONDS

    _node: NodeContext
    _view: View
    _events: EventLog

    def __init__(self) -> None:
        super().__init__()
        self._woken = asyncio.Event()
        self._catching_up = asyncio.Lock()
        self._tasks = TaskSet()

    async def start(self, node: NodeContext) -> None:
        """Opens the view and brings it up to the log."""
        self._node = node
        self._view = await asyncio.to_thread(View, node.data / "view.db")
        self._events = EventLog(await node.store(), STREAM, PREFIX, node.bus.peer.community, home=node.home)
        await self._catch_up()
        await self._events.watch(self._woken)
        self._tasks.start(self._follow(), "follow the market's log")
        self._tasks.start(self._sweep(), "sweep the market")

    def offers(self) -> list[Offer]:
        """All four capabilities."""
        return [Offer(capability=f"market.{verb}@1.0") for verb in ("list", "search", "post", "expire")]

    async def stop(self) -> None:
        """Closes the view; what it lacks it reads from the log at the next start."""
        await self._tasks.close()
        if hasattr(self, "_view"):
            await asyncio.to_thread(self._view.close)

    @capability("market.list@1.0")
    async def list_posts(self, call: Call[NoParams, ListInput]) -> Reply:
        """Current posts, newest first; with `since_lamport` also what ended since."""
        posts, lamport = await self._look(self._view.current, call.input, now_ms())
        output: dict[str, Any] = {"posts": posts, "max_lamport": lamport}
        if call.input.since_lamport:
            output["removed"] = await self._look(self._view.removed, call.input.since_lamport)
        return Reply(output)

    @capability("market.search@1.0")
    async def search(self, call: Call[NoParams, SearchInput]) -> Reply:
        """Current posts by the words they share with the query; meanings need an `embed.text` in the mesh."""
        posts, lamport = await self._look(self._view.search, call.input.query, call.input.k, now_ms())
        return Reply({"posts": posts, "max_lamport": lamport}, {"degraded": True})

    @capability("market.post@1.0", event_sourced=True)
    async def post(self, call: Call[NoParams, PostInput]) -> Reply:
        """Puts a post on the market, once for each client id of its author."""
        return await self._record(call, CREATED, msgspec.to_builtins(call.input))

    @capability("market.expire@1.0", event_sourced=True)
    async def expire(self, call: Call[NoParams, ExpireInput]) -> Reply:
        """Ends a post early. A repetition gets the first outcome, so it is looked up before the post is."""
        wanted = call.input
        author = await self._look(self._view.author, wanted.event_id)
        if author is not None:
            level = self._node.bus.peer.roster.level(call.principal)
            check_expiry(author, call.principal, level, wanted.reason)
        elif not await self._events.known(call):
            raise HearthNetError("not_found", f"there is no current post {wanted.event_id}; see: market.list")
        data = {"client_id": wanted.client_id, "target_event_id": wanted.event_id, "reason": wanted.reason}
        return await self._record(call, EXPIRED, data)

    async def outcome(
        self, principal: str, idempotency_key: str, arguments_digest: str
    ) -> dict[str, Any] | None:
        """The post or the end that an earlier call recorded."""
        return await self._events.outcome(principal, idempotency_key, arguments_digest)

    async def _record(self, call: Call[Any, Any], event_type: str, data: dict[str, Any]) -> Reply:
        recorded: Recorded = await self._events.append(call, event_type, data)
        # It has happened, and the answer says so even where the view cannot follow yet (a full disk).
        await self._guarded(self._catch_up(), "following what was recorded")
        return Reply(
            {"event_id": recorded.event.event_id, "lamport": recorded.lamport},
            {"repeated": recorded.repeated},
        )

    async def _catch_up(self) -> None:
        """Takes in what the log has and the view has not: after it, what this process wrote can be read."""
        async with self._catching_up:
            try:
                await self._derive()
            except Damaged as error:
                _log.warning("the view is damaged and derived anew: %s", error)
                await self._derive()

    async def _derive(self) -> None:
        log, last = await self._events.place()
        after = await asyncio.to_thread(self._view.follow, log, last)
        if after < last:
            async for batch in self._events.read(after):
                await asyncio.to_thread(self._view.apply, batch)
        await asyncio.to_thread(self._view.settle, log, last)

    async def _look(self, question: Callable[..., _Answer], *given: Any) -> _Answer:
        """What the view says to `question`; one that is damaged is derived anew first."""
        try:
            return await asyncio.to_thread(question, *given)
        except Damaged as error:
            _log.warning("the view is damaged, the answer waits for it: %s", error)
            await self._catch_up()
            return await asyncio.to_thread(question, *given)

    async def _follow(self) -> None:
        """Takes in what others append, soon after they do, and looks by itself should word of it be lost."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.follow_seconds):
                    await self._woken.wait()
            self._woken.clear()
            for pause in _LOOKS:
                await asyncio.sleep(pause)
                await self._guarded(self._catch_up(), "following the log")

    async def _sweep(self) -> None:
        """Records the end of posts past their time, as a call of this node like any other."""
        while True:
            await asyncio.sleep(self.sweep_seconds)
            await self._guarded(self._sweep_once(), "sweeping")

    async def _sweep_once(self) -> None:
        for event_id in await self._look(self._view.overdue, now_ms(), _SWEPT_AT_ONCE):
            ended = {"client_id": sweep_id(event_id), "event_id": event_id, "reason": "stale"}
            await self._node.bus.call("market.expire@1.0", {"params": {}, "input": ended})

    async def _guarded(self, work: Any, what: str) -> None:
        try:
            await work
        except (HearthNetError, sqlite3.Error, Damaged) as error:
            _log.warning("%s: %s; tried again later", what, error)
