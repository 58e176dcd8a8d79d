"""The context of a service: the node that it runs on."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from hearthnet.bus.blobs.blob_store import Blobs, no_blob
from hearthnet.bus.blobs.metadata import BlobRecord, Hold
from hearthnet.bus.blobs.reader import Blob
from hearthnet.bus.bus import Bus
from hearthnet.bus.store import HomeStore, Store
from hearthnet.core.config import Config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.service.call import Call
from hearthnet.service.effects.community_log import CommunityState
from hearthnet.service.effects.event_log import EventLog
from hearthnet.service.effects.journal import Records
from hearthnet.service.effects.token_budget import Budget
from hearthnet.service.eventlog.topic_intake import Check
from hearthnet.service.eventlog.topic_log import TopicLog
from hearthnet.service.hosting.corpus_copies import CorpusCopies
from hearthnet.service.hosting.status import Status
from hearthnet.trust.authorization.authority import owner_of
from hearthnet.trust.authorization.token import is_owner
from hearthnet.trust.keys import Identity

_KEEPER: Final = "file"
"""The service that decides about calls for blobs by itself, and writes them."""


class NodeContext:
    """The node as its services see it.

    `data` folder, settings, bus, store, and the progress of the start; `records`, `budget` and `memory` are
    for the library. Blobs are read by `open_blob`; `copies` are for copies of corpora.
    """

    def __init__(self, home: Home, config: Config, url: str, service: str, bus: Bus, status: Status) -> None:
        self.home = home
        self.config = config
        self.bus = bus
        self._url = url
        self._service = service
        self._status = status
        self._store: tuple[Store, HomeStore] | None = None
        self._joining = asyncio.Lock()
        self.records = Records(home, bus.peer, service, self.store, config.audit)
        self.budget = Budget(self.store, bus.peer, self.records.instances)
        self.memory = CommunityState(self.store, home, bus.peer)
        self.copies = CorpusCopies(bus, self._all_blobs, config.file)
        self.data = home.service(service)
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def identity(self) -> Identity:
        """The node's identity."""
        return self.bus.peer.identity

    def progress(self, stage: str, current: int, total: int) -> None:
        """Report the progress of the start, for the person who started the node."""
        self._status.starting(stage, current, total)

    async def store(self) -> Store:
        """Return the node's store, connected at first use."""
        return (await self._stores())[0]

    async def topic(self, name: str, events: EventLog, check: Check) -> TopicLog:
        """Return the topic `name` of the community's event log, not open yet; its events are in `events`.

        `check` raises `HearthNetError` for an event of another home that is not to be kept: it gets that
        home's node and the event, and runs in another thread.
        """
        return TopicLog(self.bus, await self.store(), self.home, name, events, check, self.config.community)

    async def open_blob(self, cid: str, call: Call[Any, Any] | None) -> Blob:
        """Open a blob with the rights of the caller of `call`.

        None stands for this node itself, which reads every blob: only for a CID that the service has recorded
        itself, after a call that was allowed to read it.

        Raises:
            HearthNetError: `not_found` if it is not stored here, and likewise if the caller may not read it;
                `internal_error` if it is damaged.
        """
        blobs = await self._all_blobs()
        if call is not None:
            entry = await blobs.find(cid)
            if entry is None or not self.may_read(call, entry):
                raise no_blob(cid)
        return await blobs.open(cid)

    async def keep_blob(self, cid: str) -> None:
        """Keep a blob for this home itself, beside its other holders.

        Only for a CID that the service has recorded itself.
        """
        await (await self._all_blobs()).hold(cid, Hold())

    def may_read(self, call: Call[Any, Any], entry: BlobRecord) -> bool:
        """Return whether the caller of `call` may read a blob and learn of it.

        See: docs/file.md#who-may-read-it.
        """
        return bool(self.known_holds(call, entry))

    def known_holds(self, call: Call[Any, Any], entry: BlobRecord) -> list[Hold]:
        """Return the holds of a blob that the caller of `call` may learn of.

        The home itself learns of all but those of its guests: what a further person of it holds is theirs.
        """
        mine, own = self.principals_of(call), self.is_self(call)
        return [
            hold
            for hold in entry.holds(now_ms())
            if hold.shared or hold.by in mine or (own and not self._is_guest(hold.by))
        ]

    def _is_guest(self, principal: str) -> bool:
        """Return whether `principal` is another person of this home than its owner."""
        node, _, guest = principal.partition("/")
        return bool(guest) and node == self.identity.node_id and not is_owner(principal, node)

    def principals_of(self, call: Call[Any, Any]) -> frozenset[str]:
        """Return the principals whose posts and files are the caller's: those of its person's devices.

        See: docs/protocol/persons.md#ownership.
        """
        roster, claims = self.bus.peer.roster, call.claims
        if claims is None or claims.cnf is None:
            return roster.principals(call.principal)
        approver = "" if call.approval is None else call.approval.approver
        owner, own = owner_of(roster, call.principal, claims, approver), frozenset({call.principal})
        return own if owner == call.principal else own | roster.principals(owner)

    def is_of_home(self, call: Call[Any, Any]) -> bool:
        """Return whether a person of this home calls: the owner, or another one with a key of their own."""
        own, claims = self.identity.node_id, call.claims
        if call.caller != own:
            return False
        return claims is None or bool(claims.is_of_home(own, {}) or claims.person_at(own))

    def is_self(self, call: Call[Any, Any]) -> bool:
        """Return whether this node calls in its own name; a token that it issued does not count."""
        return call.caller == call.principal == self.identity.node_id

    async def blobs(self) -> Blobs:
        """Return all blobs, for the service that keeps them.

        Raises:
            HearthNetError: `unauthorized` for any other service.
        """
        if self._service != _KEEPER:
            raise HearthNetError("unauthorized", "only the file service has all blobs; use open_blob")
        return await self._all_blobs()

    async def check_room(self) -> None:
        """Check that the disk has room. Raises as `Blobs.check_room`."""
        (await self._all_blobs()).check_room()

    async def _all_blobs(self) -> Blobs:
        return (await self._stores())[1].blobs

    async def _stores(self) -> tuple[Store, HomeStore]:
        async with self._joining:
            if self._store is None:
                store = await HomeStore.join(self.home, self._url, f"{self._service} store")
                self._store = Store(store.link), store
            return self._store

    async def close(self) -> None:
        """Disconnect from bus and store."""
        await self.memory.close()
        await self.records.close()
        if self._store is not None:
            await self._store[0].close()
        await self.bus.close()
