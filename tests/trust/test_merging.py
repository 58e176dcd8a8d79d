"""Merging as a property: whatever a community's members do, well-meant or not, in whatever order it arrives
(docs/decisions/0040).

The events are drawn as what three parted nodes see: each one's members act on what it knows, some of
them with a second event in one place, a low lamport, or no regard for what they may do.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.trust.community import events, roster
from hearthnet.trust.community import recovery_statements as recoveries
from hearthnet.trust.community.events import (
    Admitted,
    CommunityEvent,
    CoSigner,
    Invited,
    Joined,
    Policy,
    PolicyUpdated,
    Promoted,
    Withdrawn,
)
from hearthnet.trust.community.history import History
from hearthnet.trust.community.quorum import cosign_payload
from hearthnet.trust.community.reducer import replay
from hearthnet.trust.community.replay import RosterReplay
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, NOW, act
from tests.trust.people import (
    FIRST,
    KINDS,
    OTHER_PAPER,
    PAGE,
    PAPER,
    PHONE,
    SECOND,
    SHARED,
    SHARED_LATER,
    THIEF_KEY,
    added,
    begun,
    carried,
    helping,
    keyed,
    removed,
    witnessed,
)
from tests.trust.town import (
    EVE,
    FOUNDER,
    MALLORY,
    MAX,
    NORA,
    QUINN,
    ROOT,
    SAM,
    TILDA,
    UMA,
    early,
    levels,
    removal,
    town,
    with_events,
)

PEOPLE = (FOUNDER, TILDA, QUINN, SAM, UMA, MAX, NORA, EVE, MALLORY, ROOT)
KEYS = [Identity(bytes([number]) * 32) for number in range(60, 64)]
MEMBERSHIP = ("invite", "ask", "admit", "promote", "demote", "revoke", "withdraw", "policy", "sync")
PERSONS = ("key", "device", "node", "remove device", "helpers", "begin", "witness", "object")
"""What persons state. Their keys are known to all, as those of thieves."""
REMOVING = ("demote", "revoke", "remove device")
PAPERS, PERSON_KEYS = (PAPER, OTHER_PAPER), (FIRST, SECOND)


class Step(NamedTuple):
    """Something that somebody does, at one of three parted nodes."""

    at: int
    kind: str
    who: Identity
    whom: Identity
    chance: int
    """Draws what is left to choose."""


STEPS = st.lists(
    st.builds(
        Step,
        at=st.integers(0, 2),
        kind=st.sampled_from(MEMBERSHIP + PERSONS),
        who=st.sampled_from(PEOPLE),
        whom=st.sampled_from(PEOPLE),
        chance=st.integers(0, 2**32),
    ),
    max_size=25,
)


def content(
    held: Roster, step: Step, draw: random.Random, friends: Sequence[Identity]
) -> tuple[str, events.Data] | None:
    """What the step says, None where there is nothing to say it about."""
    new = [event for event in held.events if town().history.get(event.hash) is None]
    invites = [event for event in new if event.event_type == events.INVITED]
    requests = [event for event in new if event.event_type == events.JOINED]
    if (step.kind in ("ask", "withdraw") and not invites) or (step.kind == "admit" and not requests):
        return None
    match step.kind:
        case "invite":
            return events.INVITED, inviting(held, step, draw, friends)
        case "ask":
            return events.JOINED, joined(held, step.who, draw.choice(invites))
        case "admit":
            one = draw.choice(requests)
            return events.ADMITTED, Admitted(joined_event_hash=one.hash, node_id=one.author)
        case "promote":
            level: Any = draw.choice(["trusted", "anchor"])
            return events.PROMOTED, Promoted(target_node_id=step.whom.node_id, new_level=level, client_id="x")
        case "withdraw":
            return events.WITHDRAWN, Withdrawn(invite_event_hash=draw.choice(invites).hash)
        case "policy":
            policy = Policy(
                default_member_can_invite=draw.random() < 0.5,
                min_signatures_to_revoke=draw.choice([1, 2, 3]),
                min_signatures_to_invite=draw.choice([1, 1, 2, 3]),
            )
            heads = {
                author: tuple(tip.hash for tip in tips)
                for author, tips in held.history.tips.items()
                if draw.random() < 0.8
            }
            return events.POLICY, PolicyUpdated(policy=policy, heads=heads)
        case _:
            return None


def inviting(held: Roster, step: Step, draw: random.Random, friends: Sequence[Identity]) -> Invited:
    """An invite for anybody, or for a node and signed by some of `friends`."""
    whose = draw.choice(["", "", step.whom.node_id])
    ends, client_id, recalls = NOW + DAY_MS, "x", draw.choice(["", held.revocation_of(step.whom.node_id)])
    agreed = cosign_payload(
        events.INVITED,
        held.community_id,
        whose,
        "x",
        client_id,
        expires_at=ends,
        recalls=recalls,
    )
    signers = draw.sample(friends, draw.randint(0, min(6, len(friends)))) if whose else []
    return events.invited(
        held.community_id,
        step.who.node_id,
        draw.choice(KEYS),
        display_name="x",
        expires_at=ends,
        invitee=whose,
        client_id=client_id,
        co_signers=tuple(
            CoSigner(one.node_id, ids.b64(one.sign(events.COSIGN_PURPOSE, agreed))) for one in signers
        ),
        recalls=recalls,
    )


def joined(held: Roster, who: Identity, inviting: CommunityEvent) -> Joined:
    """A request to join under an invite that one of the known keys was made for."""
    invited_as = inviting.data["invite_key"]
    key = next((one for one in KEYS if one.node_id == invited_as), KEYS[0])
    bare = Joined(
        invite_event_hash=inviting.hash,
        invite_key=key.node_id,
        member=events.entry_of(who, "x"),
        invite_signature="",
    )
    signature = key.sign(events.INVITE_PURPOSE, events.request(held.community_id, bare))
    return msgspec.structs.replace(bare, invite_signature=ids.b64(signature))


def made(held: Roster, step: Step, friends: Sequence[Identity] = PEOPLE) -> CommunityEvent | None:
    """The event of a step, allowed or not; co-signers are some of `friends`."""
    draw = random.Random(step.chance)
    place = held.next(step.who.node_id)
    if draw.random() < 0.4 and held.history.tips.get(step.who.node_id):
        place = early(held, step.who, draw.choice([0, 1, 2]))
    if step.kind in ("demote", "revoke"):
        level: Any = draw.choice(["member", "trusted"]) if step.kind == "demote" else None
        co_signers = draw.sample(friends, draw.randint(0, min(6, len(friends))))
        known: tuple[str, ...] | None = None if draw.random() < 0.6 else ()
        return removal(held, step.who, step.whom, *co_signers, known=known, level=level, place=place)
    if step.kind in PERSONS:
        return stated(held, step, draw, place)
    said = content(held, step, draw, friends)
    return None if said is None else act(held, step.who, said[0], said[1], place)


def stated(held: Roster, step: Step, draw: random.Random, place: tuple[int, str, int]) -> CommunityEvent:
    """What a step says about a person, signed by any of its keys, in an event of anybody."""
    paper, key = draw.choice(PAPERS), draw.choice(PERSON_KEYS)
    match step.kind:
        case "key":
            epoch = draw.choice([1, 1, 2, 3])
            stay = tuple(draw.sample((*PEOPLE[:6], PAGE), 3)) if epoch > 1 else ()
            return keyed(held, step.who, paper, key, epoch, stay, place)
        case "device":
            return added(held, step.who, draw.choice((PAGE, PHONE)), paper, key, "phone", place)
        case "node":
            return added(held, step.who, None, paper, key, place=place)
        case "helpers" | "begin" | "witness" | "object":
            said = about_recovery(held, step, draw, paper)
            return act(held, step.who, KINDS[type(said)], said, place)
        case _:
            by, device = draw.choice((key, key, paper)), draw.choice((step.whom, PAGE))
            return removed(held, step.who, device, paper, by, None if draw.random() < 0.6 else (), place)


def about_recovery(held: Roster, step: Step, draw: random.Random, paper: Identity) -> recoveries.Content:
    """What a step says about helpers or a recovery; colluding helpers hold both keys of helpers."""
    by, base, epoch = draw.choice((SHARED, SHARED_LATER)), draw.choice([1, 1, 2]), draw.choice([2, 2, 3])
    announced = begun(
        held, draw.choice(PERSON_KEYS), by=by, base=base, epoch=max(epoch, base + 1), paper=paper
    )
    name = recoveries.recovery_id(held.community_id, announced)
    match step.kind:
        case "helpers":
            number, epoch = draw.choice([1, 2]), draw.choice([1, 2])
            return helping(held, *PEOPLE[:6], key=by, number=number, epoch=epoch, paper=paper)
        case "begin":
            return announced
        case "witness":
            return recoveries.witnessed(held.community_id, paper.node_id, name, step.whom)
        case _:
            return recoveries.objected(held.community_id, paper.node_id, name, step.whom)


def lives(steps: Sequence[Step]) -> tuple[Roster, Roster, Roster]:
    """What three nodes know after `steps`."""
    nodes = [town(), town(), town()]
    for step in steps:
        if step.kind == "sync":
            other = step.chance % 3
            nodes[step.at] = roster.merge(nodes[step.at], nodes[other].events)
            continue
        event = made(nodes[step.at], step)
        if event is not None:
            nodes[step.at] = roster.merge(nodes[step.at], [event])
    return nodes[0], nodes[1], nodes[2]


@pytest.mark.req("COMM-4")
@settings(max_examples=40)
@given(STEPS)
def test_merging_is_commutative_associative_idempotent_and_loses_nothing(steps: list[Step]) -> None:
    one, two, three = lives(steps)
    both = roster.merge(one, two.events)
    assert both == roster.merge(two, one.events)
    assert roster.merge(both, three.events) == roster.merge(one, roster.merge(two, three.events).events)
    assert roster.merge(both, one.events) is both
    assert roster.merge(both, both.events) is both
    for part in (one, two):
        assert set(part.history.heads()) <= set(both.history.heads())
        assert all(both.history.get(event.hash) == event for event in part.events)
        assert not both.lacks(part.heads())
        assert part.lacks(both.heads()) == (part.version < both.version)
    assert roster.decode(roster.encode(both)) == both


@pytest.mark.req("COMM-4")
@settings(max_examples=40)
@given(STEPS, st.randoms(use_true_random=False))
def test_any_order_of_arrival_ends_in_the_same_roster(steps: list[Step], order: random.Random) -> None:
    everything = [event for part in lives(steps) for event in part.events]
    expected = roster.derive(town().community_id, everything)
    order.shuffle(everything)
    held = town()
    while everything:
        event = everything.pop(0)
        if held.missing_before([event]):
            everything.append(event)
        held = roster.merge(held, [event])
    assert held == expected
    assert sorted(held.folded.flaws.items()) == sorted(expected.folded.flaws.items())


@pytest.mark.req("COMM-4")
@settings(max_examples=40)
@given(STEPS)
def test_nodes_that_compare_heads_come_to_know_the_same(steps: list[Step]) -> None:
    one, two, _ = lives(steps)
    for _ in range(2):
        one = roster.merge(one, two.missing(one.heads()))
        two = roster.merge(two, one.missing(two.heads()))
    assert one == two
    assert not one.lacks(two.heads())
    assert one.heads() == two.heads()
    assert one.missing(two.heads()) == ()


ABOUT_RECOVERIES = st.lists(
    st.builds(
        Step,
        at=st.integers(0, 2),
        kind=st.sampled_from(("key", "node", "helpers", "begin", "object", "sync")),
        who=st.sampled_from((MAX, NORA, SAM)),
        whom=st.sampled_from((MAX, NORA)),
        chance=st.integers(0, 2**32),
    ),
    max_size=12,
)


@pytest.mark.req("COMM-4", "PERSON-40")
@settings(max_examples=40)
@given(ABOUT_RECOVERIES, st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_recoveries_are_the_same_in_any_order_of_arrival(
    steps: list[Step], order: random.Random, words: random.Random
) -> None:
    """Each of three nodes has the words of one witness for some of what colluding helpers have announced."""
    begins = with_events(town(), keyed(town(), MAX))
    announced = [begun(begins, SECOND), begun(begins, THIEF_KEY), begun(begins, PAGE, epoch=3)]
    begins = carried(begins, MAX, helping(begins, *PEOPLE[:6]), *announced)
    three = []
    for part, witness in zip(lives(steps), (FOUNDER, SAM, QUINN), strict=True):
        part = roster.merge(part, begins.events)
        for one in announced:
            part = witnessed(part, one, *([witness] if words.random() < 0.8 else []))
        three.append(part)
    rest = [event for part in three for event in part.events]
    expected = roster.derive(town().community_id, rest)
    order.shuffle(rest)
    held = three[0]
    while rest:
        event = rest.pop(0)
        if held.missing_before([event]):
            rest.append(event)
        held = roster.merge(held, [event])
    assert standing(held.folded) == standing(expected.folded)
    blanked = [_blank(event) if held.flaw(event) else event for event in held.events]
    assert replay(History(held.community_id, blanked)).persons.people == held.folded.persons.people


ABOUT_PERSONS = st.lists(
    st.builds(
        Step,
        at=st.integers(0, 2),
        kind=st.sampled_from((*PERSONS, "sync")),
        who=st.sampled_from((MAX, NORA, SAM)),
        whom=st.sampled_from((MAX, NORA)),
        chance=st.integers(0, 2**32),
    ),
    max_size=20,
)


@pytest.mark.req("COMM-4", "PERSON-6")
@settings(max_examples=60)
@given(ABOUT_PERSONS, st.randoms(use_true_random=False))
def test_persons_are_the_same_in_any_order_of_arrival(steps: list[Step], order: random.Random) -> None:
    one, two, three = lives(steps)
    expected = roster.merge(one, (*two.events, *three.events))
    rest = [event for part in (two, three) for event in part.events]
    order.shuffle(rest)
    held = one
    for _ in range(2):
        for event in rest:
            held = roster.merge(held, [event])
    held = roster.merge(held, rest)
    assert standing(held.folded) == standing(expected.folded)
    for person in held.persons:
        for device in person.devices:
            assert held.person_of(device.key) == person.person
            assert device.kind != "node" or held.owner(device.key) == person.person
        assert not {one.key for one in person.devices} & {one.key for one in person.former}
    blanked = [_blank(event) if held.flaw(event) else event for event in held.events]
    state = replay(History(held.community_id, blanked))
    assert (state.persons.people, state.persons.owners) == (
        held.folded.persons.people,
        held.folded.persons.owners,
    )


def standing(state: RosterReplay) -> tuple[object, ...]:
    """All that events have changed, without the reasons against those that do not count."""
    named = state.name, state.created_at, state.policy, state.reached
    people = state.persons.people, state.persons.owners, state.persons.devices
    return (*named, *people, state.members, state.revoked, state.open_invites())


@pytest.mark.req("COMM-5")
@settings(max_examples=40)
@given(STEPS.map(lambda steps: [step for step in steps if step.kind not in REMOVING]))
def test_what_does_not_count_changes_nothing(steps: list[Step]) -> None:
    """All events that do not count are blanked: same places, same chains, nothing said."""
    whole = everything(steps)
    flaws = whole.folded.flaws
    blanked = [_blank(event) if event.hash in flaws else event for event in whole.events]
    state = replay(History(whole.community_id, blanked))
    assert standing(state) == standing(whole.folded)
    assert state.flaws.keys() == flaws.keys()


@pytest.mark.req("COMM-5", "TRUST-3")
@settings(max_examples=40)
@given(STEPS)
def test_nobody_has_a_level_that_no_event_that_counts_gave_it(steps: list[Step]) -> None:
    whole = everything(steps)
    counting = [event for event in whole.events if not whole.flaw(event)]
    let_in = {event.data["node_id"] for event in counting if event.event_type == events.ADMITTED}
    raised = {
        (event.data["target_node_id"], event.data["new_level"])
        for event in counting
        if event.event_type == events.PROMOTED
    }
    for one in whole.members:
        assert one.node_id in let_in | {FOUNDER.node_id}
        if one.level != "member":
            given_ = {level for node, level in raised if node == one.node_id}
            assert one.node_id == FOUNDER.node_id or one.level in given_ or "anchor" in given_
        assert not whole.is_revoked(one.node_id)
        assert whole.member(one.node_id) == one
    logins = [one.login for one in whole.members] + [one.login for one in whole.invites]
    assert len(logins) == len(set(logins))


def everything(steps: Sequence[Step]) -> Roster:
    """What the three nodes come to once they have met."""
    one, two, three = lives(steps)
    return roster.merge(one, (*two.events, *three.events))


def _blank(event: CommunityEvent) -> CommunityEvent:
    blank = msgspec.structs.replace(event, data=dict(event.data))
    blank.__dict__.update(hash=event.hash, content=None)
    return blank


@pytest.mark.req("COMM-8")
@settings(max_examples=50)
@given(
    st.lists(
        st.builds(
            Step,
            at=st.just(0),
            kind=st.sampled_from(MEMBERSHIP[:7] + PERSONS),
            who=st.sampled_from((TILDA, TILDA, EVE, MALLORY)),
            whom=st.sampled_from(PEOPLE),
            chance=st.integers(0, 2**32),
        ),
        max_size=25,
    ),
    st.sampled_from((QUINN, FOUNDER, ROOT)),
)
def test_nothing_that_a_revoked_author_and_its_friends_write_afterwards_counts(
    steps: list[Step], by: Identity
) -> None:
    """Tilda is put out; then she and two strangers write whatever they can, at whatever place they like."""
    start = with_events(town(), act(town(), TILDA, events.INVITED, _invite()))
    sequence, previous, lamport = start.next(by.node_id)
    late = (sequence, previous, lamport + 60)
    out = with_events(start, removal(start, by, TILDA, SAM, UMA, place=late))
    held = out
    for step in steps:
        event = made(held, step, friends=(TILDA, EVE, MALLORY))
        if event is not None:
            held = roster.merge(held, [event])
    assert levels(held) == levels(out)
    assert held.revoked == out.revoked
    assert held.policy == out.policy
    assert held.invites == out.invites


def _invite() -> events.Invited:
    return events.invited(
        town().community_id, TILDA.node_id, KEYS[0], display_name="x", expires_at=NOW + DAY_MS
    )
