"""What is told on the bus reaches the disk and the server's door."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import gossip_frames, keyring
from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from hearthnet.core.times import now_ms
from hearthnet.service.effects.community_log import CommunityLog
from hearthnet.supervisor.community import community_sync
from hearthnet.supervisor.community.community_sync import Community, RosterFile
from hearthnet.supervisor.community.operators import Operators
from hearthnet.supervisor.nats.access_control import ServerRoster
from hearthnet.trust.community import commands, invites
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent, Invited
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.processes import kill
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for
from tests.supervisor.houses import Callers, House, Street, Visitor

pytestmark = pytest.mark.asyncio


@dataclass
class Village:
    """The founder's house, followed by its supervisor, and a process that speaks for the founder."""

    house: House
    street: Street
    community: Community
    bus: Bus

    async def tell(self, *events: CommunityEvent) -> None:
        """Tells all who follow."""
        for body in gossip_frames.batches(events, ()):
            await gossip_frames.publish(self.bus.peer.sender, gossip_frames.LOG, body)

    @property
    def roster(self) -> Roster:
        """The roster as the founder's process knows it."""
        return self.bus.peer.roster

    @property
    def on_disk(self) -> Roster:
        """The roster in the file."""
        return keyring.load_roster(self.house.home.roster)

    def revoke(self, name: str) -> CommunityEvent:
        """The founder puts a member out."""
        target = self.street.key(name).node_id
        return commands.CommunityAuthor(self.roster, self.house.identity).revoke(
            target, "gone", client_id=new_ulid(), now_ms=now_ms()
        )

    def invite(self, key: Identity, lasts_ms: int = 60_000) -> CommunityEvent:
        """The founder invites whoever holds `key`."""
        now = now_ms()
        return commands.CommunityAuthor(self.roster, self.house.identity).invite(
            key, display_name="", expires_at=now + lasts_ms, now_ms=now
        )


@pytest_asyncio.fixture
async def village(tmp_path: Path) -> AsyncIterator[Village]:
    """A founder, two members, and one house."""
    street = Street.build(tmp_path, "bob", "carol")
    async with street.open("founder") as house, followed(house) as community:
        bus = await Bus.join(house.home, house.url, "auth")
        yield Village(house, street, community, bus)
        await bus.close()


@contextlib.asynccontextmanager
async def followed(house: House) -> AsyncIterator[Community]:
    """The community of a house, followed from when its door is set."""
    community = Community(
        house.prepared,
        house.server.admit,
        house.news.append,
        Operators(house.prepared.home, house.news.append),
    )
    following = asyncio.create_task(community.follow(house.url))
    try:
        await wait_for(lambda: community._admitted, what="the door to be set")
        yield community
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await community.close()


@pytest.mark.req("UP-30", "UP-50")
async def test_a_revocation_is_on_the_disk_and_its_node_gone_within_two_seconds(
    village: Village, callers: Callers
) -> None:
    bob, carol = village.street.key("bob"), village.street.key("carol")
    victim = await callers.connect(village.house.url, bob.login())
    other = await callers.connect(village.house.url, carol.login())
    watch = Stopwatch(village.house.server.state.pid)
    await village.tell(village.revoke("bob"))
    await wait_for(lambda: victim.cut, what="the revoked node to be cut")
    assert watch.seconds() < 2
    await wait_for(lambda: village.on_disk.is_revoked(bob.node_id), what="the file")
    assert village.on_disk.signed_by == village.house.identity.node_id
    assert other.cut == 0
    await wait_for(lambda: len(village.house.news) == 1, what="people to be told")
    assert village.house.news == [f"{ids.short_id(bob.node_id)} does not belong to the community any more"]


@pytest.mark.req("ATTACK-37")
async def test_whoever_is_out_is_cut_off_before_the_roster_is_written(
    village: Village, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = village.street.key("bob")
    victim = await callers.connect(village.house.url, bob.login())
    disk, keep = threading.Event(), village.community._file.keep

    def keeping(roster: Roster) -> Roster:
        disk.wait()
        return keep(roster)

    monkeypatch.setattr(village.community._file, "keep", keeping)
    try:
        await village.tell(village.revoke("bob"))
        await wait_for(lambda: victim.cut, what="the revoked node to be cut")
        assert not village.on_disk.is_revoked(bob.node_id)
    finally:
        disk.set()
    await wait_for(lambda: village.on_disk.is_revoked(bob.node_id), what="the file")


@pytest.mark.req("UP-33", "UP-50")
async def test_an_invite_opens_the_door_until_it_runs_out(village: Village, callers: Callers) -> None:
    key = Identity.generate()
    event = village.invite(key, lasts_ms=6_000)
    assert isinstance(event.content, Invited)
    await village.tell(event)
    guest = await reaches(callers, village, key)
    await wait_for(lambda: guest.cut, what="the invite's connection to end with the invite")
    assert now_ms() >= event.content.expires_at, "and not before it"
    with pytest.raises(Exception, match="Authorization Violation"):
        await callers.connect(village.house.url, key.login())


@pytest.mark.req("UP-51")
async def test_an_invite_that_was_used_hears_its_answer_and_then_has_to_go(
    village: Village, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(community_sync, "LINGER_MS", 500)
    key, newcomer, admit = Identity.generate(), Identity.generate(), village.community._admit
    doors: list[tuple[bool, int, float]] = []

    async def noted(wanted: ServerRoster) -> None:
        """Of each door that lets the newcomer in: the invite, too? how often was it cut by then? when?"""
        if newcomer.node_id in {member.node_id for member in wanted.members}:
            invited = key.node_id in {invite.node_id for invite in wanted.invites}
            doors.append((invited, guest.cut, time.monotonic()))
        await admit(wanted)

    monkeypatch.setattr(village.community, "_admit", noted)
    await village.tell(village.invite(key))
    guest = await reaches(callers, village, key)
    await wait_for(lambda: village.roster.invites, what="the invite to be known")
    asked = invites.ask(village.roster, key, newcomer, "dora", now_ms())
    held = rosters.merge(village.roster, [asked])
    admitted = commands.CommunityAuthor(held, village.house.identity).admit(asked, now_ms())
    await village.tell(asked, admitted)
    joined = await reaches(callers, village, newcomer)
    await wait_for(lambda: guest.cut, what="the used invite's connection to be cut")
    # However slow the machine is: first a door for both, and half a second later one without the invite.
    assert [door[:2] for door in doors] == [(True, 0), (False, 0)]
    assert doors[1][2] - doors[0][2] >= 0.5
    assert joined.cut == 0
    assert f"{ids.short_id(newcomer.node_id)} belongs to the community now" in village.house.news


@pytest.mark.req("UP-51")
async def test_an_invite_that_was_withdrawn_has_to_go_at_once(
    village: Village, callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(community_sync, "LINGER_MS", 60_000)
    key = Identity.generate()
    invite = village.invite(key)
    await village.tell(invite)
    guest = await reaches(callers, village, key)
    await wait_for(lambda: village.roster.invites, what="the invite to be known")
    author = commands.CommunityAuthor(village.roster, village.house.identity)
    await village.tell(author.withdraw(invite.event_id, now_ms()))
    await wait_for(lambda: guest.cut, what="the withdrawn invite's connection to be cut")
    with pytest.raises(Exception, match="Authorization Violation"):
        await callers.connect(village.house.url, key.login())


@pytest.mark.req("UP-52")
@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 1}', b"\xff"])
async def test_a_damaged_roster_is_told_and_left_and_the_door_follows_all_the_same(
    village: Village, callers: Callers, damage: bytes
) -> None:
    path = village.house.home.roster
    whole = path.read_bytes()
    path.write_bytes(damage)
    victim = await callers.connect(village.house.url, village.street.key("bob").login())
    watch = Stopwatch(village.house.server.state.pid)
    await village.tell(village.revoke("bob"))
    await wait_for(lambda: victim.cut, what="the revoked node to be cut")
    assert watch.seconds() < 2
    await wait_for(lambda: len(village.house.news) == 2, what="people to be told")
    assert str(path) in village.house.news[0]
    assert "put back a copy" in village.house.news[0]
    assert path.read_bytes() == damage
    # Told once, tried again: as soon as the file is whole it is brought up to date.
    path.write_bytes(whole)
    await wait_for(lambda: path.read_bytes() != whole, what="the file to be written")
    assert village.on_disk.is_revoked(village.street.key("bob").node_id)
    assert len(village.house.news) == 2


@pytest.mark.req("UP-32")
async def test_the_community_is_followed_again_after_the_server_was_away(
    village: Village, callers: Callers
) -> None:
    bob = village.street.key("bob")
    kill(village.house.server.state.pid)
    await wait_for(lambda: any("is back" in line for line in village.house.news), what="the server")
    await village.bus.peer.link.connected()
    victim = await callers.connect(village.house.url, bob.login())
    event = village.revoke("bob")

    async def gone() -> bool:
        # The supervisor's own connection comes back in its time; who tells, tells again.
        with contextlib.suppress(HearthNetError):
            await village.tell(event)
        return bool(victim.cut)

    await wait_for(gone, what="the revoked node to be cut")


@pytest.mark.req("UP-50")
async def test_what_was_recorded_before_a_power_cut_counts_at_the_next_start(
    tmp_path: Path, callers: Callers
) -> None:
    street = Street.build(tmp_path, "bob")
    bob = street.key("bob")
    async with street.open("founder") as house:
        store = await Store.join(house.home, house.url, "auth")
        out = commands.CommunityAuthor(house.prepared.roster, house.identity).revoke(
            bob.node_id, "gone", client_id=new_ulid(), now_ms=now_ms()
        )
        await CommunityLog(store, house.home).claim(out)
        await store.close()
        victim = await callers.connect(house.url, bob.login())
        async with followed(house):
            await wait_for(lambda: victim.cut, what="the revoked node to be cut")
    assert keyring.load_roster(house.home.roster).is_revoked(bob.node_id)


@pytest.mark.req("UP-52")
async def test_the_file_never_loses_an_event(tmp_path: Path) -> None:
    root, me = Identity.generate(), Identity.generate()
    first = rosters.member(me, "anchor", "me", 0)
    founded = rosters.create(root, first, "ours", 0)
    one, two = (
        rosters.merge(founded, [_invite(founded, me, Identity.generate(), at)]) for at in (1_000, 2_000)
    )
    file = RosterFile(tmp_path / "roster.json", me)
    assert file.keep(one).version == one.version
    both = file.keep(rosters.merge(founded, two.events[1:]))
    assert both.version == one.version + 1
    assert file.keep(founded).version == both.version
    assert keyring.load_roster(tmp_path / "roster.json").version == both.version
    before = (tmp_path / "roster.json").stat().st_mtime_ns
    file.keep(both)
    assert (tmp_path / "roster.json").stat().st_mtime_ns == before
    other = rosters.create(Identity.generate(), first, "theirs", 0)
    with pytest.raises(HearthNetError, match="became that of another community"):
        file.keep(other)
    assert keyring.load_roster(tmp_path / "roster.json").community_id == root.node_id


@pytest.mark.req("UP-18")
async def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, me = Identity.generate(), Identity.generate()
    founded = rosters.create(root, rosters.member(me, "anchor", "me", 0), "ours", 0)
    path = tmp_path / "roster.json"
    RosterFile(path, me).keep(founded)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HearthNetError) as caught:
        RosterFile(path, me).keep(rosters.merge(founded, [_invite(founded, me, Identity.generate(), 1_000)]))
    assert caught.value.code == "capacity_exceeded"
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def _invite(held: Roster, author: Identity, key: Identity, at: int) -> CommunityEvent:
    return commands.CommunityAuthor(held, author).invite(
        key, display_name="", expires_at=at + 60_000, now_ms=at
    )


async def reaches(callers: Callers, village: Village, identity: Identity) -> Visitor:
    """A connection of `identity`, once it is let in."""

    async def let_in() -> Visitor | None:
        with contextlib.suppress(Exception):
            return await callers.connect(village.house.url, identity.login())
        return None

    return await wait_for(let_in, what="the door to open")
