"""Who may do what in a community, and what those can do who mean it ill (docs/decisions/0040)."""

from __future__ import annotations

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.community import commands, event_validation, events, invites, roster
from hearthnet.trust.community.events import (
    Admitted,
    Created,
    Joined,
    Policy,
    PolicyUpdated,
    Promoted,
    Withdrawn,
)
from hearthnet.trust.community.replay import MAX_LEAP, MAX_OPEN_INVITES
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, NOW, act, raise_to
from tests.trust.town import (
    EVE,
    FOUNDER,
    KEY,
    MALLORY,
    MAX,
    NORA,
    QUINN,
    ROOT,
    TILDA,
    admitted,
    asked,
    early,
    flaw,
    founded,
    invited,
    levels,
    promoted,
    town,
    with_events,
)

STRICT = Policy(default_member_can_invite=False)


@pytest.mark.req("COMM-5")
def test_a_community_grows_by_its_events() -> None:
    assert levels(town()) == {
        "founder": "anchor",
        **dict.fromkeys(("tilda", "quinn", "sam", "uma"), "trusted"),
        **dict.fromkeys(("max", "nora"), "member"),
    }
    assert not town().folded.flaws
    assert town().version == 1 + 6 * 3 + 4


# Invites and joining


@pytest.mark.req("COMM-2")
def test_who_may_invite_is_a_matter_of_policy() -> None:
    assert flaw(town(), invited(town(), MAX)) == ""
    strict = with_events(town(), commands.CommunityAuthor(town(), ROOT).set_policy(STRICT, NOW))
    assert "takes level trusted" in flaw(strict, invited(strict, MAX))
    assert flaw(strict, invited(strict, TILDA)) == ""
    assert flaw(strict, invited(strict, ROOT)) == ""


@pytest.mark.req("COMM-2")
def test_an_open_invite_is_a_level_of_its_own_until_it_ends() -> None:
    held = with_events(town(), invited(town(), MAX))
    assert held.level(KEY.node_id) == "unknown"
    assert held.level(KEY.node_id, NOW) == "invited"
    assert held.level(KEY.node_id, NOW + DAY_MS) == "unknown"
    (open_invite,) = held.invites
    assert held.invite(KEY.node_id) == open_invite
    assert (open_invite.inviter, open_invite.login) == (MAX.node_id, KEY.login().public)
    for by, allowed in ((NORA, False), (MAX, True), (TILDA, True), (ROOT, True)):
        gone = act(held, by, events.WITHDRAWN, Withdrawn(invite_event_hash=open_invite.event_hash))
        after = with_events(held, gone)
        assert (after.flaw(gone) == "") is allowed
        assert (after.level(KEY.node_id, NOW) == "unknown") is allowed
        assert (after.invites == ()) is allowed
    twice = with_events(held, commands.CommunityAuthor(held, MAX).withdraw(open_invite.event_id, NOW))
    again = act(twice, TILDA, events.WITHDRAWN, Withdrawn(invite_event_hash=open_invite.event_hash))
    assert "no such open invite" in flaw(twice, again)


@pytest.mark.req("COMM-2")
def test_one_member_has_so_many_open_invites_and_no_more() -> None:
    events = []
    sequence, previous, lamport = town().next(MAX.node_id)
    for number in range(MAX_OPEN_INVITES + 1):
        key = Identity(number.to_bytes(4, "big") * 8)
        invitee = "" if number else EVE.node_id
        place = (sequence + number, previous, lamport + number)
        event = invited(town(), MAX, key, place, invitee=invitee)
        previous = event.hash
        events.append(event)
    held = with_events(town(), *events)
    assert len(held.invites) == MAX_OPEN_INVITES
    assert "withdraw some" in held.flaw(events[-1])
    fewer = with_events(held, commands.CommunityAuthor(held, MAX).withdraw(held.invites[0].event_id, NOW))
    assert flaw(fewer, invited(fewer, MAX)) == ""
    assert flaw(held, invited(held, NORA)) == ""
    assert "withdraw some" in flaw(held, invited(held, MAX, invitee=MALLORY.node_id))
    assert flaw(held, invited(held, MAX, invitee=EVE.node_id)) == "", "it takes the place of the first"


@pytest.mark.req("COMM-3")
def test_who_asked_is_in_once_somebody_who_may_invite_lets_it_in() -> None:
    held = with_events(town(), invited(town(), MAX))
    request = asked(held, EVE)
    waiting = with_events(held, request)
    assert waiting.flaw(request) == ""
    assert waiting.level(EVE.node_id) == "unknown"
    assert "takes level member" in flaw(waiting, admitted(waiting, EVE, request))
    for by in (MAX, NORA, TILDA, ROOT):
        inside = with_events(waiting, admitted(waiting, by, request))
        assert inside.level(EVE.node_id) == "member"
        assert inside.invites == ()
        assert inside.level(KEY.node_id, NOW) == "unknown"
    strict = with_events(waiting, commands.CommunityAuthor(waiting, ROOT).set_policy(STRICT, NOW))
    assert "takes level trusted" in flaw(strict, admitted(strict, MAX, request))


@pytest.mark.req("COMM-3")
def test_a_request_counts_only_as_its_invite_says() -> None:
    bound = with_events(town(), invited(town(), MAX, invitee=EVE.node_id))
    assert flaw(bound, asked(bound, EVE)) == ""
    assert "for another node" in flaw(bound, asked(bound, MALLORY))
    held = with_events(town(), invited(town(), MAX))
    late = msgspec.structs.replace(held.invites[0], expires_at=NOW + 3 * DAY_MS)
    trick = msgspec.structs.replace(held, invites=(late,))
    # Clocks may differ by a minute.
    assert flaw(held, asked(trick, EVE, now_ms=NOW + DAY_MS + 60_000)) == ""
    after_its_end = asked(trick, EVE, now_ms=NOW + DAY_MS + 61_000)
    assert "had expired" in flaw(held, after_its_end)
    kept = with_events(held, after_its_end)
    assert "the request does not count" in flaw(kept, admitted(kept, MAX, after_its_end))
    strict = with_events(town(), commands.CommunityAuthor(town(), ROOT).set_policy(STRICT, NOW))
    void = with_events(strict, invited(strict, MAX))
    assert void.invites == ()
    elsewhere = asked(msgspec.structs.replace(void, invites=held.invites), EVE)
    assert void.missing_before([elsewhere]) == (elsewhere,), "its invite is not held here"
    assert roster.merge(void, [elsewhere]) is void
    moved = msgspec.structs.replace(held.invites[0], event_hash=void.events[-1].hash)
    request = asked(msgspec.structs.replace(void, invites=(moved,)), EVE)
    assert "its invite does not count" in flaw(void, request)


@pytest.mark.req("COMM-3")
def test_nobody_is_let_in_twice_and_nobody_under_anothers_name() -> None:
    held = with_events(town(), invited(town(), MAX))
    request = asked(held, EVE)
    waiting = with_events(held, request)
    other = act(waiting, MAX, events.ADMITTED, Admitted(joined_event_hash=request.hash, node_id=NORA.node_id))
    assert "nobody asked" in flaw(waiting, other)
    inside = with_events(waiting, admitted(waiting, MAX, request))
    assert "a member already" in flaw(inside, admitted(inside, NORA, request))
    own = with_events(held, asked(held, NORA))
    assert "a member already" in flaw(own, admitted(own, MAX, own.events[-1]))


@pytest.mark.req("COMM-3", "TRUST-3")
def test_no_login_serves_two() -> None:
    """Two nodes of one owner, who alone can prove the login for both: the second stays out."""
    held = with_events(town(), invited(town(), FOUNDER))
    login = MAX.login()
    entry = events.EventEntry(
        EVE.node_id,
        "x",
        login.public,
        ids.b64(EVE.sign(events.LOGIN_PURPOSE, login.public.encode())),
        ids.b64(login.sign(events.PROOF_PURPOSE, EVE.node_id.encode())),
    )
    bare = Joined(
        invite_event_hash=held.invites[0].event_hash,
        invite_key=KEY.node_id,
        member=entry,
        invite_signature="",
    )
    signature = KEY.sign(events.INVITE_PURPOSE, events.request(held.community_id, bare))
    content = msgspec.structs.replace(bare, invite_signature=ids.b64(signature))
    request = act(held, EVE, events.JOINED, content)
    waiting = with_events(held, request)
    assert "another member's" in flaw(waiting, admitted(waiting, FOUNDER, request))


@pytest.mark.req("COMM-3", "TRUST-3")
def test_a_servers_configuration_never_gets_one_login_twice() -> None:
    """Who holds an invite may enrol its login as a member's, or invite with the same key."""
    first = with_events(town(), invited(town(), FOUNDER))
    second = with_events(first, invited(first, MAX))
    assert [one.inviter for one in second.invites] == [FOUNDER.node_id]
    other_key = Identity(bytes([98]) * 32)
    third = with_events(second, invited(second, MAX, other_key))
    as_member = with_events(third, asked(third, KEY, other_key))
    inside = with_events(as_member, admitted(as_member, MAX, as_member.events[-1]))
    assert inside.level(KEY.node_id, NOW) == "member"
    assert inside.invites == ()
    logins = [one.login for one in (*inside.members, *inside.invites)]
    assert len(logins) == len(set(logins))


@pytest.mark.req("COMM-3")
def test_no_member_is_pushed_out_by_an_event_that_claims_to_be_earlier() -> None:
    """Max invited Eve; both his second thoughts and his accomplice's claims come too late."""
    held = with_events(town(), invited(town(), MAX))
    inviting = held.events[-1]
    held = with_events(held, asked(held, EVE))
    held = with_events(held, admitted(held, TILDA, held.events[-1]))
    held = raise_to(held, TILDA, EVE, "trusted", NOW)
    assert held.level(EVE.node_id) == "trusted"
    withdrawn = act(
        held,
        MAX,
        events.WITHDRAWN,
        Withdrawn(invite_event_hash=inviting.hash),
        early(held, MAX),
    )
    assert withdrawn.lamport < held.events[-1].lamport
    assert with_events(held, withdrawn).level(EVE.node_id) == "trusted"
    rival = msgspec.structs.replace(
        held,
        invites=(
            roster.Invite(
                event_id=inviting.event_id,
                event_hash=inviting.hash,
                invite_key=KEY.node_id,
                login="",
                display_name="",
                invitee_node_id="",
                inviter=MAX.node_id,
                expires_at=NOW + DAY_MS,
            ),
        ),
    )
    request = invites.ask(rival, KEY, MALLORY, "rival", NOW)
    earlier = msgspec.structs.replace(request, lamport=inviting.lamport + 1)
    earlier = signed_document.sign(earlier, MALLORY, events.PURPOSE)
    place = (inviting.sequence + 1, inviting.hash, inviting.lamport + 2)
    letting_in = admitted(held, MAX, earlier, place)
    both = with_events(held, earlier, letting_in)
    assert both.level(EVE.node_id) == "trusted"
    assert both.level(MALLORY.node_id) == "member"  # whom Max could have invited as well


# Levels and rules


@pytest.mark.req("COMM-5")
def test_nobody_gives_a_level_that_it_has_not() -> None:
    for by, target, level, allowed in (
        (FOUNDER, MAX, "trusted", True),
        (FOUNDER, MAX, "anchor", True),
        (TILDA, MAX, "trusted", True),
        (TILDA, MAX, "anchor", False),
        (TILDA, TILDA, "anchor", False),
        (MAX, NORA, "trusted", False),
        (MAX, MAX, "trusted", False),
        (EVE, MAX, "trusted", False),
        (ROOT, MAX, "anchor", True),
    ):
        content = Promoted(target_node_id=target.node_id, new_level=level, client_id="x")  # type: ignore[arg-type]
        event = act(town(), by, events.PROMOTED, content)
        larger = roster.merge(town(), [event])
        assert (larger.level(target.node_id) == level) is allowed
    stranger = Promoted(target_node_id=EVE.node_id, new_level="trusted", client_id="x")
    assert "no member" in flaw(town(), act(town(), FOUNDER, events.PROMOTED, stranger))


@pytest.mark.req("COMM-5")
def test_a_promotion_below_the_level_that_somebody_has_lowers_nothing() -> None:
    held = with_events(town(), promoted(town(), FOUNDER, TILDA, "anchor"))
    content = Promoted(target_node_id=TILDA.node_id, new_level="trusted", client_id="x")
    assert with_events(held, act(held, QUINN, events.PROMOTED, content)).level(TILDA.node_id) == "anchor"


@pytest.mark.req("COMM-5")
def test_events_of_those_who_were_never_in_are_not_even_kept() -> None:
    event = act(
        town(),
        EVE,
        events.PROMOTED,
        Promoted(target_node_id=EVE.node_id, new_level="trusted", client_id="x"),
    )
    assert roster.merge(town(), [event]) is town()


@pytest.mark.req("COMM-1")
def test_a_community_is_founded_once() -> None:
    held = founded()
    again = act(
        held,
        ROOT,
        events.CREATED,
        Created(name="Eschenweg", founder=events.entry_of(EVE, "eve")),
        (1, "", 1),
    )
    larger = with_events(held, again)
    first, second = sorted((held.events[0], again), key=lambda event: event.order)
    assert larger.flaw(first) == ""
    assert "founded already" in larger.flaw(second)
    assert len(larger.members) == 1


@pytest.mark.req("COMM-5")
def test_no_event_uses_up_the_numbers_that_order_them() -> None:
    sequence, previous, lamport = town().next(MAX.node_id)
    far = invited(town(), MAX, place=(sequence, previous, 2**53 - 1))
    held = with_events(town(), far)
    assert "far beyond" in held.flaw(far)
    assert held.head_lamport == town().head_lamport
    assert held.invites == ()
    after = promoted(held, FOUNDER, NORA)
    assert after.lamport == lamport
    near = invited(town(), MAX, place=(sequence, previous, town().head_lamport + MAX_LEAP))
    assert flaw(town(), near) == ""
    beyond = invited(town(), MAX, place=(sequence, previous, town().head_lamport + MAX_LEAP + 1))
    assert "far beyond" in flaw(town(), beyond)
    with pytest.raises(HearthNetError, match=r"lamport") as caught:
        events.decode(msgspec.structs.replace(far, lamport=2**53).encode())
    assert caught.value.code == "bad_request"


@pytest.mark.req("COMM-7")
def test_rules_are_the_roots_and_hold_for_events_that_claim_to_be_earlier() -> None:
    old = with_events(town(), invited(town(), MAX))
    strict = with_events(old, commands.CommunityAuthor(old, ROOT).set_policy(STRICT, NOW))
    assert strict.policy == STRICT
    assert len(strict.invites) == 1, "made before, and known"
    late = invited(strict, MAX, Identity(bytes([97]) * 32), early(strict, MAX))
    assert late.lamport <= strict.events[-1].lamport
    assert "takes level trusted" in flaw(strict, late)
    fork = invited(strict, NORA, Identity(bytes([97]) * 32), early(strict, NORA))
    assert "takes level trusted" in flaw(strict, fork)
    again = with_events(strict, commands.CommunityAuthor(strict, ROOT).set_policy(Policy(), NOW))
    assert flaw(again, invited(again, NORA)) == ""
    assert flaw(again, late) == ""
    with pytest.raises(HearthNetError, match="root alone"):
        event_validation.validate_event(
            act(town(), FOUNDER, events.POLICY, PolicyUpdated(policy=STRICT, heads={})),
            town().community_id,
        )
