"""Removals are merged before all else, act before their place is there, and no merge holds the event loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session import membership, removal_lane
from hearthnet.bus.session.event_intake import UNKNOWN_BYTES
from hearthnet.bus.session.membership import Membership
from hearthnet.core import ids
from hearthnet.trust.authorization import revocation as token_revocations
from hearthnet.trust.authorization.revocation import TokenRevocation
from hearthnet.trust.community import commands, replay
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import CommunityEvent, Data, Policy, Revoked
from hearthnet.trust.community.history import History
from hearthnet.trust.community.recovery_statements import STATEMENTS
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.bus.session.test_membership import (
    FOUNDER,
    HELD,
    MEMBER,
    NOW,
    ROOT,
    STRANGER,
    Voice,
    community_of,
    hear,
    hearing,
    invites,
)
from tests.helpers.members import act, raise_to, take_in
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
REVOKED = "community.member.revoked"


class Large(Data, frozen=True):
    """The data of a kind that nobody knows."""

    filling: str = "x" * UNKNOWN_BYTES


def revocation(held: Roster, by: Identity = FOUNDER, target: Identity = MEMBER) -> CommunityEvent:
    """`by` puts `target` out, by what `held` says of it."""
    return commands.CommunityAuthor(held, by).revoke(
        target.node_id, "other", client_id=ids.new_ulid(), now_ms=NOW
    )


def resting(process: Membership) -> None:
    """As after a slice that took very long."""
    process._rest_until = asyncio.get_running_loop().time() + 3_600


def out(process: Membership, node: Identity = MEMBER) -> bool:
    """Whether the process refuses what `node` sends."""
    status = process.status(node.node_id)
    return status.revoked and not process.is_member(node.node_id)


@pytest.mark.req("ATTACK-37")
async def test_a_removal_waits_neither_for_a_flood_nor_for_a_rest() -> None:
    process, changes = hearing(), list[bool]()
    process.on_change(lambda: changes.append(out(process)))
    resting(process)
    flood = invites(MEMBER, 60)
    for subject, data in Voice(MEMBER).events(*flood):
        process.on_message(subject, data, False)
    assert len(process._waiting) == 60
    for subject, data in Voice(FOUNDER).events(revocation(HELD)):
        process.on_message(subject, data, False)
    await wait_for(lambda: out(process), what="the removal")
    assert changes == [True]
    assert len(process._waiting) == 60, "the flood rests"
    await process.close()


@pytest.mark.req("ATTACK-37")
async def test_a_demotion_and_a_departure_wait_for_no_rest_either() -> None:
    held = raise_to(community_of(MEMBER, STRANGER), FOUNDER, MEMBER, "trusted")
    process = hearing(held)
    resting(process)
    demotion = commands.CommunityAuthor(held, FOUNDER).demote(
        MEMBER.node_id, "member", client_id="x", now_ms=NOW
    )
    await hear(process, Voice(FOUNDER).events(demotion))
    assert process.roster.level(MEMBER.node_id) == "member"
    resting(process)
    await hear(process, Voice(STRANGER).events(revocation(held, STRANGER, STRANGER)))
    assert out(process, STRANGER)
    await process.close()


@pytest.mark.req("ATTACK-37")
async def test_a_revocation_acts_before_the_events_it_names_are_there() -> None:
    """The one who is put out has written to the founder what this process has not got."""
    elsewhere = rosters.merge(HELD, invites(MEMBER, 3))
    removal = revocation(elsewhere)
    process = hearing()
    await hear(process, Voice(FOUNDER).events(removal))
    assert out(process)
    assert process.roster.history.get(removal.hash) is None, "its place is not there yet"
    assert process.roster.level(FOUNDER.node_id) == "anchor"
    sealed = rosters.decode(rosters.encode(rosters.seal(process.roster, FOUNDER)))
    assert sealed.members == HELD.members, "what is written is what the events say"
    await process.add_fetched(elsewhere.events, (), "")
    assert out(process)
    assert process.roster.history.get(removal.hash) is not None
    assert process.roster.members == rosters.merge(elsewhere, [removal]).members


def departures(held: Roster, node: Identity, number: int) -> list[CommunityEvent]:
    """So many by which `node` leaves, all on an event that is nowhere."""
    nowhere = "blake3:" + "0" * 64
    return [
        act(
            held,
            node,
            REVOKED,
            Revoked(target_node_id=node.node_id, reason="x", client_id=str(one)),
            place=(5 + one, nowhere, 2**52 + one),
        )
        for one in range(number)
    ]


@pytest.mark.req("ATTACK-37")
@pytest.mark.parametrize("first", ["departures", "revocation"])
async def test_departures_displace_no_revocation(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the target itself and of an accomplice; nor do they cost a merge without a rest."""
    monkeypatch.setattr(membership, "_REST", 0)
    held = community_of(MEMBER, STRANGER)
    elsewhere = rosters.merge(held, invites(MEMBER, 3, held))
    process, removal = hearing(held), revocation(elsewhere)
    told = [Voice(one).events(*departures(held, one, 70)) for one in (MEMBER, STRANGER)]
    told.insert(0 if first == "revocation" else 2, Voice(FOUNDER).events(removal))
    for frames in told:
        await hear(process, frames)
    await hear(process, Voice(STRANGER).events(*invites(STRANGER, 1, held)))
    assert out(process)
    assert process.waiting_removals == (removal,)
    assert process.is_member(STRANGER.node_id)
    resting(process)
    for frame in Voice(STRANGER).events(*departures(held, STRANGER, 1)):
        process.on_message(*frame, False)
    assert not process._lane.queued
    await process.close()


@pytest.mark.req("ATTACK-37")
async def test_a_departure_takes_no_room_from_a_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.bus.session.event_intake.BYTES_AT_ONCE", 1)
    elsewhere = rosters.merge(HELD, invites(MEMBER, 3))
    process = Membership(STRANGER.node_id, HELD)
    await process.add_fetched([revocation(elsewhere), *departures(HELD, MEMBER, 1)], (), MEMBER.node_id)
    assert await process.add_fetched(elsewhere.events, (), MEMBER.node_id) == (True, set())


@pytest.mark.req("ATTACK-37")
async def test_whoever_is_out_before_its_revocation_has_its_place_revokes_nothing() -> None:
    held = raise_to(community_of(MEMBER, STRANGER), FOUNDER, MEMBER, "trusted")
    elsewhere = rosters.merge(held, invites(MEMBER, 3, held))
    process = hearing(held)
    await hear(process, Voice(FOUNDER).events(revocation(elsewhere, ROOT)))
    assert out(process)
    token = TokenRevocation.sign(MEMBER, ids.new_ulid(), STRANGER.node_id, "manual", now_ms=NOW)
    assert not (await process.add_fetched([], [token], STRANGER.node_id))[0]
    content = Revoked(target_node_id=STRANGER.node_id, reason="other", client_id="x")
    for frame in Voice(STRANGER).events(act(held, MEMBER, REVOKED, content)):
        process.on_message(*frame, False)
    assert not process._lane.queued, "its removals wait in turn"
    await process.close()


@pytest.mark.req("ATTACK-37")
async def test_revocations_of_tokens_are_verified_outside_of_the_event_loop_and_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held, threads = community_of(MEMBER, STRANGER), list[int]()
    checked = token_revocations.check

    def checking(*given: Any) -> None:
        threads.append(threading.get_ident())
        checked(*given)

    monkeypatch.setattr(token_revocations, "check", checking)
    process = hearing(held)
    true = TokenRevocation.sign(MEMBER, ids.new_ulid(), MEMBER.node_id, "manual", now_ms=NOW)
    forged = [msgspec.structs.replace(true, token_id=ids.new_ulid()) for _ in range(10_000)]
    assert not (await process.add_fetched([], forged, MEMBER.node_id))[0]
    assert 2_000 < len(threads) <= 2_400, "the source's budget ends it"
    assert threading.get_ident() not in threads
    assert (await process.add_fetched([], [true], STRANGER.node_id))[0]


@pytest.mark.req("ATTACK-37")
async def test_what_a_waiting_revocation_names_is_taken_in_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hearthnet.bus.session.event_intake.BYTES_AT_ONCE", 1)
    elsewhere = rosters.merge(HELD, invites(MEMBER, 3))
    process = hearing()
    assert await process.add_fetched(elsewhere.events, (), "") == (False, {MEMBER.node_id})
    await process.add_fetched([revocation(elsewhere)], (), "")
    assert await process.add_fetched(elsewhere.events, (), "") == (True, set())
    assert process.roster.version == elsewhere.version + 1


@pytest.mark.req("ATTACK-37")
async def test_a_removal_that_never_gets_its_place_opens_no_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trusted member that is in league with the target names an event that is nowhere."""
    monkeypatch.setattr("hearthnet.bus.session.event_intake.BYTES_AT_ONCE", 1_000)
    held = raise_to(community_of(MEMBER, STRANGER), FOUNDER, STRANGER, "trusted")
    policy = commands.CommunityAuthor(held, ROOT).set_policy(Policy(min_signatures_to_revoke=1), NOW)
    held = rosters.merge(held, [policy])
    content = Revoked(
        target_node_id=MEMBER.node_id,
        reason="other",
        client_id="x",
        target_heads=("blake3:" + "0" * 64,),
    )
    process = hearing(held)
    await process.add_fetched([act(held, STRANGER, REVOKED, content)], (), "")
    assert out(process)
    await process.add_fetched(invites(MEMBER, 40, held), (), "")
    assert 5 < process.roster.version - held.version < 25, "what there is room for at the other"


@pytest.mark.req("ATTACK-37")
@pytest.mark.parametrize("case", ["forged", "by a member", "too few"])
async def test_a_removal_that_would_not_count_anticipates_nothing(case: str) -> None:
    held = raise_to(community_of(MEMBER, STRANGER), FOUNDER, STRANGER, "trusted")
    missing = invites(MEMBER, 1, held)[0].hash
    author = {"forged": FOUNDER, "by a member": MEMBER, "too few": STRANGER}[case]
    target = STRANGER if case == "by a member" else MEMBER
    content = Revoked(target_node_id=target.node_id, reason="other", client_id="x", target_heads=(missing,))
    event = act(held, author, REVOKED, content)
    if case == "forged":
        event = CommunityEvent(**{**event.as_json(), "lamport": event.lamport + 1})
    process = hearing(held)
    await hear(process, Voice(MEMBER).events(event))
    assert process.roster is held


@pytest.mark.req("ATTACK-37")
async def test_one_event_over_a_limit_holds_back_no_other_of_its_frame() -> None:
    """As what the own node fetched: the flood first, its end last."""
    process = hearing()
    large = act(HELD, MEMBER, "community.fair.opened", Large(), now_ms=NOW)
    await hear(process, Voice(FOUNDER).events(large, revocation(HELD)))
    assert out(process)
    assert process.dropped == 1


@pytest.mark.req("ATTACK-37")
async def test_merges_are_slices_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_SLICE", 7)
    sizes, threads = list[int](), set[int]()
    extended, derived = History.extended, rosters.derived

    def extending(held: History, events: Any, *given: Any) -> Any:
        sizes.append(len(events))
        threads.add(threading.get_ident())
        return extended(held, events, *given)

    def deriving(history: History) -> Roster:
        threads.add(threading.get_ident())
        return derived(history)

    made = invites(MEMBER, 40)
    monkeypatch.setattr(History, "extended", extending)
    monkeypatch.setattr(rosters, "derived", deriving)
    process, fetching = hearing(), hearing()
    await hear(process, Voice(MEMBER).events(*made[:20]))
    await fetching.add_fetched(made, (), "")
    assert (process.roster.version, fetching.roster.version) == (HELD.version + 20, HELD.version + 40)
    assert max(sizes) == 7
    assert threading.get_ident() not in threads


@pytest.mark.req("ATTACK-37")
async def test_a_removal_displaces_nothing_that_waits_for_its_place() -> None:
    process = hearing()
    first, second = invites(FOUNDER, 2)
    await hear(process, Voice(FOUNDER).events(second))
    await hear(process, Voice(FOUNDER).events(revocation(HELD, ROOT)))
    await hear(process, Voice(FOUNDER).events(first))
    assert out(process)
    assert process.roster.history.get(second.hash) is not None


@pytest.mark.req("ATTACK-37")
async def test_the_root_is_heard_first_as_well() -> None:
    process = hearing()
    resting(process)
    await hear(process, Voice(MEMBER).events(revocation(HELD, ROOT)))
    assert out(process)
    await process.close()


PAPER, KEY, PAGE, WRONG = (Identity(bytes([number]) * 32) for number in range(30, 34))


def with_person() -> Roster:
    """The community, in which a person has the nodes of the member and the stranger, and a page."""
    held = community_of(MEMBER, STRANGER)
    held = rosters.merge(held, [commands.CommunityAuthor(held, MEMBER).key_person(PAPER, KEY, NOW)])
    for node in (MEMBER, STRANGER):
        author = commands.CommunityAuthor(held, node)
        held = rosters.merge(held, [author.add_node(PAPER.node_id, KEY, "node", NOW)])
    offered = statements.offered_device(
        held.community_id, PAPER.node_id, KEY, PAGE.node_id, "browser", "page"
    )
    signed = statements.consented(held.community_id, offered, PAGE)
    return rosters.merge(held, [commands.CommunityAuthor(held, MEMBER).add_device(signed, NOW)])


def removed(
    held: Roster,
    device: Identity,
    signer: Identity = KEY,
    author: Identity = MEMBER,
    reason: str = "lost",
    heads: tuple[str, ...] = (),
    place: tuple[int, str, int] | None = None,
) -> CommunityEvent:
    """The node of `author` carries that the person removes `device`."""
    heads = heads or tuple(tip.hash for tip in held.history.tips.get(device.node_id, ()))
    content = statements.device_removed(
        held.community_id, PAPER.node_id, signer, device.node_id, heads, reason
    )
    return act(held, author, statements.DEVICE_REMOVED, content, place)


@pytest.mark.req("ATTACK-37", "PERSON-4")
@pytest.mark.parametrize("signer", [KEY, PAPER], ids=["person key", "recovery key"])
async def test_a_person_puts_its_node_out_without_a_rest_or_its_place(signer: Identity) -> None:
    held = with_person()
    elsewhere = rosters.merge(held, invites(STRANGER, 3, held))
    process = hearing(held)
    resting(process)
    await hear(process, Voice(MEMBER).events(removed(elsewhere, STRANGER, signer)))
    assert out(process, STRANGER)
    assert not process.roster.is_device(STRANGER.node_id, PAPER.node_id)
    await process.close()


@pytest.mark.req("ATTACK-37", "PERSON-4")
async def test_what_no_key_of_a_person_signed_has_no_lane() -> None:
    """Nor has the removal of a page, which cuts nobody off: both wait in turn."""
    held = with_person()
    process = hearing(held)
    resting(process)
    for event in (removed(held, STRANGER, WRONG), removed(held, PAGE), removed(held, FOUNDER)):
        for subject, data in Voice(MEMBER).events(event):
            process.on_message(subject, data, False)
    assert len(process._waiting) == 3
    assert not process._lane.queued
    assert not out(process, STRANGER)
    await process.close()


def in_vain(held: Roster, signer: Identity = KEY) -> Iterator[CommunityEvent]:
    """Valid removals of the stranger's node, kept by a later epoch; their place never comes."""
    sequence, _, lamport = held.next(MEMBER.node_id)
    for number in itertools.count(1):
        place = (sequence + number, "blake3:" + "0" * 64, lamport + number)
        yield removed(held, STRANGER, signer, reason=f"{number}", place=place)


def spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One removal in vain is all that there is room for, whatever the machine does meanwhile."""
    monkeypatch.setattr(removal_lane, "SECONDS_AT_ONCE", 1e-9)
    monkeypatch.setattr(removal_lane, "SECONDS_PER_SECOND", 0.0)


def with_an_old_key_again() -> Roster:
    """As `with_person`; the person key is that of the first epoch, and another was in between."""
    held, stay = with_person(), (MEMBER.node_id, STRANGER.node_id, PAGE.node_id)
    for epoch, key in ((2, WRONG), (3, KEY)):
        content = statements.keyed(held.community_id, PAPER, epoch, key.node_id, stay)
        held = rosters.merge(held, [act(held, MEMBER, statements.KEYED, content)])
    return held


@pytest.mark.req("ATTACK-63")
@pytest.mark.parametrize("signer", [KEY, PAPER], ids=["person key", "recovery key"])
async def test_removals_in_vain_lose_the_lane(signer: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    spent(monkeypatch)
    if signer is PAPER:  # those of the recovery key count, but for the ninth of one node
        monkeypatch.setattr(replay, "MAX_REMOVALS", 0)
    held = with_an_old_key_again()
    process, made = hearing(held), in_vain(held, signer)
    assert not process.status(STRANGER.node_id).revoked
    await hear(process, Voice(MEMBER).events(next(made)))
    resting(process)
    for frame in Voice(MEMBER).events(next(made)):
        process.on_message(*frame, False)
    assert (len(process._waiting), len(process._lane.queued)) == (1, 0)
    await process.close()


@pytest.mark.req("ATTACK-63")
async def test_a_spent_person_key_takes_nothing_from_the_recovery_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thief has the person key, and forges what it cannot sign; the own node passes both on."""
    spent(monkeypatch)
    held = with_an_old_key_again()
    process = Membership(FOUNDER.node_id, held)
    forged = CommunityEvent(**{**removed(held, STRANGER, PAPER).as_json(), "lamport": 2**40})
    for event in (next(in_vain(held)), forged):
        await process.add([event])
    resting(process)
    await hear(process, Voice(MEMBER).events(removed(held, STRANGER, PAPER)))
    assert out(process, STRANGER)
    await process.close()


@pytest.mark.req("ATTACK-63")
async def test_a_sender_has_few_removals_by_persons_in_the_lane_at_once() -> None:
    held = with_an_old_key_again()
    process = hearing(held)
    made = list(itertools.islice(in_vain(held), removal_lane.MAX_AT_ONCE + 5))
    for subject, data in Voice(MEMBER).events(*made):
        process.on_message(subject, data, False)
    assert (len(process._waiting), len(process._lane.queued)) == (5, removal_lane.MAX_AT_ONCE)
    await process.close()


@pytest.mark.req("ATTACK-63")
async def test_carriers_of_a_persons_removal_displace_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The person's two nodes are out before the places of these are there, whoever carries how many."""
    monkeypatch.setattr(removal_lane, "_MOST_EARLY", 2)
    held = with_person()
    heads = [(one.hash,) for one in invites(STRANGER, 3, held)]
    carriers = zip((MEMBER, PAGE, FOUNDER), heads, strict=True)
    carried = [removed(held, STRANGER, author=author, heads=known) for author, known in carriers]
    process = hearing(held)
    await process.add([*carried, removed(held, MEMBER, PAPER, author=WRONG, heads=heads[0])])
    assert out(process, STRANGER)
    assert out(process, MEMBER)
    assert len(process.waiting_removals) == 2, "one for each node"
    await process.close()


@pytest.mark.req("ATTACK-66")
@pytest.mark.parametrize("signer", [PAPER, WRONG], ids=["the person's", "a free person's"])
async def test_a_thief_that_filled_the_lines_room_keeps_out_no_recovery(
    signer: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stolen node has let in the other one, so that both have one room. A person of nobody gets none."""
    monkeypatch.setattr("hearthnet.bus.session.event_intake.BYTES_AT_ONCE", 4_000)
    held, new = take_in(community_of(MEMBER), MEMBER, STRANGER), Identity.generate()
    held = rosters.merge(held, [commands.CommunityAuthor(held, MEMBER).key_person(PAPER, KEY, NOW)])
    for node in (MEMBER, STRANGER):
        author = commands.CommunityAuthor(held, node)
        held = rosters.merge(held, [author.add_node(PAPER.node_id, KEY, "node", NOW)])
    process = hearing(held)
    await process.add_fetched(invites(MEMBER, 20, held), (), MEMBER.node_id)
    assert process.passed_over
    kinds = {content: kind for kind, content in STATEMENTS.items()}
    made: tuple[statements.Statement, ...] = (statements.keyed(held.community_id, signer, 2, new.node_id),)
    if signer is PAPER:
        author = commands.CommunityAuthor(held, PAPER)
        made = (*author.recovered(new, (MEMBER.node_id,)), author.named_helpers(KEY.node_id, 1, ()))
    for one in made:
        author = commands.CommunityAuthor(held, STRANGER)
        event = author.carry(kinds[type(one)], msgspec.to_builtins(one), NOW)
        held = rosters.merge(held, [event])
        await hear(process, Voice(STRANGER).events(event))
    person = process.roster.person(PAPER.node_id)
    assert person is not None
    found = (person.epoch, out(process), person.helpers is not None)
    assert found == ((2, True, True) if signer is PAPER else (1, False, False))
    assert process.roster.person(WRONG.node_id) is None
    await process.close()
