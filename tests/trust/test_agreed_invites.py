"""Invites that several members have to agree to.

See: docs/protocol/community.md#agreements, docs/decisions/0046.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import commands, event_validation, events, roster
from hearthnet.trust.community.events import CommunityEvent, CoSigner, Invited, Level, Policy
from hearthnet.trust.community.proposals import Proposal
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, NOW, act
from tests.trust.test_merging import MEMBERSHIP, Step, made
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
    removal,
    town,
    with_events,
)

THREE = Policy(min_signatures_to_invite=3)
STRICT = Policy(min_signatures_to_invite=2, default_member_can_invite=False)
OTHER_KEY = Identity(bytes([98]) * 32)
STRANGER = Identity(bytes([96]) * 32)


def under(policy: Policy, held: Roster | None = None) -> Roster:
    """The town, or `held`, with these rules."""
    held = town() if held is None else held
    return with_events(held, commands.CommunityAuthor(held, ROOT).set_policy(policy, NOW))


def proposal(held: Roster, *signers: Identity, invitee: Identity = EVE) -> Proposal:
    """That `invitee` is invited for a day, signed by these."""
    said = Proposal(
        event_type=events.INVITED,
        community_id=held.community_id,
        target_node_id=invitee.node_id,
        what="Eve's",
        client_id="01JZZZZZZZZZZZZZZZZZZZZZ90",
        expires_at=NOW + DAY_MS,
        recalls=held.revocation_of(invitee.node_id),
    )
    for signer in signers:
        said = said.sign(signer)
    return said


def carried_out(
    held: Roster,
    by: Identity,
    said: Proposal,
    key: Identity = KEY,
    place: tuple[int, str, int] | None = None,
) -> CommunityEvent:
    """The invite that `by` makes of a proposal, whether it counts or not."""
    content = events.invited(
        held.community_id,
        by.node_id,
        key,
        display_name=said.what,
        expires_at=said.expires_at,
        invitee=said.target_node_id,
        client_id=said.client_id,
        co_signers=said.co_signers,
        recalls=said.recalls,
    )
    return act(held, by, events.INVITED, content, place)


def let_in(held: Roster, by: Identity, who: Identity, key: Identity = KEY) -> Roster:
    """`held` once `who` has asked under an open invite, and `by` has let it in."""
    held = with_events(held, joined := asked(held, who, key))
    return with_events(held, admitted(held, by, joined))


def refused(held: Roster, by: Identity, joined: CommunityEvent) -> str:
    """Why `by` lets nobody in by this request."""
    held = with_events(held, joined)
    return flaw(held, admitted(held, by, joined))


@pytest.mark.req("COMM-12")
def test_an_invite_takes_as_many_signatures_as_the_policy_says() -> None:
    held = under(THREE)
    for signers, has in (((), 1), ((QUINN,), 2), ((QUINN, TILDA), 2), ((QUINN, QUINN, TILDA), 2)):
        event = carried_out(held, TILDA, proposal(held, *signers))
        assert f"takes 3 signatures of members who may invite and has {has}" in flaw(held, event)
    enough = carried_out(held, TILDA, proposal(held, QUINN, NORA))
    assert flaw(held, enough) == ""
    after = let_in(with_events(held, enough), MAX, EVE)
    assert levels(after)["eve"] == "member"
    assert flaw(held, invited(held, ROOT)) == "", "the root alone is enough"


@pytest.mark.req("COMM-12")
def test_only_those_count_who_may_invite_themselves() -> None:
    held = under(STRICT)
    for signers in ((MAX, NORA), (MALLORY, EVE), (EVE,)):
        assert "and has 1" in flaw(held, carried_out(held, TILDA, proposal(held, *signers)))
    assert "takes level trusted" in flaw(held, carried_out(held, MAX, proposal(held, QUINN, TILDA)))
    assert flaw(held, carried_out(held, TILDA, proposal(held, QUINN))) == ""


@pytest.mark.req("COMM-12")
def test_the_same_signature_twice_counts_once() -> None:
    held = under(THREE)
    said = proposal(held, QUINN)
    twice = msgspec.structs.replace(said, co_signers=said.co_signers * 3)
    assert "has 2" in flaw(held, carried_out(held, TILDA, twice))


@pytest.mark.req("COMM-12")
def test_a_small_community_can_invite_too() -> None:
    held = under(THREE, founded())
    alone = invited(held, FOUNDER)
    assert flaw(held, alone) == ""
    held = let_in(with_events(held, alone), FOUNDER, EVE)
    said = proposal(held, EVE, invitee=MALLORY)
    assert said.needed(held) == 2
    assert "takes 2 signatures" in flaw(held, carried_out(held, EVE, said, OTHER_KEY))
    assert flaw(held, carried_out(held, FOUNDER, said, OTHER_KEY)) == ""


@pytest.mark.req("COMM-12")
def test_how_many_it_takes_follows_the_members() -> None:
    """Those who rise, fall and leave are counted where they are, as the command line counts them."""
    held = under(Policy(min_signatures_to_invite=32, default_member_can_invite=False))
    steps: tuple[tuple[Callable[[Roster], CommunityEvent] | None, int], ...] = (
        (None, 5),
        (lambda held: promoted(held, FOUNDER, MAX), 6),
        (lambda held: promoted(held, FOUNDER, MAX, "anchor"), 6),
        (lambda held: removal(held, SAM, MAX, QUINN, UMA, level="trusted"), 6),
        (lambda held: removal(held, SAM, MAX, QUINN, UMA, TILDA, level="member"), 5),
        (lambda held: removal(held, SAM, TILDA, QUINN, UMA), 4),
        (lambda held: removal(held, UMA, UMA), 3),
        (lambda held: removal(held, SAM, NORA, QUINN, FOUNDER), 3),
    )
    for step, wanted in steps:
        held = held if step is None else with_events(held, step(held))
        said = proposal(held)
        assert said.needed(held) == wanted
        assert f"it takes {wanted} signatures" in flaw(held, carried_out(held, SAM, said))


@pytest.mark.req("COMM-12")
def test_what_takes_several_signatures_names_its_node_and_lets_in_no_other() -> None:
    """Else who lets in could use one invite for any number of nodes: whether it was used is for it to say."""
    held = under(THREE)
    assert "names the node" in flaw(held, invited(held, TILDA))
    held = with_events(held, carried_out(held, TILDA, proposal(held, QUINN, SAM)))
    stranger = asked(held, MALLORY)
    assert "for another node" in flaw(held, stranger)
    assert "does not count" in refused(held, TILDA, stranger)


@pytest.mark.req("COMM-12")
@pytest.mark.parametrize(
    "changes",
    [
        {"what": "Mallory's"},
        {"expires_at": NOW + 2 * DAY_MS},
        {"client_id": "01JZZZZZZZZZZZZZZZZZZZZZ91"},
        {"target_node_id": MALLORY.node_id},
        {"recalls": "blake3:" + "0" * 64},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_signatures_cover_every_term(changes: dict[str, object]) -> None:
    held = under(THREE)
    altered = msgspec.structs.replace(proposal(held, QUINN, SAM), **changes)
    event = carried_out(held, TILDA, altered)
    with pytest.raises(HearthNetError, match="signed something else") as caught:
        event_validation.validate_event(event, held.community_id)
    assert caught.value.code == "invalid_signature"
    assert roster.merge(held, [event]) is held, "nobody keeps it, whoever wrote it"


@pytest.mark.req("COMM-12")
def test_forged_and_foreign_signatures_are_refused() -> None:
    held = under(THREE)
    said = proposal(held, QUINN)
    (quinn,) = said.co_signers
    revocation = removal(held, TILDA, EVE, QUINN).content
    elsewhere = msgspec.structs.replace(said, community_id=MALLORY.node_id, co_signers=())
    for signature in (
        CoSigner(SAM.node_id, quinn.signature),
        CoSigner(SAM.node_id, ids.b64(bytes(64))),
        revocation.co_signers[0],  # type: ignore[union-attr]
        elsewhere.sign(SAM).co_signers[0],
    ):
        forged = msgspec.structs.replace(said, co_signers=(quinn, signature))
        assert roster.merge(held, [carried_out(held, TILDA, forged)]) is held
    nameless = msgspec.structs.replace(said, target_node_id="", co_signers=())
    nameless = nameless.sign(QUINN)
    with pytest.raises(HearthNetError, match="names the node") as caught:
        event_validation.validate_event(carried_out(held, TILDA, nameless), held.community_id)
    assert caught.value.code == "bad_request"


@pytest.mark.req("COMM-12")
def test_who_was_lowered_or_put_out_between_signing_and_use_does_not_count() -> None:
    start = under(STRICT)
    said = proposal(start, QUINN)
    levels_left: tuple[Level | None, ...] = ("member", None)
    for level in levels_left:
        gone = with_events(start, removal(start, TILDA, QUINN, SAM, UMA, level=level))
        assert "and has 1" in flaw(gone, carried_out(gone, TILDA, said))
    lowered = with_events(start, removal(start, SAM, TILDA, QUINN, UMA, level="member"))
    assert "takes level trusted" in flaw(lowered, carried_out(lowered, TILDA, said))


@pytest.mark.req("COMM-12")
def test_an_open_invite_ends_with_the_membership_of_who_agreed_to_it() -> None:
    """As it does with that of its author: who is put out may have signed with a key in foreign hands."""
    held = with_events(under(STRICT), carried_out(under(STRICT), TILDA, proposal(town(), QUINN)))
    assert len(held.invites) == 1
    joined = asked(held, EVE)
    lowered = with_events(held, removal(held, TILDA, QUINN, SAM, UMA, level="member"))
    assert len(lowered.invites) == 1, "what the lowered did before stays"
    out = with_events(held, removal(held, TILDA, QUINN, SAM, UMA), joined)
    assert out.invites == ()
    assert "not count any more: it takes 2 signatures" in flaw(out, admitted(out, TILDA, joined))


@pytest.mark.req("COMM-12", "COMM-7")
def test_stricter_rules_hold_for_invites_that_are_open_and_for_those_that_claim_to_be_earlier() -> None:
    held = with_events(town(), invited(town(), MAX), invited(town(), TILDA, OTHER_KEY, invitee=EVE.node_id))
    joined = asked(held, STRANGER)
    strict = with_events(under(THREE, held), joined)
    assert strict.invites == ()
    assert strict.level(KEY.node_id, NOW) == "unknown", "its login is worth nothing any more"
    assert "names the node" in flaw(strict, admitted(strict, MAX, joined))
    late = invited(strict, NORA, Identity(bytes([97]) * 32), place=early(strict, NORA), invitee=EVE.node_id)
    (update,) = (one for one in strict.events if one.event_type == events.POLICY)
    assert late.order < update.order
    assert "takes 3 signatures" in flaw(strict, late)
    relaxed = under(Policy(), strict)
    assert len(relaxed.invites) == 2


@pytest.mark.req("COMM-12", "COMM-8")
def test_what_was_agreed_brings_nobody_back_who_was_put_out_since() -> None:
    held = under(THREE)
    first = proposal(held, QUINN, SAM)
    held = let_in(with_events(held, carried_out(held, TILDA, first)), TILDA, EVE)
    out = with_events(held, removal(held, FOUNDER, EVE, QUINN, SAM))
    replayed = with_events(out, carried_out(out, TILDA, first, OTHER_KEY))
    joined = asked(replayed, EVE, OTHER_KEY)
    assert "a revoked node comes back only" in refused(replayed, TILDA, joined)
    with pytest.raises(HearthNetError, match="propose it anew") as caught:
        first.check(out)
    assert caught.value.code == "unauthorized"
    second = proposal(out, QUINN, SAM)
    assert second.recalls == out.revocation_of(EVE.node_id)
    recalling = commands.CommunityAuthor(out, TILDA).invite(
        KEY,
        display_name=second.what,
        expires_at=second.expires_at,
        now_ms=NOW,
        invitee=EVE.node_id,
        client_id=second.client_id,
        co_signers=second.co_signers,
    )
    assert recalling.content == carried_out(out, TILDA, second).content
    back = let_in(with_events(out, recalling), MAX, EVE)
    assert levels(back)["eve"] == "member"
    again = with_events(back, removal(back, UMA, EVE, QUINN, SAM))
    assert again.revocation_of(EVE.node_id) not in ("", second.recalls)
    third = with_events(again, carried_out(again, TILDA, second, OTHER_KEY))
    joined = asked(third, EVE, OTHER_KEY)
    assert "a revoked node comes back only" in refused(third, TILDA, joined)


@pytest.mark.req("COMM-12")
def test_one_trusted_signer_is_enough_to_call_somebody_back() -> None:
    held = under(THREE)
    held = let_in(with_events(held, carried_out(held, TILDA, proposal(held, QUINN, SAM))), TILDA, EVE)
    out = with_events(held, removal(held, FOUNDER, EVE, QUINN, SAM))
    for signers, back in (((NORA, QUINN), True), ((NORA, MALLORY), False)):
        tried = out if back else under(Policy(), out)
        tried = with_events(tried, carried_out(tried, MAX, proposal(tried, *signers)))
        joined = asked(tried, EVE)
        assert (refused(tried, TILDA, joined) == "") is back


@pytest.mark.req("COMM-12")
def test_a_later_invite_for_the_same_node_replaces_the_inviters_earlier_one() -> None:
    held = with_events(town(), invited(town(), MAX, invitee=EVE.node_id))
    other = invited(held, MAX, OTHER_KEY, expires_at=NOW + 2 * DAY_MS, invitee=EVE.node_id)
    held = with_events(held, other)
    assert [one.invite_key for one in held.invites] == [OTHER_KEY.node_id]
    for by, invitee in ((NORA, EVE), (MAX, MALLORY)):
        held = with_events(held, invited(held, by, Identity.generate(), invitee=invitee.node_id))
    assert len(held.invites) == 3, "another's, and one for another node, stay"


@pytest.mark.req("COMM-12")
def test_an_act_that_would_not_count_is_refused_before_it_is_made() -> None:
    held = under(THREE)
    said = proposal(held, QUINN, SAM)

    def make(co_signers: tuple[CoSigner, ...], name: str = said.what) -> CommunityEvent:
        return commands.CommunityAuthor(held, TILDA).invite(
            KEY,
            display_name=name,
            expires_at=said.expires_at,
            now_ms=NOW,
            invitee=EVE.node_id,
            client_id=said.client_id,
            co_signers=co_signers,
        )

    event = make(said.co_signers)
    assert isinstance(event.content, Invited)
    assert event.content.client_id == said.client_id
    for co_signers, name, code, why in (
        (said.co_signers[:1], said.what, "unauthorized", "takes 3 signatures .* and has 2"),
        (said.co_signers, "Mallory's", "invalid_signature", "has signed something else"),
    ):
        with pytest.raises(HearthNetError, match=why) as caught:
            make(co_signers, name)
        assert caught.value.code == code


@pytest.mark.req("COMM-12", "COMM-5")
@settings(max_examples=60)
@given(
    st.lists(
        st.builds(
            Step,
            at=st.just(0),
            kind=st.sampled_from([kind for kind in MEMBERSHIP[:7] if kind != "promote"]),
            who=st.sampled_from((TILDA, TILDA, MAX, EVE, MALLORY)),
            whom=st.sampled_from((EVE, MALLORY)),
            chance=st.integers(0, 2**32),
        ),
        max_size=25,
    )
)
def test_two_who_may_invite_let_nobody_in_where_it_takes_three(steps: list[Step]) -> None:
    """Whatever they and two strangers write, at whatever place they like."""
    start = under(THREE)
    held = start
    for step in steps:
        event = made(held, step, friends=(TILDA, MAX, EVE, MALLORY))
        if event is not None:
            held = roster.merge(held, [event])
    assert levels(held) == levels(start)
    assert held.invites == ()
