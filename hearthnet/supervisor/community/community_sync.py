"""The supervisor's copy of the community: the roster is written to disk and to the server.

    bus (membership) --> roster --> roster.json (the supervisor alone writes it, and loses no event)
                               `--> server: allowed logins, connections to close
    keys/operators -----------------^

This happens soon after every event, when an invite expires, and again until it succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames, keyring
from hearthnet.bus.session.gossip_frames import LINKED
from hearthnet.bus.session.session import Session
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.times import now_ms
from hearthnet.service.effects.community_log import CommunityState
from hearthnet.supervisor.community.operators import Operators
from hearthnet.supervisor.nats.access_control import ServerRoster, admitted_by
from hearthnet.supervisor.nats.home_setup import Prepared
from hearthnet.supervisor.nats.server_config import BusLogin
from hearthnet.supervisor.os.cancellation import heed_cancelling
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import Joined
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity


class RosterFile:
    """The roster of one home on its disk, sealed by its own node."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self._path = path
        self._identity = identity

    def keep(self, roster: Roster) -> Roster:
        """Add the events of `roster` to the file, durably and atomically; return both merged.

        Errors of a damaged file are passed through, with its name; that file, and one of another community,
        are not overwritten.

        Raises:
            HearthNetError: `unauthorized` for a file of another community; `capacity_exceeded` for a full
                disk, on which the file stays as it was.
        """
        held = self._held()
        if held is not None and held.community_id != roster.community_id:
            raise HearthNetError(
                "unauthorized",
                f"{self._path} became that of another community while the node ran; restart the node",
            )
        if held is not None and roster.lacks(held.heads()):
            roster = rosters.merge(roster.proven, held.events)
        if held is None or held.lacks(roster.heads()):
            with file_errors(self._path):
                content = rosters.encode(rosters.seal(roster, self._identity))
                write_whole(self._path, content, durable=True)
        return roster

    def _held(self) -> Roster | None:
        try:
            return keyring.load_roster(self._path, self._identity.node_id)
        except HearthNetError as error:
            if error.code == "not_found":
                return None
            raise


RETRY_SECONDS: Final = 1.0
LINGER_MS: Final = 5_000
"""The time for which a used invite stays connected, so that the answer to its user arrives."""
_REST_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)
Admit = Callable[[ServerRoster], Awaitable[None]]


class Community:
    """Keeps the roster file and the server up to date; `news` takes lines for a person."""

    def __init__(
        self, prepared: Prepared, admit: Admit, news: Callable[[str], None], operators: Operators
    ) -> None:
        self._prepared = prepared
        self._own = prepared.identity.node_id
        self._file = RosterFile(prepared.home.roster, prepared.identity)
        self._admit = admit
        self._news = news
        self._operators = operators
        self._held = contextlib.AsyncExitStack()
        self._peer: Session | None = None
        self._reported = ""
        self._known = {member.node_id for member in prepared.roster.members}
        self._begun = set[str]()
        self._admitted: ServerRoster | None = None
        self._lingering: dict[BusLogin, int] = {}

    async def follow(self, url: str) -> None:
        """Join the bus at `url` and follow until cancelled; the connection is restored by itself."""
        self._peer = (await self._join(url)).peer
        membership = self._peer.membership
        changed = asyncio.Event()
        changed.set()
        membership.on_change(changed.set)
        watching = asyncio.create_task(self._operators.watch(changed.set))
        self._held.callback(watching.cancel)
        while True:
            heed_cancelling()
            changed.clear()
            began = time.monotonic()
            wait = await self._apply(membership.roster)
            # A flood of events must not keep the disk and the server busy all the time.
            await asyncio.sleep(max(_REST_SECONDS, time.monotonic() - began))
            heed_cancelling()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait)

    async def announce_link(self) -> None:
        """Have the processes of this node compare with other homes at once: the link to them is there."""
        if self._peer is not None:
            with contextlib.suppress(HearthNetError):
                await gossip_frames.publish(self._peer.sender, LINKED, b"{}")

    async def close(self) -> None:
        """Leave the bus."""
        await self._held.aclose()

    async def _join(self, url: str) -> Bus:
        """Return the bus, once all events on the node's disk have been read."""
        home = self._prepared.home
        while True:
            heed_cancelling()
            try:
                bus = await Bus.join(home, url, "up")
                self._held.push_async_callback(bus.close)
                store = await Store.join(home, url, "up")
                self._held.push_async_callback(store.close)
                memory = CommunityState(_always(store), home, bus.peer)
                self._held.push_async_callback(memory.close)
                await memory.open()
                return bus
            except HearthNetError as error:
                self._report([error])
                await self._held.aclose()
                await asyncio.sleep(RETRY_SECONDS)

    async def _apply(self, roster: Roster) -> float | None:
        """Write `roster` to file and server; return the seconds until the next time at the latest."""
        problems: list[HearthNetError] = []
        if self._admitted is not None:  # whoever is out is cut off before anything is written
            await self._update_server(roster, problems)
        try:
            roster = await asyncio.to_thread(self._file.keep, roster)
        except HearthNetError as error:
            problems.append(error)
        allowed, now = await self._update_server(roster, problems)
        self._report(problems)
        self._report_members(roster)
        self._report_recoveries(roster)
        return RETRY_SECONDS if problems else _until(_ends(allowed, roster, self._lingering), now)

    async def _update_server(
        self, roster: Roster, problems: list[HearthNetError]
    ) -> tuple[ServerRoster, int]:
        """Have the server admit those in `roster`; return their logins and the present time."""
        now = now_ms()
        allowed = self._logins(roster, now)
        if allowed != self._admitted:
            try:
                await self._admit(allowed)
                self._admitted = allowed
            except HearthNetError as error:
                problems.append(error)
        return allowed, now

    def _logins(self, roster: Roster, now: int) -> ServerRoster:
        """Return the logins to admit: members, open invites, and briefly those just used.

        A withdrawn invite goes at once: its node answers it no longer, and a refused login says why.
        """
        allowed = admitted_by(roster, now, self._operators.logins)
        held = {invite.invite_key for invite in roster.invites}
        here = self._admitted.invites if self._admitted is not None else ()
        closed = [invite for invite in here if invite.node_id not in held]
        used = _used(roster) if closed else set()
        self._lingering = {
            invite: self._lingering.get(invite, now + LINGER_MS)
            for invite in closed
            if invite.node_id in used
        }
        lingering = (invite for invite, end in self._lingering.items() if end > now)
        return allowed._replace(invites=(*allowed.invites, *lingering))

    def _report(self, problems: list[HearthNetError]) -> None:
        """Report problems, each one once while it lasts."""
        text = "; ".join(problem.message for problem in problems)
        if text and text != self._reported:
            _log.error("%s", text)
            self._news(text)
        self._reported = text

    def _report_members(self, roster: Roster) -> None:
        members = {member.node_id for member in roster.members}
        for node in sorted(members - self._known):
            self._news(f"{ids.short_id(node)} belongs to the community now")
        for node in sorted(self._known - members):
            name = "this node" if node == self._own else ids.short_id(node)
            self._news(f"{name} does not belong to the community any more")
        self._known = members

    def _report_recoveries(self, roster: Roster) -> None:
        person = roster.person(roster.person_of(self._own))
        begun = {one.recovery for one in (person.recoveries if person else ())}
        if begun - self._begun:
            self._news(
                "your helpers have begun to replace your keys: hearthnet person show; to stop them: "
                "hearthnet recover --object"
            )
        self._begun = begun


def _always(store: Store) -> Callable[[], Awaitable[Store]]:
    async def open_store() -> Store:
        return store

    return open_store


def _used(roster: Roster) -> set[str]:
    """Return the keys of the invites under which nodes asked to join."""
    return {event.content.invite_key for event in roster.events if isinstance(event.content, Joined)}


def _ends(allowed: ServerRoster, roster: Roster, lingering: dict[BusLogin, int]) -> Iterable[int]:
    """Yield the times, in milliseconds, at which an admitted login expires."""
    let_in = {invite.node_id for invite in allowed.invites}
    yield from (invite.expires_at for invite in roster.invites if invite.invite_key in let_in)
    yield from (end for invite, end in lingering.items() if invite.node_id in let_in)


def _until(ends: Iterable[int], now: int) -> float | None:
    """Return the seconds until the first of `ends`, None where there is none."""
    first = min(ends, default=None)
    return None if first is None else max(0.0, (first - now) / 1000)
