"""Room for what others write: shared by all whom one member let in, and no reason to disagree for good."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.bus.session import event_intake, membership
from hearthnet.bus.session.membership import Membership
from hearthnet.core import ids
from hearthnet.trust import signed_document
from hearthnet.trust.community import commands, events
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.events import (
    ADMITTED,
    JOINED,
    PURPOSE,
    Admitted,
    CommunityEvent,
    Data,
    Joined,
    Policy,
)
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.bus.session.test_membership import (
    FOUNDER,
    MEMBER,
    NOW,
    ROOT,
    STRANGER,
    Voice,
    community_of,
    hear,
    hearing,
    size_of,
)
from tests.helpers.members import DAY_MS, act, let_in, raise_to, take_in

pytestmark = pytest.mark.asyncio
CHILDREN = [Identity(bytes([number]) * 32) for number in range(30, 38)]


class Malformed(Data, frozen=True):
    """The data of a revocation of nobody."""

    target_node_id: int = 7


class Note(Data, frozen=True):
    """The data of a kind that nobody knows."""

    text: str = ""


def notes(held: Roster, author: Identity, number: int, text: str = "") -> list[CommunityEvent]:
    """A chain of so many events that mean nothing."""
    made: list[CommunityEvent] = []
    for _ in range(number):
        made.append(act(held, author, "community.fair.opened", Note(text=text), now_ms=NOW))
        held = rosters.merge(held, made[-1:])
    return made


def request(held: Roster, key: Identity, invite: CommunityEvent, newcomer: Identity) -> Joined:
    """The content of a request to join under `invite`."""
    entry = events.entry_of(newcomer, "x")
    bare = Joined(invite_event_hash=invite.hash, invite_key=key.node_id, member=entry, invite_signature="")
    signature = key.sign(events.INVITE_PURPOSE, events.request(held.community_id, bare))
    return msgspec.structs.replace(bare, invite_signature=ids.b64(signature))


def since(held: Roster, later: Roster) -> list[CommunityEvent]:
    """What was added."""
    return [one for one in later.events if held.history.get(one.hash) is None]


@pytest.mark.req("ATTACK-36")
async def test_all_whom_a_member_let_in_share_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member, two whom it invited and one whom these invited; another member has room of its own."""
    held = community_of(MEMBER, STRANGER)
    for by, child in ((MEMBER, 0), (MEMBER, 1), (CHILDREN[1], 2)):
        held = take_in(held, by, CHILDREN[child])
    assert held.line(CHILDREN[2].node_id) == tuple(one.node_id for one in (CHILDREN[2], CHILDREN[1], MEMBER))
    room = size_of(notes(held, MEMBER, 8))
    monkeypatch.setattr(event_intake, "BYTES_AT_ONCE", room + 100)
    monkeypatch.setattr(event_intake, "BYTES_PER_SECOND", 0)
    process = hearing(held)

    async def kept(author: Identity) -> int:
        made = notes(held, author, 12)
        await process.add_fetched(made, (), STRANGER.node_id)
        return sum(process.roster.history.get(one.hash) is not None for one in made)

    assert await kept(CHILDREN[2]) == 4, "whoever was invited may use half of it"
    assert await kept(CHILDREN[1]) == 0, "answers for whom it invited"
    assert await kept(CHILDREN[0]) == 4, "is left the other half"
    assert await kept(MEMBER) == 0, "all of it is used"
    assert await kept(STRANGER) == 8
    assert process.passed_over >= 4
    assert await kept(FOUNDER) == 12, "the founder is not held to it"


@pytest.mark.req("ATTACK-66")
async def test_persons_of_whom_a_member_let_in_share_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member lets in nodes, each with a person of its own. The member's person has room all the same."""
    monkeypatch.setattr(event_intake, "BYTES_AT_ONCE", 0)
    monkeypatch.setattr(event_intake, "RECOVERY_BYTES", 16_000)
    held, papers = community_of(MEMBER), dict[str, Identity]()
    for child in CHILDREN:
        held = let_in(held, MEMBER, child)
    for node in (*CHILDREN, MEMBER):
        paper, key = papers.setdefault(node.node_id, Identity.generate()), Identity.generate()
        held = rosters.merge(held, [commands.CommunityAuthor(held, node).key_person(paper, key, NOW)])
        author = commands.CommunityAuthor(held, node)
        held = rosters.merge(held, [author.add_node(paper.node_id, key, "node", NOW)])
    intake = event_intake.EventIntake(STRANGER.node_id, lambda: held)

    def taken(node: Identity) -> int:
        """So many bytes of new epochs of the node's person have room."""
        author = commands.CommunityAuthor(held, node)
        event = author.key_person(papers[node.node_id], Identity.generate(), NOW)
        size = 0
        while intake.take(event, (node.node_id,), held.history.get):
            size += len(event.encode())
        return size

    sizes = [taken(node) for node in (*CHILDREN, MEMBER)]
    assert 14_000 <= sum(sizes[:-1]) <= 16_000
    assert 7_000 <= sizes[0] <= 8_000
    assert 14_000 <= sizes[-1] <= 16_000


@pytest.mark.req("ATTACK-36")
async def test_large_events_of_unknown_kinds_are_not_taken_in() -> None:
    held = community_of(MEMBER, STRANGER)
    room = event_intake.UNKNOWN_BYTES - size_of(notes(held, MEMBER, 1))
    for text, taken in (("x" * room, True), ("x" * (room + 1), False)):
        process = hearing(held)
        new, passed_over = await process.add_fetched(notes(held, MEMBER, 1, text), (), STRANGER.node_id)
        assert (new, passed_over) == (taken, set() if taken else {MEMBER.node_id})


@pytest.mark.req("ATTACK-36")
@pytest.mark.parametrize("most", [None, 3, 7])
async def test_a_line_lets_in_so_many_a_day(most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_intake, "steady_ms", lambda: 0)
    held = community_of(MEMBER, STRANGER)
    if most is not None:
        policy = msgspec.structs.replace(Policy(), admissions_per_day=most)
        held = rosters.merge(held, [commands.CommunityAuthor(held, ROOT).set_policy(policy, NOW)])
    later = held
    for child in CHILDREN:
        by = MEMBER if child is CHILDREN[0] else CHILDREN[0]
        later = let_in(later, by, child)
    process = hearing(held)
    await process.add_fetched(since(held, later), (), STRANGER.node_id)
    assert len(process.roster.members) - len(held.members) == 1 + (most or 5) // 2, "a newcomer has half"
    for day in range(1, 8):
        monkeypatch.setattr(event_intake, "steady_ms", lambda: day * DAY_MS)  # noqa: B023
        await process.add_fetched(since(held, later), (), STRANGER.node_id)
    assert process.roster.members == later.members, "the others are delayed"


@pytest.mark.req("ATTACK-36")
async def test_nobody_admits_more_under_a_members_invites_than_the_member() -> None:
    """A trusted home of a version before, whose admissions a plain member passes on."""
    held = raise_to(community_of(MEMBER, STRANGER), FOUNDER, STRANGER, "trusted")
    later = held
    for child in CHILDREN:
        later = let_in(later, MEMBER, child, admits=STRANGER)
    process = hearing(held)
    await process.add_fetched(since(held, later), (), MEMBER.node_id)
    assert len(process.roster.members) - len(held.members) == 2


@pytest.mark.req("ATTACK-36")
async def test_admissions_of_who_is_a_member_already_cost_the_inviter_nothing() -> None:
    held = take_in(community_of(MEMBER, STRANGER), MEMBER, CHILDREN[0])
    asked = next(one for one in held.events if one.author == CHILDREN[0].node_id)
    again, later = Admitted(joined_event_hash=asked.hash, node_id=asked.author), held
    for _ in range(6):
        later = rosters.merge(later, [act(later, CHILDREN[0], ADMITTED, again)])
    for child in CHILDREN[1:6]:
        later = let_in(later, MEMBER, child)
    process = hearing(held)
    await process.add_fetched(since(held, later), (), STRANGER.node_id)
    assert process.roster.members == later.members


@pytest.mark.req("ATTACK-36")
@pytest.mark.parametrize("inviter", ["made up", "innocent"])
async def test_forged_requests_give_no_room_and_burden_nobody(
    inviter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has verified what says who invited a newcomer when it is first heard."""
    monkeypatch.setattr(event_intake, "steady_ms", lambda: 0)
    key = Identity.generate()
    held = community_of(MEMBER, STRANGER)
    own, others = (
        commands.CommunityAuthor(held, one).invite(key, display_name="x", expires_at=NOW + DAY_MS, now_ms=NOW)
        for one in (MEMBER, STRANGER)
    )
    held = rosters.merge(held, [own, others])
    made_up = signed_document.sign(
        msgspec.structs.replace(others, author=Identity.generate().node_id), MEMBER, PURPOSE
    )
    invite = made_up if inviter == "made up" else others
    monkeypatch.setattr(event_intake, "BYTES_AT_ONCE", 8_000)
    process, kept = hearing(held), 0
    for _ in range(8):
        newcomer = Identity.generate()
        asked = act(held, newcomer, JOINED, request(held, key, own, newcomer))
        forged = msgspec.structs.replace(asked, data={**asked.data, "invite_event_hash": invite.hash})
        flood = notes(rosters.merge(held, [asked]), newcomer, 3, "x" * 500)
        told = [forged, asked, *flood] if inviter == "innocent" else [made_up, forged, asked, *flood]
        await hear(process, Voice(MEMBER).events(*told))
        kept = size_of(since(held, process.roster))
    assert kept <= 4_000, "all newcomers of the member have half of its room"
    mine = notes(process.roster, STRANGER, 4, "x" * 1_300)
    assert 6_000 < size_of(mine) < 8_000
    assert await process.add_fetched(mine, (), "") == (True, set()), "the other one has all of its room"
    assert len(process._intake._vouchers) <= 8
    await process.close()


@pytest.mark.req("ATTACK-36")
async def test_what_a_trusted_member_passes_on_is_not_delayed() -> None:
    """A home that was away for long gets what the others took in day by day."""
    held = raise_to(community_of(MEMBER, STRANGER), FOUNDER, STRANGER, "trusted")
    later = held
    for child in CHILDREN:
        later = let_in(later, MEMBER, child)
    process = hearing(held)
    await process.add_fetched(since(held, later), (), STRANGER.node_id)
    assert process.roster.members == later.members


@pytest.mark.req("ATTACK-36", "COMM-2")
@given(seed=st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
async def test_homes_that_were_fed_differently_agree_in_the_end(seed: int) -> None:
    """One line floods, forks its chain and lets nodes in, and is put out; nobody else is ever in doubt."""
    draw = random.Random(seed)
    base = community_of(MEMBER, STRANGER)
    first = rosters.merge(base, notes(base, MEMBER, draw.randint(1, 6)))
    second = let_in(let_in(first, MEMBER, CHILDREN[0]), CHILDREN[0], CHILDREN[1])
    fork = rosters.merge(base, notes(base, MEMBER, draw.randint(1, 6), "fork"))
    third = rosters.merge(let_in(second, STRANGER, CHILDREN[2]), fork.events)
    removal = commands.CommunityAuthor(third, FOUNDER).revoke(
        MEMBER.node_id, "other", client_id=ids.new_ulid(), now_ms=NOW
    )
    everything = rosters.merge(third, [removal])
    with pytest.MonkeyPatch.context() as patch:
        clock = [0]
        patch.setattr(event_intake, "steady_ms", lambda: clock[0])
        patch.setattr(event_intake, "BYTES_AT_ONCE", 4_000)
        patch.setattr(event_intake, "BYTES_PER_SECOND", 4_000 / 86_400)
        patch.setattr(membership, "_SLICE", draw.randint(1, 9))
        # Neither is the founder's, for whose own events there is always room.
        homes = [Membership(one.node_id, base) for one in (CHILDREN[3], CHILDREN[4])]
        for home in homes:
            pages = list(everything.events)
            draw.shuffle(pages)
            for start in range(0, len(pages), 7):
                await home.add_fetched(pages[start : start + 7], (), STRANGER.node_id)
        for _ in range(40):
            assert all(home.roster.member(STRANGER.node_id) is not None for home in homes)
            clock[0] += DAY_MS
            for home, other in (homes, homes[::-1]):
                await home.add_fetched(other.roster.missing(home.roster.heads()), (), STRANGER.node_id)
                await home.add_fetched(everything.missing(home.roster.heads()), (), STRANGER.node_id)
                assert not home.is_member(MEMBER.node_id), "the revocation acts, whatever is still missing"
    assert [home.roster.members for home in homes] == [everything.members] * 2
    assert homes[0].heads() == homes[1].heads()


@pytest.mark.req("ATTACK-36")
async def test_malformed_events_are_passed_over() -> None:
    held = community_of(MEMBER, STRANGER)
    event = act(held, MEMBER, "community.member.revoked", Malformed(), now_ms=NOW)
    assert await hearing(held).add_fetched([event], (), STRANGER.node_id) == (False, {MEMBER.node_id})


@pytest.mark.req("ATTACK-36")
@pytest.mark.parametrize("value", [1.0, 1e22, -0.5, 2**53, {"ä": 1}, [[{"deep": [0.5]}]]])
async def test_unknown_kinds_have_one_form_and_cheap_hashes(value: Any) -> None:
    """`1` and `1.0` are one number to the hash, and of two lengths: some would take it, others not."""
    held = community_of(MEMBER, STRANGER)
    (plain,) = notes(held, MEMBER, 1)
    (odd,) = notes(held, MEMBER, 1)
    odd = msgspec.structs.replace(odd, data={"text": "", "value": value})
    process = Membership(FOUNDER.node_id, held)
    new, refused = await process.add_fetched([odd], (), STRANGER.node_id)
    assert (new, refused) == (False, {MEMBER.node_id})
    assert (await process.add_fetched([plain], (), STRANGER.node_id))[0]
    await process.close()


@pytest.mark.req("ATTACK-36")
async def test_a_long_chain_of_a_stranger_is_walked_once() -> None:
    """Each further event of it walked all of it in the event loop."""
    held, newcomer, key = community_of(MEMBER, STRANGER), CHILDREN[0], Identity.generate()
    invite = commands.CommunityAuthor(held, MEMBER).invite(
        key, display_name="x", expires_at=NOW + DAY_MS, now_ms=NOW
    )
    held = rosters.merge(held, [invite])
    held = rosters.merge(
        held, [act(held, newcomer, JOINED, request(held, key, invite, newcomer), now_ms=NOW)]
    )
    before = held
    held = rosters.merge(held, notes(held, newcomer, 200))
    (last,) = notes(held, newcomer, 1)
    looked_up = list[str]()

    class Counted(event_intake.EventIntake):
        def _found_voucher(self, event: CommunityEvent, lookup: event_intake.Lookup) -> str:
            def counted(hash_: str) -> CommunityEvent | None:
                looked_up.append(hash_)
                return lookup(hash_)

            return super()._found_voucher(event, counted)

    intake = Counted(FOUNDER.node_id, lambda: held)
    assert before.member(newcomer.node_id) is None
    assert intake.has_room(last, MEMBER.node_id)
    assert len(looked_up) > 200
    looked_up.clear()
    assert intake.has_room(last, MEMBER.node_id)
    assert not looked_up
