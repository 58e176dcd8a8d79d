"""What a process makes of what others tell everybody: proved, at a bounded cost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import msgspec
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.session import event_intake, frame_budget, gossip_frames, membership
from hearthnet.bus.session.gossip_frames import HEADS, LOG, RELAY, REVOKED, SetDigest, SetDigests
from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.session.membership import Membership
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.header import Header
from hearthnet.trust import signed_document
from hearthnet.trust.authorization import revocation
from hearthnet.trust.community import commands
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import raise_to, take_in
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for

ROOT, FOUNDER, MEMBER, STRANGER = (Identity(bytes([number]) * 32) for number in range(1, 5))
NOW = now_ms()


def community_of(*guests: Identity) -> Roster:
    """A founder's community with these members."""
    first = rosters.member(FOUNDER, "anchor", "founder", NOW)
    held = rosters.create(ROOT, first, "here", NOW)
    for guest in guests:
        held = take_in(held, FOUNDER, guest)
    return held


HELD = community_of(MEMBER)


class Voice:
    """One who tells everybody something: frames as they come from the server, true or false."""

    def __init__(self, identity: Identity, community_id: str = HELD.community_id) -> None:
        self.identity = identity
        self.community_id = community_id

    def header(self, event_type: str) -> Header:
        """As of a process of that node."""
        return Header(
            kind="event",
            id=ids.new_ulid(),
            sender=self.identity.node_id,
            from_instance="a1b2c3d4",
            community=self.community_id,
            time=NOW,
            event=event_type,
        )

    def frame(self, event_type: str, body: bytes, **header: Any) -> tuple[str, bytes]:
        """Subject and data."""
        made = msgspec.structs.replace(self.header(event_type), **header)
        subject = subjects.event(self.identity.node_id, event_type)
        return subject, frames.signed(made, body, self.identity)

    def events(self, *events: CommunityEvent) -> list[tuple[str, bytes]]:
        """The frames that tell of these events."""
        return [self.frame(LOG, body) for body in gossip_frames.batches(events, ())]


def invites(author: Identity, number: int, held: Roster = HELD) -> list[CommunityEvent]:
    """So many events of one author, each on the one before."""
    made: list[CommunityEvent] = []
    for _ in range(number):
        event = commands.CommunityAuthor(held, author).invite(
            Identity.generate(), display_name="x", expires_at=NOW + 60_000, now_ms=NOW
        )
        held = rosters.merge(held, [event])
        made.append(event)
    return made


def size_of(events: Iterable[CommunityEvent]) -> int:
    """The room that they take, in bytes."""
    return sum(len(event.encode()) for event in events)


def hearing(held: Roster = HELD) -> Membership:
    """A process of the founder's node."""
    return Membership(FOUNDER.node_id, held)


async def hear(process: Membership, told: list[tuple[str, bytes]]) -> None:
    """Hands over what comes from the server, and waits until it is merged."""
    for subject, data in told:
        process.on_message(subject, data, False)
    await merged(process)


async def merged(process: Membership) -> None:
    """Waits until nothing is left to be merged."""
    await wait_for(
        lambda: not (process._work or process._waiting or process._lane.queued),
        what="everything to be merged",
    )


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[int]:
    """One entry for each call of a module's function from now on."""
    calls: list[int] = []
    original = getattr(module, name)

    def counting(*given: Any) -> Any:
        calls.append(1)
        return original(*given)

    monkeypatch.setattr(module, name, counting)
    return calls


def stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """No budget grows while a test spends it."""
    for module in (gossip_frames, membership, event_intake, frame_budget):
        monkeypatch.setattr(module, "steady_ms", lambda: 0)


@pytest.mark.req("COMMUNITY-1")
@pytest.mark.asyncio
async def test_news_is_taken_in_at_once_and_told_to_who_wants_to_know() -> None:
    process, heard = hearing(), 0

    def changed() -> None:
        nonlocal heard
        heard += 1

    process.on_change(changed)
    events = invites(MEMBER, 3)
    await hear(process, Voice(MEMBER).events(*events))
    assert process.roster.version == HELD.version + 3
    assert heard == 1
    await hear(process, Voice(MEMBER).events(*events))
    assert heard == 1, "what is known already is no change"
    document = revocation.TokenRevocation.sign(MEMBER, ids.new_ulid(), MEMBER.node_id, "manual", now_ms=NOW)
    for _ in range(2):
        await hear(
            process, [Voice(MEMBER).frame(REVOKED, body) for body in gossip_frames.batches((), (document,))]
        )
    assert process.revocations.revoked(MEMBER.node_id, document.token_id)
    assert heard == 2


@pytest.mark.req("COMMUNITY-1")
@pytest.mark.asyncio
async def test_events_of_others_are_passed_on_by_anybody_and_prove_themselves() -> None:
    """The member tells what the founder did, truly, and then what the founder never did."""
    process = hearing()
    true = commands.CommunityAuthor(HELD, FOUNDER).promote(
        MEMBER.node_id, "trusted", client_id=ids.new_ulid(), now_ms=NOW
    )
    forged = msgspec.structs.replace(true, data={**true.data, "new_level": "anchor"})
    await hear(process, Voice(MEMBER).events(forged))
    assert process.roster.level(MEMBER.node_id) == "member"
    await hear(process, Voice(MEMBER).events(true))
    await wait_for(lambda: process.roster.level(MEMBER.node_id) == "trusted", what="the next look")


@pytest.mark.req("COMMUNITY-1")
@pytest.mark.asyncio
async def test_an_event_that_comes_before_its_own_past_waits_for_it() -> None:
    process = hearing()
    first, second, third = invites(MEMBER, 3)
    await hear(process, Voice(MEMBER).events(third))
    assert process.roster is HELD
    assert await process.add([second]) is False
    assert await process.add([first])
    assert process.roster.version == HELD.version + 3


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.asyncio
async def test_only_so_many_events_wait_for_their_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_MOST_EARLY", 5)
    process, early = hearing(), invites(MEMBER, 9)[1:]
    for _ in range(2):
        assert await process.add([*early[-3:], *early]) is False
        assert len({one.hash for one in process._early}) == len(process._early) == 5


def altered(data: bytes) -> bytes:
    """The same with one bit turned."""
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.req("COMMUNITY-1", "COMMUNITY-5")
@pytest.mark.asyncio
async def test_what_is_not_a_members_or_not_whole_changes_nothing() -> None:
    process, event = hearing(), invites(MEMBER, 1)[0]
    member, body = Voice(MEMBER), next(gossip_frames.batches([event], ()))
    subject, data = member.frame(LOG, body)
    wrong = [
        Voice(STRANGER).frame(LOG, body),
        (subject, altered(data)),
        (subjects.event(FOUNDER.node_id, LOG), data),
        (subjects.event(MEMBER.node_id, REVOKED), data),
        ("hn.event.nobody.community.log", data),
        (subject, b"no frame"),
        (subject, frames.plain(member.header(LOG), body)),
        member.frame(LOG, body, kind="offer"),
        member.frame(LOG, body, community=STRANGER.node_id),
        member.frame(LOG, b'{"events":[{}]}'),
        member.frame(LOG, b'{"events":7}'),
        member.frame(LOG, b"["),
        member.frame(REVOKED, b'{"revocations":[{}]}'),
        member.frame(LOG, body + b" " * gossip_frames.FRAME_BYTES),
    ]
    for told in wrong:
        await hear(process, [told])
    assert process.dropped == len(wrong)
    assert process.roster is HELD
    gone = rosters.merge(
        HELD,
        [
            commands.CommunityAuthor(HELD, ROOT).revoke(
                MEMBER.node_id, "x", client_id=ids.new_ulid(), now_ms=NOW
            )
        ],
    )
    after = hearing(gone)
    await hear(after, [(subject, data)])
    assert after.roster is gone, "who was put out is not listened to any more"


@pytest.mark.req("COMMUNITY-1")
@pytest.mark.asyncio
async def test_a_revocation_that_is_not_its_makers_to_make_is_dropped() -> None:
    process = hearing()
    document = revocation.TokenRevocation.sign(MEMBER, ids.new_ulid(), FOUNDER.node_id, "manual", now_ms=NOW)
    await hear(
        process, [Voice(MEMBER).frame(REVOKED, body) for body in gossip_frames.batches((), (document,))]
    )
    assert not process.revocations.revoked(FOUNDER.node_id, document.token_id)
    assert process.dropped == 1
    trusted = hearing(raise_to(HELD, FOUNDER, MEMBER, "trusted"))
    assert await trusted.add((), (document,))


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.asyncio
async def test_known_events_cost_no_check_of_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    events = invites(MEMBER, 5)
    process = hearing(rosters.merge(HELD, events))
    checked = counted(monkeypatch, signed_document, "check")
    for _ in range(20):
        await hear(process, Voice(MEMBER).events(*events))
    assert checked == []
    await hear(process, Voice(MEMBER).events(*invites(MEMBER, 1, process.roster)))
    assert checked, "what is new is checked"


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.asyncio
async def test_a_flood_is_cut_off_and_the_others_are_still_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member forges ever new events, 67 a frame; each frame costs its budget of 2,000, and then nothing."""
    stand_still(monkeypatch)
    process = hearing(community_of(MEMBER, STRANGER))
    (true,) = invites(MEMBER, 1, process.roster)
    (other,) = invites(STRANGER, 1, process.roster)
    opened, proved = (
        counted(monkeypatch, frames, "read_signed"),
        counted(monkeypatch, signed_document, "check"),
    )
    told = 0
    for _ in range(10):
        forged = [msgspec.structs.replace(true, event_id=ids.new_ulid()) for _ in range(500)]
        flood = Voice(MEMBER).events(*forged)
        told += len(flood)
        await hear(process, flood)
        await asyncio.sleep(0)
    await hear(process, Voice(STRANGER).events(other))

    def heard() -> bool:
        return process.roster.history.get(other.hash) is not None

    await wait_for(heard, what="the other one to be heard")
    assert told == 80
    assert process.dropped == told - 25, "so many frames of 84 units there are in 2,000"
    assert len(opened) < 30, "and the others are not even opened"
    assert 1_000 < len(proved) <= 25 * 67 + 1


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "heard"), [(0, 2_000), (100_000, 80)])
async def test_empty_frames_and_large_ones_cost_their_sender_as_well(
    size: int, heard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_still(monkeypatch)
    process = hearing()
    told = Voice(MEMBER).frame(LOG, b'{"events":[]' + b" " * size + b"}")

    def dropped() -> int:
        return process.dropped + process.reader.budget.dropped

    for _ in range(heard):
        await hear(process, [told])
    assert dropped() == 0
    for _ in range(20):
        await hear(process, [told])
    assert dropped() == 20


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.asyncio
async def test_what_one_author_writes_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever passes it on: everybody keeps events for good."""
    held = community_of(MEMBER, STRANGER)
    events = invites(MEMBER, 8, held)
    monkeypatch.setattr(event_intake, "BYTES_AT_ONCE", size_of(events[:3]))
    stand_still(monkeypatch)
    process = hearing(held)
    before = process.roster.version
    for event in events:
        await hear(process, Voice(STRANGER).events(event))
    kept = process.roster.version - before
    assert kept == 3
    assert process.passed_over == 0 < process.dropped, "what is over the limit is not even proved"
    assert not (await process.add_fetched(events[kept:], (), ""))[0]
    assert await process.add(events[kept:]), "what the own node has on the disk is not cut off"


@pytest.mark.req("COMMUNITY-5")
@pytest.mark.asyncio
async def test_more_than_can_wait_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_MOST_WAITING", 2)
    process = hearing()
    await hear(process, Voice(MEMBER).events(*invites(MEMBER, 3)))
    assert process.dropped == 1
    assert process.roster.version == HELD.version + 2


@pytest.mark.req("COMMUNITY-4")
def test_of_two_that_know_different_things_exactly_one_asks() -> None:
    less, more, other = SetDigest(1, "blake3:0"), SetDigest(2, "blake3:0"), SetDigest(2, "blake3:1")
    for one, two in ((less, more), (more, other), (less, other)):
        assert one.is_behind(two)
        assert not two.is_behind(one)
        assert not one.is_behind(one)
    assert SetDigests(less, more).is_behind(SetDigests(more, more))
    assert SetDigests(more, less).is_behind(SetDigests(less, more)), "each may lack something of the other"
    assert not SetDigests(more, more).is_behind(SetDigests(less, more))


@pytest.mark.req("COMMUNITY-4")
@pytest.mark.asyncio
async def test_heads_say_what_is_known_and_change_with_it() -> None:
    one, other = hearing(), hearing()
    assert one.heads() == other.heads()
    events = invites(MEMBER, 1)
    await one.add(events)
    assert other.heads().is_behind(one.heads())
    document = revocation.TokenRevocation.sign(MEMBER, ids.new_ulid(), MEMBER.node_id, "manual", now_ms=NOW)
    await other.add(events, (document,))
    assert one.heads().is_behind(other.heads())
    assert one.heads().events == other.heads().events


@pytest.mark.req("COMMUNITY-1", "COMMUNITY-7")
@pytest.mark.asyncio
async def test_the_own_node_is_heard_without_a_limit_and_tells_how_much_it_knows() -> None:
    process, told = hearing(), list[SetDigests]()
    process.on_local_heads(told.append)
    heads = SetDigests(SetDigest(9, "x"), SetDigest(0, "y"))
    await hear(process, [Voice(FOUNDER).frame(HEADS, msgspec.json.encode(heads))])
    assert told == [heads]
    events = invites(FOUNDER, 3)
    for body in gossip_frames.batches(events, ()):
        for _ in range(3_000):
            await hear(process, [Voice(FOUNDER).frame(RELAY, body)])
            if process.dropped:
                break
    assert (process.dropped, process.roster.version) == (0, HELD.version + 3)


@pytest.mark.req("COMMUNITY-1")
def test_batches_are_of_bounded_size_and_together_all() -> None:
    events = invites(MEMBER, 3)
    large = [msgspec.structs.replace(events[0], wall_clock="x" * 40_000) for _ in range(5)]
    bodies = list(gossip_frames.batches([*events, *large], ()))
    assert len(bodies) == 5
    assert max(map(len, bodies)) < 120_000
    assert sum(body.count(b'"event_id"') for body in bodies) == 8


@pytest.mark.req("COMMUNITY-1")
@pytest.mark.asyncio
async def test_a_process_hears_every_member_over_the_server(mesh: Mesh) -> None:
    """An event of the guest's, told by its own process, reaches another process and the founder's."""
    async with await mesh.guest_bus() as guest, await mesh.guest_bus() as second, await mesh.bus() as founder:
        own = load_identity(mesh.guest.device_key)
        (event,) = invites(own, 1, guest.peer.roster)
        for body in gossip_frames.batches([event], ()):
            await gossip_frames.publish(guest.peer.sender, LOG, body)

        def knows(bus: Bus) -> bool:
            return bus.peer.roster.history.get(event.hash) is not None

        await wait_for(lambda: all(map(knows, (guest, second, founder))), what="all three to know")


@pytest.mark.req("COMMUNITY-1")
@pytest.mark.asyncio
async def test_what_the_own_node_learned_elsewhere_is_for_its_own_processes(mesh: Mesh) -> None:
    async with await mesh.guest_bus() as guest, await mesh.guest_bus() as second, await mesh.bus() as founder:
        own = load_identity(mesh.guest.device_key)
        first, after = invites(own, 2, guest.peer.roster)
        await gossip_frames.publish(guest.peer.sender, RELAY, next(gossip_frames.batches([first], ())))
        before = founder.peer.roster.version
        await wait_for(lambda: second.peer.roster.version > before, what="the relay")
        await founder.peer.link.flush_subscriptions()
        assert founder.peer.roster.version == before
        await gossip_frames.publish(guest.peer.sender, LOG, next(gossip_frames.batches([first, after], ())))
        await wait_for(lambda: founder.peer.roster.version == second.peer.roster.version, what="both")
        with pytest.raises(HearthNetError, match="is no event type"):
            await gossip_frames.publish(guest.peer.sender, "community.>", b"{}")
