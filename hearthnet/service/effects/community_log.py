"""A node's record of its community: events and token revocations in the stream COMMUNITY.

    cm.event.<author>.<sequence>          one event per place, permanently; the first one written
    cm.event.<author>.<sequence>-<hash>   further events of an author who wrote several in one place
    cm.revoked.<issuer>.<token id>        until no such token could still be valid

Only the `auth` service appends. Every process of the node that provides capabilities reads it at its start
and when it may have missed something (docs/decisions/0043).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from hearthnet.bus.session.gossip_frames import SetDigests
from hearthnet.bus.session.session import Session
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, content_hash
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.home import Home
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import least_ms
from hearthnet.service.effects import direct_reads, jetstream_records
from hearthnet.trust.authorization import revocation
from hearthnet.trust.authorization.revocation import TokenRevocation
from hearthnet.trust.community import events
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.history import History

_log = logging.getLogger(__name__)
STREAM: Final = "COMMUNITY"
_WHAT: Final = "the community's log"
_APPEND_SECONDS: Final = 8.0
_PAUSE_SECONDS: Final = 1.0


class StoredCommunity(NamedTuple):
    """The contents of the log, in the order of writing; signatures are not checked again.

    `known` are the hashes of the events that were not read because they are known.
    """

    events: tuple[CommunityEvent, ...]
    revocations: tuple[TokenRevocation, ...]
    known: frozenset[str] = frozenset()


class CommunityLog:
    """The stream COMMUNITY of one node's store; `home` is checked for free space."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store = store
        self._room = jetstream_records.DiskGuard(home)

    async def claim(self, event: CommunityEvent) -> CommunityEvent:
        """Store a new event of this node durably, and return the event now in its place.

        That is this event, or an earlier one with the same sequence.

        Raises:
            HearthNetError: `partition` if the store does not answer (the event may be stored or not);
                `capacity_exceeded` if the disk is full.
        """
        subject = _place(event)
        await self._append(subject, _stored(event))
        stored = await self._event(subject)
        if stored is None:
            raise Unavailable(
                f"{_WHAT} lost an event; try again with the same client_id", rule="store_silent"
            )
        return stored

    async def keep(self, event: CommunityEvent) -> None:
        """Store an event of another node.

        Raises:
            HearthNetError: As `claim`.
        """
        data = _stored(event)
        if await self._append(_place(event), data):
            return
        stored = await self._event(_place(event))
        if stored is None or stored.hash != event.hash:
            await self._append(f"{_place(event)}-{event.hash[-16:]}", data)

    async def keep_revocation(self, revoked: TokenRevocation) -> None:
        """Store `revoked` until it may be forgotten.

        Raises:
            HearthNetError: As `claim`.
        """
        # At most RETENTION_MS from now: its author chose the date, and the server refuses one too far away.
        left = min(revoked.forget_at - least_ms(), revocation.RETENTION_MS)
        seconds = left // 1000 + 1
        if seconds > 0:
            subject = f"cm.revoked.{ids.token_form(revoked.issuer)}.{revoked.token_id}"
            await self._append(subject, msgspec.json.encode(revoked), {"Nats-TTL": f"{seconds}s"})

    async def read(self, held: History | None = None) -> StoredCommunity:
        """Read the whole log but the events in `held`; damaged messages are logged and skipped.

        Raises:
            HearthNetError: `partition` if the store does not answer.
        """
        community_events: list[CommunityEvent] = []
        revocations: list[TokenRevocation] = []
        known: set[str] = set()
        async for message in self._messages():
            try:
                # Events are stored in the form that is hashed, so those that are held are known without being
                # decoded: a start takes half as long where there are many.
                stored = "" if held is None else content_hash(message.data)
                if held is not None and held.get(stored) is not None:
                    known.add(stored)
                elif message.subject.startswith("cm.revoked."):
                    revocations.append(revocation.decode(message.data))
                else:
                    community_events.append(events.decode(message.data))
            except HearthNetError as error:
                _log.error("%s in %s is damaged: %s", message.subject, _WHAT, error)
        return StoredCommunity(tuple(community_events), tuple(revocations), frozenset(known))

    async def _messages(self) -> AsyncIterator[jetstream_records.Message]:
        """Yield every message; others may leave the stream, anywhere in it, while this reads."""
        async with jetstream_records.answering(_WHAT):
            upto = int((await self._store.js.stream_info(STREAM)).state.last_seq)
        async for batch in direct_reads.read(self._store, STREAM, "cm.>", 0, upto, _WHAT):
            for message in batch:
                yield message

    async def _append(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> bool:
        """Append `data` and return True; False if the subject has a message already."""
        expected = {"Nats-Expected-Last-Subject-Sequence": "0", **(headers or {})}
        await self._room.check()
        try:
            await jetstream_records.write_until(
                self._store,
                STREAM,
                subject,
                data,
                expected=expected,
                until=asyncio.get_running_loop().time() + _APPEND_SECONDS,
                room=self._room,
                what=_WHAT,
            )
        except jetstream_records.WrongSequence:
            return False
        return True

    async def _event(self, subject: str) -> CommunityEvent | None:
        found = await jetstream_records.last(
            self._store, STREAM, subject, _WHAT, jetstream_records.ANSWER_SECONDS
        )
        return None if found is None else events.decode(found.data)


class CommunityState:
    """Keeps one process's view of the community up to date with the log of the node in `home`."""

    def __init__(self, store: Callable[[], Awaitable[Store]], home: Home, peer: Session) -> None:
        self._store = store
        self._home = home
        self._peer = peer
        self._tasks = TaskSet()
        self._behind = asyncio.Event()

    async def open(self) -> None:
        """Read the whole log, and follow it from then on.

        `Membership.follow` must be called before, so that no event is missed: each is in the log before it is
        announced.

        Raises:
            HearthNetError: `partition` if the store does not answer.
        """
        await self._catch_up()
        self._peer.link.on_restored(self._on_restored)
        self._peer.membership.on_local_heads(self._compare)
        self._tasks.start(self._follow(), "memory")

    async def close(self) -> None:
        """Stop following."""
        await self._tasks.close()

    async def _catch_up(self) -> None:
        membership = self._peer.membership
        remembered = await CommunityLog(await self._store(), self._home).read(membership.roster.history)
        await membership.add(remembered.events, remembered.revocations)

    async def _on_restored(self) -> None:
        self._behind.set()

    def _compare(self, heads: SetDigests) -> None:
        if self._peer.membership.heads().is_behind(heads):
            self._behind.set()

    async def _follow(self) -> None:
        while True:
            await self._behind.wait()
            self._behind.clear()
            try:
                await self._catch_up()
            except HearthNetError as error:
                _log.warning("what was missed is not known yet: %s", error)
                self._behind.set()
            await asyncio.sleep(_PAUSE_SECONDS)


def _stored(event: CommunityEvent) -> bytes:
    """Return the form that is hashed, by which the event is known without being decoded."""
    return canonical_json(event.as_json())


def _place(event: CommunityEvent) -> str:
    return f"cm.event.{ids.token_form(event.author)}.{event.sequence}"
