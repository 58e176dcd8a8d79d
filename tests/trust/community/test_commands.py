"""What a member does is checked before it is signed for good (docs/decisions/0040)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import commands, roster
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.roster import Policy, Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, NOW, take_in
from tests.trust.people import removed, settled
from tests.trust.town import EVE, FOUNDER, MAX, NORA, QUINN, ROOT, SAM, TILDA, removal, town, with_events

KEY = Identity(bytes([99]) * 32)
Act = Callable[[Roster], CommunityEvent]


def invite(by: Identity, days: int = 1) -> Act:
    """An invite by `by`."""
    return lambda held: commands.CommunityAuthor(held, by).invite(
        KEY, display_name="x", expires_at=NOW + days * DAY_MS, now_ms=NOW
    )


def promote(by: Identity, target: Identity, level: roster.Level) -> Act:
    """A promotion."""
    return lambda held: commands.CommunityAuthor(held, by).promote(
        target.node_id, level, client_id="x", now_ms=NOW
    )


def demote(by: Identity, target: Identity, level: roster.Level) -> Act:
    """A demotion."""
    return lambda held: commands.CommunityAuthor(held, by).demote(
        target.node_id, level, client_id="x", now_ms=NOW
    )


def revoke(by: Identity, target: Identity, reason: str = "other") -> Act:
    """A revocation by one alone."""
    return lambda held: commands.CommunityAuthor(held, by).revoke(
        target.node_id, reason, client_id="x", now_ms=NOW
    )


@pytest.mark.req("COMM-10")
@pytest.mark.parametrize(
    ("act", "effect"),
    [
        (invite(MAX), lambda held: [one.inviter for one in held.invites] == [MAX.node_id]),
        (promote(FOUNDER, MAX, "anchor"), lambda held: held.level(MAX.node_id) == "anchor"),
        (demote(ROOT, TILDA, "member"), lambda held: held.level(TILDA.node_id) == "member"),
        (revoke(ROOT, TILDA), lambda held: held.revoked[0].node_id == TILDA.node_id),
        (revoke(MAX, MAX), lambda held: held.revoked[0].node_id == MAX.node_id),
        (
            lambda held: commands.CommunityAuthor(held, ROOT).set_policy(
                Policy(min_signatures_to_revoke=1), NOW
            ),
            lambda held: held.policy == Policy(min_signatures_to_revoke=1),
        ),
    ],
    ids=["invite", "promote", "demote", "revoke", "leave", "policy"],
)
def test_an_act_that_counts_is_one_event_that_does(act: Act, effect: Callable[[Roster], bool]) -> None:
    event = act(town())
    held = with_events(town(), event)
    assert held.flaw(event) == ""
    assert held.version == town().version + 1
    assert effect(held)


@pytest.mark.req("COMM-10")
@pytest.mark.parametrize(
    ("act", "code", "said"),
    [
        (invite(EVE), "unauthorized", "no member"),
        (invite(MAX, days=31), "bad_request", "within 30 days"),
        (promote(MAX, NORA, "trusted"), "unauthorized", "takes that level"),
        (promote(FOUNDER, EVE, "trusted"), "not_found", "is no member of Ahornweg"),
        (promote(FOUNDER, TILDA, "trusted"), "bad_request", "is trusted already"),
        (promote(FOUNDER, NORA, "member"), "bad_request", "is member already"),
        (demote(QUINN, TILDA, "member"), "unauthorized", "takes 3 signatures"),
        (demote(ROOT, NORA, "trusted"), "bad_request", "no more than member"),
        (demote(ROOT, FOUNDER, "anchor"), "bad_request", "no more than anchor"),
        (demote(ROOT, EVE, "member"), "not_found", "is no member of"),
        (demote(FOUNDER, FOUNDER, "member"), "unauthorized", "last anchor"),
        (revoke(QUINN, TILDA), "unauthorized", "takes 3 signatures of trusted members and has 1"),
        (revoke(ROOT, EVE), "not_found", "is no member of"),
        (revoke(ROOT, TILDA, "x" * 201), "bad_request", "malformed"),
        (
            lambda held: commands.CommunityAuthor(held, MAX).withdraw("none", NOW),
            "not_found",
            "no such open invite",
        ),
        (
            lambda held: commands.CommunityAuthor(held, FOUNDER).set_policy(Policy(), NOW),
            "unauthorized",
            "its root key alone",
        ),
    ],
    ids=range(16),
)
def test_an_act_that_would_not_count_says_why(act: Act, code: str, said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as caught:
        act(town())
    assert caught.value.code == code


@pytest.mark.req("COMM-10")
def test_who_was_put_out_can_be_put_out_for_what_it_did_meanwhile() -> None:
    let_in = take_in(town(), MAX, EVE)
    known = tuple(tip.hash for tip in town().history.tips[MAX.node_id])
    held = with_events(let_in, removal(let_in, ROOT, MAX, known=known))
    assert ([one.reason for one in held.revoked], held.level(EVE.node_id)) == (["other"], "unknown")
    event = commands.CommunityAuthor(held, ROOT).revoke(MAX.node_id, "compromised", client_id="x", now_ms=NOW)
    assert event.data["target_heads"] == list(known), "it leaves nothing as it is that did not count"
    after = with_events(held, event)
    assert ([one.reason for one in after.revoked], after.level(EVE.node_id)) == (["compromised"], "unknown")


@pytest.mark.req("COMM-10", "PERSON-4")
def test_a_statement_is_carried_once_and_only_where_it_counts() -> None:
    held = settled(town(), MAX, NORA)
    content = removed(held, MAX, NORA).data
    event = commands.CommunityAuthor(held, SAM).carry(statements.DEVICE_REMOVED, content, NOW)
    after = with_events(held, event)
    assert (event.author, after.flaw(event), after.is_revoked(NORA.node_id)) == (SAM.node_id, "", True)
    assert commands.CommunityAuthor(after, TILDA).carry(statements.DEVICE_REMOVED, content, NOW) is event
    foreign = removed(held, MAX, QUINN).data
    with pytest.raises(HearthNetError) as refused:
        commands.CommunityAuthor(held, SAM).carry(statements.DEVICE_REMOVED, foreign, NOW)
    assert refused.value.code == "unauthorized"


@pytest.mark.req("COMM-10")
def test_an_invite_needs_no_name_but_a_usable_one() -> None:
    author, ends = commands.CommunityAuthor(town(), MAX), NOW + DAY_MS
    event = author.invite(KEY, display_name="", expires_at=ends, now_ms=NOW)
    (kept,) = with_events(town(), event).invites
    assert (kept.inviter, kept.display_name) == (MAX.node_id, "")
    with pytest.raises(HearthNetError) as refused:
        author.invite(KEY, display_name="a\nb", expires_at=ends, now_ms=NOW)
    assert refused.value.code == "bad_request"
