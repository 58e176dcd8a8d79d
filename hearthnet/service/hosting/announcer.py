"""Announcements of the offers of a process, every 20 s, and its answers to finds.

See: docs/protocol/discovery.md#announcements.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hearthnet.bus.session.frame_budget import FrameBudget
from hearthnet.bus.session.session import Session
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.rationed_log import RationedLog
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import now_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol import offer as offers
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import FrameError
from hearthnet.protocol.offer import FIND_JITTER_MS, REPUBLISH_MS, Notice
from hearthnet.service.hosting.active_offers import ActiveOffer
from hearthnet.trust.community.roster import RANK

_log = logging.getLogger(__name__)
_BURST: Final = 256
_PER_SECOND: Final = 50
"""Finds of another node that are answered, at once and in the long run."""


class Announcer:
    """The announcer of one process's offers to the mesh.

    Offers for this node or its home alone are sent in boxes to the node's own processes only.
    """

    def __init__(self, peer: Session, service: str, version: str, tasks: TaskSet) -> None:
        self._peer = peer
        self._service = service
        self._version = version
        self._tasks = tasks
        self.budget = FrameBudget(peer.node_id, "find", _BURST, _PER_SECOND, peer.membership.account)
        self._drop_log = RationedLog(_log)
        self._hosted: list[ActiveOffer] = []
        self._built_in: list[ActiveOffer] = []
        self._subjects: set[str] = set()
        """Of the finds that this process receives."""

    async def open(self, built_in: list[ActiveOffer]) -> None:
        """Start to announce, every 20 s and whenever the connection is restored.

        Built-in offers are sent only in answer to finds for exactly them.
        """
        self._built_in = built_in
        await self._listen()
        self._peer.link.on_restored(self._announce)
        self._tasks.start(self._repeat(), "announcements")

    async def offer(self, hosted: list[ActiveOffer]) -> None:
        """Announce `hosted` instead of the former offers, once finds for them reach this process.

        Other nodes hear nothing if only offers changed of which they may not know.
        """
        gone = [entry for entry in self._hosted if entry not in hosted]
        public = [entry for entry in hosted if entry.is_public]
        is_same = public == [entry for entry in self._hosted if entry.is_public]
        is_private = is_same and hosted != self._hosted
        self._hosted = hosted
        await self._listen()
        try:
            await self._peer.link.flush_subscriptions()
            await self._publish(gone, withdrawn=True)
            changed = [entry for entry in hosted if not (is_private and entry.is_public)]
            await self._publish(changed, withdrawn=False)
            # Sent before anything else can keep this process busy.
            await self._peer.link.flush_subscriptions()
        except HearthNetError as error:
            if error.code != "partition":
                raise
            _log.warning("not announced, it will be when the server is back: %s", error)

    async def withhold(self, hosted: list[ActiveOffer]) -> None:
        """Withdraw the public ones of `hosted`, before terms of sharing keep them from other homes."""
        try:
            await self._publish([entry for entry in hosted if entry.is_public], withdrawn=True)
        except HearthNetError as error:
            _log.warning("not withdrawn, the offers will expire: %s", error)

    async def withdraw(self) -> None:
        """Withdraw every offer.

        Those to the home are not withdrawn: while this process is away, calls for them go nowhere else.
        """
        gone, self._hosted = [entry for entry in self._hosted if not entry.is_to_home], []
        try:
            await self._listen()
            await self._publish(gone, withdrawn=True)
            await self._peer.link.flush_subscriptions()
        except HearthNetError as error:
            _log.warning("not withdrawn, the offers will expire: %s", error)

    async def _listen(self) -> None:
        """Subscribe to the finds that are answered now, and to no others.

        For a topic without subscribers the server reports so at once; silence means that a provider is busy.
        """
        wanted = self._finds()
        for subject in wanted - self._subjects:
            await self._peer.link.subscribe(subject, self._on_find)
        for subject in self._subjects - wanted:
            self._peer.link.unsubscribe(subject)
        self._subjects = wanted

    def _finds(self) -> set[str]:
        """Return the subjects of the finds that this process answers.

        For capabilities of this node alone, these are its own finds.
        """
        entries = [*self._hosted, *self._built_in]
        public = {entry.topic for entry in entries if entry.is_public}
        private = {entry.topic for entry in entries}
        if self._hosted:
            private.add(subjects.EVERYTHING)
        if any(entry.is_public for entry in self._hosted):
            public.add(subjects.EVERYTHING)
        own = self._peer.node_id
        return {subjects.finds_of(topic) for topic in public} | {
            subjects.find(own, topic) for topic in private - public
        }

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(REPUBLISH_MS / 1000)
            try:
                await self._announce()
            except HearthNetError as error:
                _log.warning("not announced, tried again in %d s: %s", REPUBLISH_MS / 1000, error)

    async def _announce(self) -> None:
        await self._publish(self._hosted, withdrawn=False)

    async def _publish(self, hosted: list[ActiveOffer], *, withdrawn: bool) -> None:
        grouped: dict[tuple[str, bool], list[ActiveOffer]] = {}
        for entry in hosted:
            grouped.setdefault((entry.topic, entry.is_public), []).append(entry)
        own, sender = self._peer.node_id, self._peer.sender
        for (topic, is_public), mine in sorted(grouped.items()):
            notice = self._notice(mine, withdrawn=withdrawn)
            if is_public:
                header = sender.header("offer", ids.new_ulid(), capability=topic)
                data = frames.signed(header, notice, self._peer.identity)
                await self._peer.link.publish(subjects.announce(own, mine[0].capability), data)
            else:
                header = sender.header("offer", ids.new_ulid(), capability=topic, to=own)
                data = frames.box(frames.plain(header, notice), sender.keys.to(own))
                await self._peer.link.publish(subjects.announce_at_home(own, mine[0].capability), data)

    def _notice(self, hosted: list[ActiveOffer], *, withdrawn: bool) -> bytes:
        records = tuple(entry.record(self._peer.instance, self._service, self._version) for entry in hosted)
        return offers.encode(Notice(records, withdrawn))

    def _on_find(self, subject: str, data: bytes, absent: bool) -> None:
        if not self.budget.admits(subject, len(data)):
            return
        try:
            answer = self._answer(subject, data)
        except (FrameError, HearthNetError) as error:
            self._drop_log.write("dropped a find: %s", error)
            return
        if answer is not None:
            self._tasks.start(answer(), "find")

    def _answer(self, subject: str, data: bytes) -> Callable[[], Coroutine[Any, Any, None]] | None:
        _, asker = subjects.open_sender(subject)
        rank = RANK[self._peer.roster.level(asker, now_ms())]
        if rank == RANK["unknown"]:
            raise FrameError("the asker is neither a member nor invited")
        header = frames.read_signed(data, asker, self._peer.verified).header
        if header.kind != "find" or header.community != self._peer.community:
            raise FrameError("not a find for this community")
        own = asker == self._peer.node_id
        wanted = header.capability
        named = [entry for entry in (*self._hosted, *self._built_in) if entry.topic == wanted]
        offered = self._hosted if wanted == subjects.EVERYTHING else named
        mine = [entry for entry in offered if own or _is_for(rank, entry)]
        if not mine:
            return None
        target = subjects.reply(self._peer.node_id, asker, header.from_instance, header.id)

        async def respond() -> None:
            if not own:
                # Spread the answers of many nodes; this node has only a few processes.
                await asyncio.sleep(random.uniform(0, FIND_JITTER_MS) / 1000)
            answer = self._peer.sender.header("offer", header.id, to=asker, to_instance=header.from_instance)
            inner = frames.plain(answer, self._notice(mine, withdrawn=False))
            try:
                await self._peer.link.publish(target, frames.box(inner, self._peer.sender.keys.to(asker)))
            except HearthNetError as error:
                _log.info("did not answer a find: %s", error)

        return respond


def _is_for(rank: int, entry: ActiveOffer) -> bool:
    """Return whether the offer is sent to other nodes of this rank.

    Members receive all but `self` and `home` offers, invited nodes only those that they may call.
    """
    return entry.is_public and (rank >= RANK["member"] or rank >= RANK.get(entry.trust, len(RANK)))
