"""Publishing of a home's events in one topic: each gets an entry in the chain of this node, in order.

The event is on the disk before, by the call that made it. So an event of an earlier version, or of a process
that died, is published like any other.

See: docs/protocol/log.md#publishing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.session import Session
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import from_rfc3339, now_ms
from hearthnet.service.effects.event_log import Event, EventLog, decode_event, home_of
from hearthnet.service.effects.jetstream_records import Message
from hearthnet.service.eventlog.topic_chains import TopicChains
from hearthnet.trust.eventlog.entries import MAX_BODY_BYTES, LogEvent, write_entry

_log = logging.getLogger(__name__)
_AT_A_TIME: Final = 100
_LARGEST_TOLD: Final = 256 * 1024
"""Maximum size of an event in an announcement; others fetch larger ones."""
_AGAIN_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 5.0


class Publisher:
    """Publishes the events of this home in `events` as entries of `topic`.

    `published` is called after some were. While `is_held` nothing is published: a home that was restored does
    not know yet which events it had written.
    """

    def __init__(
        self, peer: Session, topic: str, events: EventLog, chains: TopicChains, published: Callable[[], None]
    ) -> None:
        self._peer = peer
        self._topic = topic
        self._events = events
        self._chains = chains
        self._published = published
        self._looked_upto = 0
        self._woken = asyncio.Event()
        self.is_held = False
        self.waits_for_day = False
        """Whether the rest of the own events waits for the next day."""

    @property
    def event_type(self) -> str:
        """The type of the frames that tell events."""
        return f"community.topic.{self._topic}"

    async def open(self) -> None:
        """Follow the topic's stream."""
        await self._events.watch(self._woken)
        self._woken.set()

    def release(self) -> None:
        """Publish from now on."""
        self.is_held = False
        self._woken.set()

    async def run(self) -> None:
        """Publish own events soon after each is on the disk, with retries until all are."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._woken.wait()
            self._woken.clear()
            try:
                waited = self.waits_for_day
                while not self.is_held and await self._publish_some():
                    self._published()
                if self.waits_for_day != waited:
                    self._published()
            except HearthNetError as error:
                _log.warning("not published yet: %s; tried again later", error)
                await asyncio.sleep(_AGAIN_SECONDS)
                self._woken.set()

    async def _publish_some(self) -> bool:
        """Publish the next own events, and return whether there were any."""
        made = list[LogEvent]()
        async with self._chains.writing:
            await self._chains.catch_up()
            async for message in self._next():
                event = _own_event(message, self._peer.node_id, self._peer.community)
                if event is not None:
                    told = await self._chain(message, event)
                    if told is None:
                        break
                    made.append(told)
                self._looked_upto = message.sequence
                if len(made) >= _AT_A_TIME:
                    break
        if made:
            await self._tell(made)
        return bool(made)

    async def _next(self) -> AsyncIterator[Message]:
        after, kept = max(self._chains.published, self._looked_upto), self._chains.kept
        if after + 1 in kept:  # of other homes, all of them
            after = self._looked_upto = kept[-1]
        async for batch in self._events.messages(after):
            for message in batch:
                yield message

    async def _chain(self, message: Message, event: Event) -> LogEvent | None:
        """Add an entry for an event of this node; None if it is not to be published now."""
        own, chains, text = self._peer.node_id, self._chains.chains, message.data.decode()
        place = chains.next(own)
        time, size = max(from_rfc3339(event.wall_clock), place[2]), len(message.data)
        if chains.left(own, time) < size:
            time = max(now_ms(), place[2])
        self.waits_for_day = chains.left(own, time) < size
        if self.waits_for_day:
            return None
        entry = write_entry(
            self._peer.identity,
            self._peer.community,
            self._topic,
            text,
            place=place,
            event_id=event.event_id,
            event_type=event.event_type,
            person=self._peer.roster.owner(event.author),
            time=time,
        )
        # If another process was first, what it wrote is read before the next attempt.
        return LogEvent(entry, text) if await self._chains.claim(entry, message.sequence) else None

    async def _tell(self, made: Sequence[LogEvent]) -> None:
        """Publish own events; a home that misses them fetches them after comparing heads."""
        small = [one for one in made if one.entry.size <= _LARGEST_TOLD]
        with contextlib.suppress(HearthNetError):
            for body in gossip_frames.batches(small, ()):
                await gossip_frames.publish(self._peer.sender, self.event_type, body)


def _own_event(message: Message, own: str, community: str) -> Event | None:
    """Return the event in `message` if it happened here and is of `own` or its guests, None otherwise.

    What another home did here by a call is for its own log. An event that all others refuse, since it is too
    large or of another community, is left out: nothing that followed it would be taken in anywhere.
    """
    if home_of(message):
        return None
    try:
        event = decode_event(message.data)
    except HearthNetError as error:
        _log.error("event %d is damaged: %s", message.sequence, error)
        return None
    if event.author.partition("/")[0] != own:
        return None
    if len(message.data) > MAX_BODY_BYTES or event.community_id != community:
        _log.warning("event %d stays here: too large, or of another community", message.sequence)
        return None
    return event
