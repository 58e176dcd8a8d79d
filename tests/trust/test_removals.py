"""Who may remove whom, and what those cannot undo who were removed (docs/decisions/0040)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.trust.community import commands, events, pending_removals, reducer, roster
from hearthnet.trust.community.events import CommunityEvent, Joined, Level, Policy, Promoted
from hearthnet.trust.community.removals import removal_target
from hearthnet.trust.community.replay import RosterReplay
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import NOW, act, agreeing, raise_to, take_in
from tests.trust.people import PAGE, added, removed, settled
from tests.trust.town import (
    EVE,
    FOUNDER,
    KEY,
    MALLORY,
    MAX,
    NORA,
    QUINN,
    ROOT,
    SAM,
    TILDA,
    UMA,
    admitted,
    asked,
    early,
    flaw,
    founded,
    invited,
    levels,
    promoted,
    raising,
    removal,
    town,
    with_events,
)


@pytest.mark.req("COMM-6")
def test_a_removal_takes_as_many_trusted_signers_as_the_policy_says() -> None:
    signers = (QUINN, SAM, UMA)
    for number, allowed in ((1, False), (2, False), (3, True)):
        author, *others = signers[:number]
        held = with_events(town(), removal(town(), author, TILDA, *others))
        assert held.is_revoked(TILDA.node_id) is allowed
        assert (held.level(TILDA.node_id) == "unknown") is allowed
        lower = with_events(town(), removal(town(), author, TILDA, *others, level="member"))
        assert (lower.level(TILDA.node_id) == "member") is allowed


@pytest.mark.req("COMM-6")
@pytest.mark.parametrize(
    ("author", "co_signers"),
    [
        (QUINN, (SAM, SAM, SAM)),
        (QUINN, (QUINN, QUINN)),
        (QUINN, (SAM, TILDA)),
        (QUINN, (SAM, MAX, NORA)),
        (QUINN, (SAM, EVE, MALLORY)),
        (MAX, (QUINN, SAM, UMA)),
        (EVE, (QUINN, SAM, UMA)),
    ],
    ids=[
        "one three times",
        "the author",
        "the target",
        "members",
        "strangers",
        "by a member",
        "by a stranger",
    ],
)
def test_whose_signatures_do_not_count(author: Identity, co_signers: tuple[Identity, ...]) -> None:
    held = roster.merge(town(), [removal(town(), author, TILDA, *co_signers)])
    assert not held.is_revoked(TILDA.node_id)
    assert levels(held) == levels(town())


@pytest.mark.req("COMM-6")
def test_a_small_community_can_remove_too() -> None:
    two = raise_to(take_in(founded(), FOUNDER, TILDA, "tilda", NOW), FOUNDER, TILDA, "trusted", NOW)
    assert with_events(two, removal(two, FOUNDER, TILDA)).is_revoked(TILDA.node_id)
    three = raise_to(take_in(two, FOUNDER, QUINN, "quinn", NOW), FOUNDER, QUINN, "trusted", NOW)
    assert "takes 2 signatures" in flaw(three, removal(three, FOUNDER, TILDA))
    assert with_events(three, removal(three, FOUNDER, TILDA, QUINN)).is_revoked(TILDA.node_id)


@pytest.mark.req("COMM-6")
def test_the_founder_is_removed_by_the_root_or_by_itself() -> None:
    everybody = (SAM, UMA, TILDA)
    assert "founder is removed" in flaw(town(), removal(town(), QUINN, FOUNDER, *everybody))
    held = with_events(town(), promoted(town(), FOUNDER, TILDA, "anchor"))
    lower = removal(held, QUINN, FOUNDER, *everybody, level="member")
    assert "founder is removed" in flaw(held, lower)
    for by in (ROOT, FOUNDER):
        assert with_events(town(), removal(town(), by, FOUNDER)).is_revoked(FOUNDER.node_id)


@pytest.mark.req("COMM-6")
def test_the_last_anchor_stays_one_and_may_leave() -> None:
    for by in (ROOT, FOUNDER):
        assert "last anchor" in flaw(town(), removal(town(), by, FOUNDER, level="trusted"))
    two = with_events(town(), promoted(town(), FOUNDER, TILDA, "anchor"))
    assert (
        with_events(two, removal(two, FOUNDER, FOUNDER, level="trusted")).level(FOUNDER.node_id) == "trusted"
    )


@pytest.mark.req("COMM-6")
def test_a_removal_needs_somebody_to_remove() -> None:
    everybody = (SAM, UMA)
    assert flaw(town(), removal(town(), QUINN, EVE, *everybody)) == "the target is no member"
    for target, level in ((EVE, "member"), (MAX, "member"), (TILDA, "trusted")):
        event = removal(town(), QUINN, target, *everybody, level=level)  # type: ignore[arg-type]
        assert flaw(town(), event) == f"the target is no member above {level}"


@pytest.mark.req("COMM-6")
def test_everybody_may_leave_and_the_root_may_do_it_alone() -> None:
    for by, target in ((MAX, MAX), (ROOT, MAX), (ROOT, TILDA), (TILDA, TILDA)):
        assert with_events(town(), removal(town(), by, target)).is_revoked(target.node_id)
    assert with_events(town(), removal(town(), TILDA, TILDA, level="member")).level(TILDA.node_id) == "member"


@pytest.mark.req("COMM-8")
def test_who_is_put_out_takes_its_open_invites_along_and_comes_back_only_by_name() -> None:
    held = with_events(town(), invited(town(), TILDA))
    out = with_events(held, removal(held, QUINN, TILDA, SAM, UMA))
    assert out.invites == ()
    assert [(one.node_id, one.reason) for one in out.revoked] == [(TILDA.node_id, "other")]
    for by, invitee, allowed in (
        (MAX, "", False),
        (MAX, TILDA.node_id, False),
        (SAM, "", False),
        (SAM, TILDA.node_id, True),
        (ROOT, TILDA.node_id, True),
    ):
        again = with_events(out, invited(out, by, Identity(bytes([96]) * 32), invitee=invitee))
        request = asked(again, TILDA, Identity(bytes([96]) * 32))
        waiting = with_events(again, request)
        back = with_events(waiting, admitted(waiting, by, request))
        assert (back.level(TILDA.node_id) == "member") is allowed
        assert back.is_revoked(TILDA.node_id) is not allowed


@pytest.mark.req("COMM-8")
def test_an_invite_from_before_brings_nobody_back() -> None:
    held = with_events(town(), invited(town(), SAM, invitee=TILDA.node_id))
    request = asked(held, TILDA)
    out = with_events(held, removal(held, QUINN, TILDA, SAM, UMA), request)
    assert "comes back only" in flaw(out, admitted(out, SAM, request))


@pytest.mark.req("COMM-8")
def test_a_revoked_nodes_events_of_before_stay() -> None:
    held = take_in(town(), TILDA, EVE, "eve", NOW)
    held = raise_to(held, TILDA, EVE, "trusted", NOW)
    out = with_events(held, removal(held, QUINN, TILDA, SAM, UMA))
    assert out.level(EVE.node_id) == "trusted"
    assert not out.folded.flaws
    without_them = removal(held, QUINN, TILDA, SAM, UMA, known=())
    assert with_events(held, without_them).level(EVE.node_id) == "unknown"


@pytest.mark.req("COMM-8")
@pytest.mark.parametrize("level", [None, "member"])
def test_who_leaves_takes_nobody_along_and_cannot_date_anything_back(level: Level | None) -> None:
    held = raise_to(take_in(town(), TILDA, EVE, "eve", NOW), TILDA, EVE, "trusted", NOW)
    held = with_events(held, removal(held, TILDA, MAX, SAM, UMA))
    left = with_events(held, removal(held, TILDA, TILDA, known=(), level=level))
    assert levels(left) == {
        name: "member" if name == "tilda" else rank
        for name, rank in levels(held).items()
        if level or name != "tilda"
    }
    assert left.is_revoked(MAX.node_id)
    for after in (0, 1):
        late = act(left, TILDA, events.PROMOTED, raising(NORA), early(left, TILDA, after))
        assert "takes that level" in flaw(left, late)


@pytest.mark.req("COMM-8")
def test_a_revoked_node_cannot_date_anything_back() -> None:
    held = with_events(town(), invited(town(), TILDA))
    out = with_events(held, removal(held, QUINN, TILDA, SAM, UMA))
    for after in (0, 1):
        place = early(out, TILDA, after)
        late = act(
            out,
            TILDA,
            events.PROMOTED,
            Promoted(target_node_id=MAX.node_id, new_level="trusted", client_id="x"),
            place,
        )
        assert late.lamport <= out.events[-1].lamport
        assert "takes that level" in flaw(out, late)
        revenge = removal(out, TILDA, QUINN, known=(), place=place)
        no_right = "to remove others takes level trusted, which its author did not have"
        assert flaw(out, revenge) == no_right
        leaving = removal(out, TILDA, TILDA, known=(), place=place)
        assert flaw(out, leaving) == no_right


@pytest.mark.req("COMM-8")
def test_a_demoted_node_cannot_date_anything_back_and_may_act_again_when_raised_again() -> None:
    out = with_events(town(), removal(town(), QUINN, TILDA, SAM, UMA, level="member"))
    content = Promoted(target_node_id=MAX.node_id, new_level="trusted", client_id="x")
    late = act(out, TILDA, events.PROMOTED, content, early(out, TILDA))
    assert "takes that level" in flaw(out, late)
    assert flaw(out, invited(out, TILDA, place=early(out, TILDA))) == "", "as a member may"
    again = raise_to(with_events(out, late), QUINN, TILDA, "trusted", NOW)
    assert again.level(MAX.node_id) == "member"
    assert raise_to(again, TILDA, MAX, "trusted", NOW).level(MAX.node_id) == "trusted"


ACCOMPLICES = (EVE, MALLORY, *(Identity(bytes([number]) * 32) for number in (91, 92, 93)))
"""More than those who put Tilda out."""


def takeover(held: Roster, by: Identity, *victims: Identity) -> list[CommunityEvent]:
    """What a trusted member can make alone, claiming the lowest lamport at which it was trusted, forgetting
    most of its own events: accomplices in, raised, and with their signatures everybody else out.
    """
    place = early(held, by, 1)
    written: list[CommunityEvent] = []
    pretended = held

    def add(event: CommunityEvent) -> CommunityEvent:
        nonlocal pretended
        written.append(event)
        pretended = roster.merge(pretended, [event])
        return event

    for accomplice in ACCOMPLICES:
        inviting = add(invited(held, by, KEY, place))
        content = Joined(
            invite_event_hash=inviting.hash,
            invite_key=KEY.node_id,
            member=events.entry_of(accomplice, "x"),
            invite_signature="",
        )
        signature = KEY.sign(events.INVITE_PURPOSE, events.request(held.community_id, content))
        content = msgspec.structs.replace(content, invite_signature=ids.b64(signature))
        joining = add(act(held, accomplice, events.JOINED, content, (1, "", inviting.lamport + 1)))
        letting_in = add(admitted(held, by, joining, (place[0] + 1, inviting.hash, inviting.lamport + 2)))
        lifting = add(
            act(
                held,
                by,
                events.PROMOTED,
                Promoted(target_node_id=accomplice.node_id, new_level="trusted", client_id="x"),
                (place[0] + 2, letting_in.hash, inviting.lamport + 3),
            )
        )
        place = (place[0] + 3, lifting.hash, inviting.lamport + 4)
    for victim in victims:
        first = next(one for one in held.events if one.author == victim.node_id)
        out = add(removal(held, by, victim, *ACCOMPLICES, known=(first.hash,), place=place))
        place = (place[0] + 1, out.hash, out.lamport + 1)
    return written


@pytest.mark.req("COMM-8")
@pytest.mark.parametrize("author", [QUINN, FOUNDER], ids=["by a peer", "by the founder"])
def test_a_removed_member_does_not_undo_its_removal_however_it_dates_and_whom_it_brings(
    author: Identity,
) -> None:
    """Tilda was trusted before her removers wrote anything: by order alone all her events come first."""
    held = with_events(town(), invited(town(), TILDA, Identity(bytes([95]) * 32)))
    hostile = takeover(held, TILDA, QUINN, SAM, UMA)
    sequence, previous, lamport = held.next(author.node_id)
    out = with_events(held, removal(held, author, TILDA, SAM, UMA, place=(sequence, previous, lamport + 100)))
    assert all(event.lamport < out.events[-1].lamport for event in hostile)
    assert out.is_revoked(TILDA.node_id)
    after = with_events(out, *hostile)
    assert levels(after) == levels(out)
    assert after.revoked == out.revoked
    assert after.invites == out.invites
    before = with_events(with_events(held, *hostile), out.events[-1])
    assert before == after, "whichever came first"


@pytest.mark.req("COMM-8")
def test_a_removal_that_rests_on_promotions_by_the_removed_falls_with_them() -> None:
    """Neither is about a signer of the other, so that only the promotions connect the two."""
    friends = (EVE, MALLORY, ACCOMPLICES[2])
    held = town()
    for friend in friends:
        held = raise_to(take_in(held, TILDA, friend, "x", NOW), TILDA, friend, "trusted", NOW)
    theirs = removal(held, EVE, MAX, *friends)
    assert with_events(held, theirs).is_revoked(MAX.node_id)
    out = removal(held, QUINN, TILDA, SAM, UMA, FOUNDER, known=())
    for both in ((theirs, out), (out, theirs)):
        after = with_events(held, *both)
        assert after.is_revoked(TILDA.node_id)
        assert after.level(MAX.node_id) == "member"
        assert "takes level trusted" in after.flaw(theirs)


@pytest.mark.req("COMM-8")
def test_one_who_is_trusted_and_not_removed_can_do_harm_until_the_root_or_the_founder_says_no() -> None:
    """Said in the threat model: by the rules of promotion one trusted member can make others."""
    held = with_events(town(), invited(town(), TILDA, Identity(bytes([95]) * 32)))
    harmed = with_events(held, *takeover(held, TILDA, QUINN, SAM, UMA))
    assert harmed.is_revoked(QUINN.node_id)
    known = tuple(tip.hash for tip in held.history.tips[TILDA.node_id])
    mended = with_events(harmed, removal(harmed, ROOT, TILDA, known=known))
    assert levels(mended) == {name: level for name, level in levels(held).items() if name != "tilda"}


@pytest.mark.req("COMM-8")
def test_of_two_removals_that_exclude_each_other_the_one_with_more_independent_signers_stands() -> None:
    by_three = removal(town(), QUINN, TILDA, SAM, UMA, known=())
    by_two = act(
        town(),
        TILDA,
        events.REVOKED,
        events.Revoked(
            target_node_id=QUINN.node_id,
            reason="other",
            client_id="x",
            co_signers=agreeing(town(), events.REVOKED, QUINN, "other", "x", SAM, FOUNDER),
        ),
    )
    by_four = act(
        town(),
        TILDA,
        events.REVOKED,
        events.Revoked(
            target_node_id=QUINN.node_id,
            reason="other",
            client_id="x",
            co_signers=agreeing(town(), events.REVOKED, QUINN, "other", "x", SAM, UMA, FOUNDER),
        ),
    )
    nearer = with_events(town(), by_three, by_two)
    assert nearer.is_revoked(QUINN.node_id), "as many, but with the founder"
    assert not nearer.is_revoked(TILDA.node_id)
    assert with_events(town(), by_two, by_three) == nearer
    more = with_events(town(), by_three, by_four)
    assert more.is_revoked(QUINN.node_id)
    assert not more.is_revoked(TILDA.node_id)
    rooted = with_events(more, removal(town(), ROOT, TILDA, known=()))
    assert rooted.is_revoked(TILDA.node_id)
    assert not rooted.is_revoked(QUINN.node_id)


@pytest.mark.req("COMM-8")
def test_who_was_lowered_and_raised_again_is_as_far_from_the_founder_as_its_new_sponsor_says() -> None:
    def line(held: Roster) -> tuple[str, int]:
        standing = held.folded.members[TILDA.node_id]
        return standing.sponsor, standing.depth

    assert line(town()) == (FOUNDER.node_id, 1)
    lower = with_events(town(), removal(town(), QUINN, TILDA, SAM, UMA, level="member"))
    again = raise_to(lower, QUINN, TILDA, "trusted", NOW)
    assert line(again) == (QUINN.node_id, 2)
    content = act(again, ROOT, events.PROMOTED, raising(TILDA))
    assert line(with_events(again, content)) == (ROOT.node_id, 0)
    farther = act(town(), QUINN, events.PROMOTED, raising(TILDA))
    assert line(with_events(town(), farther)) == (FOUNDER.node_id, 1)


@pytest.mark.req("COMM-8")
def test_leaving_again_and_again_costs_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain member can write removals of itself without end; each round judges all events once more."""
    events: list[CommunityEvent] = []
    sequence, previous, lamport = town().next(MAX.node_id)
    for number in range(200):
        event = removal(town(), MAX, MAX, known=(), place=(sequence + number, previous, lamport + number))
        previous = event.hash
        events.append(event)
    rounds = []

    def counting(*given: Any) -> RosterReplay:
        rounds.append(1)
        return RosterReplay(*given)

    monkeypatch.setattr(reducer, "RosterReplay", counting)
    held = with_events(town(), *events)
    assert held.is_revoked(MAX.node_id)
    assert len(rounds) == 2


@pytest.mark.req("COMM-8")
def test_removals_of_those_who_removed_others_cost_no_round_where_they_knew_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = []

    def counting(*given: Any) -> RosterReplay:
        rounds.append(1)
        return RosterReplay(*given)

    held = with_events(town(), removal(town(), UMA, MAX, SAM, QUINN))
    later = removal(held, TILDA, UMA, SAM, QUINN)
    monkeypatch.setattr(reducer, "RosterReplay", counting)
    out = with_events(held, later)
    assert levels(out).keys() == levels(town()).keys() - {"max", "uma"}
    assert len(rounds) == 2


@pytest.mark.req("COMM-8")
def test_those_who_remove_one_another_without_end_are_decided_upon_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reducer, "MAX_ROUNDS", 1)
    events = [
        removal(town(), QUINN, TILDA, SAM, UMA, known=()),
        removal(town(), TILDA, QUINN, SAM, UMA, known=()),
    ]
    held = with_events(town(), *events)
    assert held.is_revoked(QUINN.node_id)
    assert held.is_revoked(TILDA.node_id)


@pytest.mark.req("COMM-8")
def test_removals_that_do_not_touch_each_other_all_stand() -> None:
    events = [removal(town(), QUINN, MAX, SAM, UMA), removal(town(), TILDA, NORA, SAM, UMA)]
    held = with_events(town(), *events)
    assert not {"max", "nora"} & levels(held).keys()
    twice = with_events(held, removal(held, FOUNDER, MAX, SAM, UMA))
    assert not twice.folded.flaws, "put out once more, for what it did meanwhile"
    lower = [removal(town(), one, TILDA, UMA, FOUNDER, level="member") for one in (QUINN, SAM)]
    assert with_events(town(), *lower).level(TILDA.node_id) == "member"
    one_by_one = town()
    for event in events:
        one_by_one = with_events(one_by_one, event)
    assert one_by_one == held


@pytest.mark.req("ATTACK-37")
def test_a_removal_names_the_last_events_that_count_and_not_a_flood_behind_them() -> None:
    """Also where nothing of a branch counts."""
    held = with_events(town(), invited(town(), MAX, KEY, invitee=MALLORY.node_id))
    wanted = held.history.tips[MAX.node_id][-1]
    for _ in range(5):
        held = with_events(held, act(held, MAX, events.PROMOTED, raising(MAX)))
    out = commands.CommunityAuthor(held, ROOT).revoke(MAX.node_id, "other", client_id="x", now_ms=NOW)
    assert out.data["target_heads"] == [wanted.hash]
    assert with_events(with_events(town(), wanted), out).is_revoked(MAX.node_id), "whoever lacks the flood"
    entry = events.entry_of(EVE, "eve")
    asking = Joined(invite_event_hash=wanted.hash, invite_key=KEY.node_id, member=entry, invite_signature="")
    signature = KEY.sign(events.INVITE_PURPOSE, events.request(held.community_id, asking))
    asking = msgspec.structs.replace(asking, invite_signature=ids.b64(signature))
    held = with_events(held, act(held, EVE, events.JOINED, asking))
    policy = commands.CommunityAuthor(held, ROOT).set_policy(Policy(min_signatures_to_revoke=1), NOW)
    assert EVE.node_id not in policy.data["heads"], "she never was a member"
    assert policy.data["heads"][MAX.node_id] == [wanted.hash]


@pytest.mark.req("ATTACK-37")
def test_a_malformed_removal_removes_nobody() -> None:
    event = act(town(), FOUNDER, events.REVOKED, raising(MAX))
    assert (removal_target(event), events.co_signatures(event)) == ("", 0)
    assert removal_target(removal(town(), FOUNDER, MAX)) == MAX.node_id
    assert events.co_signatures(removal(town(), FOUNDER, MAX, TILDA, QUINN)) == 2


@pytest.mark.req("ATTACK-63")
def test_a_removal_that_counts_is_told_from_one_that_does_not() -> None:
    held = settled(town(), MAX, NORA)
    good, other, bad = removed(held, MAX, NORA), added(held, MAX, PAGE), removal(held, MAX, SAM)
    held = with_events(with_events(held, other, bad), good)
    assert [held.removes(one) for one in (good, other, bad)] == [True, False, False]


@pytest.mark.req("PERSON-4")
def test_removals_that_put_nobody_out_leave_the_roster() -> None:
    held = settled(town(), MAX, NORA)
    assert pending_removals.without_revoked(held, []) == (held, [])
    foreign = removed(held, MAX, SAM)
    shown, counting = pending_removals.without_revoked(held, [foreign])
    assert (shown is held, counting) == (True, []), "a person removes nobody else's node"
    lowered = removal(held, ROOT, TILDA, level="member")
    shown, counting = pending_removals.without_revoked(held, [lowered])
    assert (shown is held, counting) == (True, [lowered]), "who is lowered stays a member"
