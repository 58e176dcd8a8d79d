"""One topic of the community's event log, at one process of a home.

    own event, in the topic's stream    -> an entry in this node's chain, on the disk, then an announcement
    event of another home               -> checked; its text in the topic's stream, its entry in its chain
    heads of two homes differ           -> the one with less fetches pages (`community.log.sync`)
    entry without its body              -> the body is asked for, since it may have been kept back

See: docs/protocol/log.md, docs/decisions/0211.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.gossip_frames import GossipReader, SetDigest
from hearthnet.bus.store import Store
from hearthnet.core.canonical_json import read_json
from hearthnet.core.config import CommunityConfig
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import short_id
from hearthnet.core.rationed_log import RationedLog
from hearthnet.core.restore_mark import read_mark
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import from_rfc3339, now_ms
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import FrameError
from hearthnet.service.community.heads_exchange import HeadsExchange
from hearthnet.service.effects.event_log import EventLog
from hearthnet.service.eventlog.chain_store import ChainRecord, ChainStore
from hearthnet.service.eventlog.history_meter import HistoryMeter
from hearthnet.service.eventlog.publisher import Publisher
from hearthnet.service.eventlog.topic_chains import TopicChains
from hearthnet.service.eventlog.topic_intake import Check, TopicIntake
from hearthnet.trust import signed_document
from hearthnet.trust.eventlog import packed_events
from hearthnet.trust.eventlog.chain_ends import MAX_ENDS, Heads
from hearthnet.trust.eventlog.chains import MAX_BRANCHES
from hearthnet.trust.eventlog.entries import LogEvent

_log = logging.getLogger(__name__)
SYNC: Final = "community.log.sync@1.0"
_PAGE: Final = 500
_MOST_PAGES: Final = 400
_MOST_INVALID: Final = 100
"""Events of one node that do not prove themselves, after which no more is fetched from it for now."""
_ASK_SECONDS: Final = 15.0
_LONGEST_SECONDS: Final = 60.0
"""Time after which a fetch ends with its page, so that a home that answers slowly keeps no other one back."""
_SLICE: Final = 500
"""Events that are verified and written at a time."""
_MOST_WAITING: Final = 4_000
_MOST_PASSED_OVER: Final = MAX_ENDS - MAX_BRANCHES
"""Ends of one author's chain that are named though they are not held."""
_AGAIN_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 1.0
_HEADS: Final = msgspec.json.Decoder(SetDigest)
_EVENT: Final = msgspec.json.Decoder(LogEvent)


class TopicState(msgspec.Struct, frozen=True):
    """How a topic stands at this home.

    `left` is how many entries are still to be fetched from the home that is asked just now; `forks` are the
    authors whose chain forks; `waits_for_day` says that own events wait for the next day.
    """

    entries: int
    left: int
    forks: tuple[str, ...]
    waits_for_day: bool


class TopicLog:
    """The topic `topic`, whose events are in `events`; `check` judges what another home wrote."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        home: Home,
        topic: str,
        events: EventLog,
        check: Check,
        chosen: CommunityConfig,
    ) -> None:
        self._bus, self._peer, self._home = bus, bus.peer, home
        self._topic = topic
        self._chosen = chosen
        membership = bus.peer.membership
        self._intake = TopicIntake(topic, bus.peer.community, bus.peer.node_id, membership, check)
        stored = ChainStore(store, home, topic, bus.peer.community)
        self._held = TopicChains(stored, events, self._intake.is_told)
        self._publisher = Publisher(bus.peer, topic, events, self._held, self._tell_change)
        self._reader = GossipReader(
            bus.peer.node_id,
            bus.peer.community,
            lambda sender: membership.roster.level(sender),
            lambda sender: membership.roster.line(sender),
        )
        heads_type = f"community.heads.{topic}"
        self._heads = HeadsExchange(
            bus.peer, heads_type, self._reader, _HEADS, self._held.digest, self._fetch, self._compared
        )
        self._tasks = TaskSet()
        self._records, self._incoming = asyncio.Event(), asyncio.Event()
        self._ready = asyncio.Event()
        """Set once the chains are read."""
        self._waiting: dict[str, LogEvent] = {}
        self._drop_log = RationedLog(_log, logging.INFO)
        self._changed: Callable[[], None] = lambda: None
        self._left = 0

    @property
    def state(self) -> TopicState:
        """How the topic stands now."""
        chains = self._held.chains
        return TopicState(len(chains), self._left, tuple(chains.forks), self._publisher.waits_for_day)

    @property
    def dropped(self) -> tuple[int, tuple[str, ...]]:
        """The number of events of others that were not taken in, and why the last ones were not."""
        return self._intake.dropped, tuple(self._intake.faults)

    async def open(self, changed: Callable[[], None]) -> None:
        """Begin to read the chains, and then to publish events that have no entry yet and to exchange.

        `changed` is called after each change of `state`. A start does not wait for the chains, which grow
        with all that others have written.
        """
        self._changed = changed
        mark = await asyncio.to_thread(read_mark, self._home)
        has_others = len(self._peer.roster.members) > 1
        self._publisher.is_held = has_others and mark is not None and not mark.alone
        self._tasks.keep(self._begin, "read the chains")

    async def _begin(self) -> None:
        async with self._held.writing:
            await self._held.catch_up()
        self._history = HistoryMeter(self._chosen, self._away_seconds())
        await self._held.watch(self._records)
        await self._publisher.open()
        await self._peer.link.subscribe(subjects.events_of(self._publisher.event_type), self._on_news)
        self._peer.membership.on_change(self._held.roster_changed)
        await self._heads.open()
        for work in (self._publisher.run, self._follow, self._merge):
            self._tasks.keep(work, work.__qualname__)
        self._ready.set()
        self._changed()

    async def close(self) -> None:
        """Stop the exchange, after writing the events of the batch at hand if the store answers."""
        await self._heads.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS), self._held.writing:
                await self._tasks.close()
        await self._tasks.close()

    async def page(
        self,
        caller: str,
        heads: dict[str, list[str]],
        limit: int,
        bodies: Sequence[str] = (),
        packs: bool = False,
        compact: bool = False,
        after: str = "",
    ) -> dict[str, Any]:
        """Return the output of `community.log.sync`: what a node with `heads` lacks, and some `bodies`.

        With `packs` or `compact` the events are compressed. With `after` they are those behind that place.

        Raises:
            HearthNetError: `bad_request` if `heads` or `after` is malformed; `partition` if the store does
                not answer.
        """
        await self._ready.wait()  # for at most the time of the call
        if self._held.chains.lacks(heads):
            self._heads.ask(caller)
        events, left = await self._held.page(heads, limit, after)
        page = {"events": events, "left": left, "bodies": await self._held.bodies(bodies)}
        page["next"] = events[-1].entry.page_place if events else ""
        if compact:
            page |= {"events": (), "compact": await asyncio.to_thread(packed_events.pack_compact, events)}
        elif packs:
            page |= {"events": (), "packed": await asyncio.to_thread(packed_events.pack, events)}
        return page

    def _away_seconds(self) -> float:
        """Return how long ago the newest entry here was written; without one, the community was founded."""
        since = self._held.chains.newest or from_rfc3339(self._peer.roster.created_at)
        return (now_ms() - since) / 1000

    def _tell_change(self) -> None:
        self._heads.announce()
        self._changed()

    def _compared(self, node: str, heads: SetDigest) -> None:
        """Let a restored home publish: another one has no entry of it that is missing here."""
        if self._publisher.is_held and self._held.digest() == heads:
            self._publisher.release()
        if self._held.bare:
            self._heads.ask(node)

    async def _follow(self) -> None:
        """Read what other processes of this node write."""
        while True:
            await self._records.wait()
            self._records.clear()
            before = len(self._held.chains)
            with contextlib.suppress(HearthNetError):
                async with self._held.writing:
                    await self._held.catch_up()
            if len(self._held.chains) > before:
                self._tell_change()
            await asyncio.sleep(_AGAIN_SECONDS)

    def _on_news(self, subject: str, data: bytes, absent: bool) -> None:
        if not self._reader.budget.admits(subject, len(data)):
            return
        try:
            frame = self._reader.open(subject, data)
            if frame.header.sender == self._peer.node_id:
                return
            batch = read_json(frame.body, gossip_frames.BATCH)
            self._reader.spend(frame.header.sender, len(batch.events))
            for raw in batch.events:
                self._queue(read_json(bytes(raw), _EVENT))
            self._incoming.set()
        except (FrameError, HearthNetError) as error:
            self._intake.drop(str(error))
            self._drop_log.write("dropped an event: %s", error)

    def _queue(self, event: LogEvent) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            raise FrameError("too many events at once; they come again")
        if not self._held.chains.holds(event.entry.hash):
            self._waiting[event.entry.hash] = event

    async def _merge(self) -> None:
        """Take in announced events."""
        while True:
            await self._incoming.wait()
            self._incoming.clear()
            while self._waiting:
                batch = [self._waiting.pop(hash_) for hash_ in list(self._waiting)[:_SLICE]]
                try:
                    await self._take(batch)
                except HearthNetError as error:
                    _log.warning("not taken in, it comes again: %s", error)

    async def _fetch(self, node: str) -> bool:
        """Fetch pages from `node` until it has no more, and return whether anything was new."""
        self._begun = self._held.heads()
        self._asked = asyncio.create_task(self._ask(node, self._begun))
        try:
            return await self._pages(node)
        finally:
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)
            self._left = 0
            self._changed()

    async def _pages(self, node: str) -> bool:
        anything, invalid = False, self._intake.invalid
        beyond: Heads = {}
        place = last = ""
        clock = asyncio.get_running_loop().time
        until = clock() + _LONGEST_SECONDS
        began, spent = clock(), time.process_time()
        for _ in range(_MOST_PAGES):
            if self._history.is_spent:
                most = self._chosen.history_mb
                self._drop_log.write("no more history today: %d MB a day ([community] history_mb)", most)
                break
            output = await self._asked
            events = await asyncio.to_thread(packed_events.events_in, output)
            bodies = signed_document.readable(output["bodies"], LogEvent)
            self._left = int(output["left"])
            if self._left and not events:
                raise HearthNetError("not_found", "it is still writing what it has announced")
            if self._left and clock() < until:  # the next page comes while this one is taken in
                # Nothing that its home took in late is behind a place: a restored home asks by its heads.
                last, place = place, "" if self._publisher.is_held else str(output.get("next", ""))
                named = self._not_taken(events, beyond)
                self._asked = asyncio.create_task(self._ask_next(node, place, named))
            taken = await self._take(events, self._history)
            anything = await self._complete(bodies) or anything or taken > 0
            self._changed()
            passed_over = self._not_taken(events, beyond)
            has_own = not self._left and self._peer.node_id not in passed_over
            if has_own and self._publisher.is_held:
                self._publisher.release()  # all that this home had written is here now
            is_same = place == last if place else not taken and passed_over == beyond
            is_vain = is_same or clock() > until
            if not self._left or is_vain or self._intake.invalid - invalid > _MOST_INVALID:
                break
            beyond = passed_over
            # What passed while the page and the disk were waited for was rest as well.
            await asyncio.sleep(self._history.rest(time.process_time() - spent, clock() - began))
            began, spent = clock(), time.process_time()
        return anything

    async def _ask_next(self, node: str, place: str, beyond: Heads) -> Any:
        """Return the page of `node` behind `place`.

        Of a home of an earlier version, which names none: what lies neither below what is held here nor below
        `beyond`.
        """
        if place:
            return await self._ask(node, self._begun, place)
        heads = self._held.heads()
        for author, ends in beyond.items():
            heads[author] = [*heads.get(author, ()), *ends]
        return await self._ask(node, heads)

    async def _ask(self, node: str, heads: Heads, after: str = "") -> Any:
        """Return the page of `node` for a home with `heads`, behind the place `after`."""
        wanted = {"heads": heads, "limit": _PAGE, "bodies": self._held.some_bare()}
        wanted |= {"packs": True, "compact": True, "after": after}
        body = {"params": {"topic": self._topic}, "input": wanted}
        return (await self._bus.call(SYNC, body, node=node, timeout_seconds=_ASK_SECONDS)).output

    async def _complete(self, offered: Sequence[LogEvent]) -> bool:
        """Keep bodies of entries that came without, and return whether there were any."""
        lacking = [one for one in offered if one.body and one.entry.hash in self._held.bare]
        valid = [one for one in await asyncio.to_thread(self._intake.valid, lacking) if one.body]
        await self._held.keep_bodies(valid)
        self._held.bare = {one: None for one in self._held.bare if one not in self._intake.refused}
        return bool(valid)

    def _not_taken(self, events: Sequence[LogEvent], beyond: Heads) -> Heads:
        """Return `beyond` with the ends of the events not taken in; what follows them is not taken in either.

        Those of before stay: of a chain with several ends the same ones would come on every other page.
        """
        lacking = [one.entry for one in events if not self._held.chains.holds(one.entry.hash)]
        followed = {entry.previous for entry in lacking}
        found = dict(beyond)
        for entry in lacking:
            if entry.hash not in followed:
                ends = [*found.get(entry.author, ()), f"{entry.sequence}:{entry.hash}"]
                found[entry.author] = list(dict.fromkeys(ends))[-_MOST_PASSED_OVER:]
        return found

    async def _take(self, offered: Sequence[LogEvent], history: HistoryMeter | None = None) -> int:
        """Take in events of other homes, and return how many were new; `history` if they were asked for.

        Raises:
            HearthNetError: `partition` or `capacity_exceeded` if they cannot be stored; they come again.
        """
        async with self._held.writing:
            await self._held.catch_up()
            forks, taken = len(self._held.chains.forks), 0
            ordered = sorted(
                {one.entry.hash: one for one in offered if self._is_wanted(one)}.values(),
                key=lambda one: (one.entry.time, one.entry.sequence),
            )
            for start in range(0, len(ordered), _SLICE):
                valid = await asyncio.to_thread(self._intake.valid, ordered[start : start + _SLICE])
                taken += await self._keep(valid, history)
        if taken:
            self._tell_change()
        for author in list(self._held.chains.forks)[forks:]:
            self._name_fork(author)
        return taken

    def _is_wanted(self, event: LogEvent) -> bool:
        entry = event.entry
        return not self._held.chains.holds(entry.hash) and self._intake.is_told(entry.author)

    async def _keep(self, valid: Sequence[LogEvent], history: HistoryMeter | None) -> int:
        admitted = list[LogEvent]()
        for one in valid:
            if self._intake.admits(one.entry, self._held.chains, history):
                is_lacking = not one.body and one.entry.hash not in self._intake.refused
                self._held.add(ChainRecord(one.entry, is_bare=is_lacking))
                admitted.append(one)
        try:
            await self._held.keep(admitted)
            await self._held.catch_up()
        except HearthNetError:
            self._held.forget()
            raise
        return len(admitted)

    def _name_fork(self, author: str) -> None:
        _log.warning(
            "the chain of %s in %s forks at its event %d: two devices write with one key, or a copy of it "
            "was put back",
            short_id(author),
            self._topic,
            self._held.chains.forks[author][0],
        )
