"""Proposals that go round until enough have signed.

See: docs/protocol/community.md#agreements, docs/protocol/community.md#proposal-text.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import text_armor
from hearthnet.trust.community import commands, events, proposals, roster
from hearthnet.trust.community.events import CoSigner
from hearthnet.trust.community.proposals import Proposal
from tests.helpers.members import NOW
from tests.trust.town import EVE, FOUNDER, MAX, QUINN, ROOT, SAM, TILDA, UMA, founded, town, with_events

PROPOSAL = Proposal(
    event_type="community.member.revoked",
    community_id=ROOT.node_id,
    target_node_id=TILDA.node_id,
    what="compromised",
    client_id="01JZZZZZZZZZZZZZZZZZZZZZ40",
)
LOWER = msgspec.structs.replace(PROPOSAL, event_type="community.member.demoted", what="member")
INVITE = msgspec.structs.replace(
    PROPOSAL, event_type="community.member.invited", target_node_id=EVE.node_id, what="Eve's", expires_at=NOW
)
RAISE = msgspec.structs.replace(PROPOSAL, event_type="community.member.promoted", what="anchor")


@pytest.mark.req("COMM-9", "COMM-6")
def test_a_proposal_goes_round_until_it_can_be_carried_out() -> None:
    text = proposals.encode(PROPOSAL)
    assert text.startswith("hnproposal://v1/")
    for signer in (SAM, UMA, SAM):
        proposal = proposals.decode(text)
        proposal.check(town())
        text = proposals.encode(proposal.sign(signer))
    proposal = proposals.decode(text)
    assert proposal.check(town()) == (UMA.node_id, SAM.node_id)
    assert proposal.needed(town()) == 3
    event = commands.CommunityAuthor(town(), QUINN).revoke(
        TILDA.node_id, "compromised", client_id=PROPOSAL.client_id, now_ms=NOW, co_signers=proposal.co_signers
    )
    assert with_events(town(), event).is_revoked(TILDA.node_id)


@pytest.mark.req("COMM-6")
def test_those_who_may_not_sign_are_not_counted() -> None:
    proposal = PROPOSAL
    for signer in (MAX, EVE, TILDA, SAM):
        proposal = proposal.sign(signer)
    assert proposal.check(town()) == (SAM.node_id,)


@pytest.mark.req("COMM-6")
def test_how_many_it_takes() -> None:
    assert PROPOSAL.needed(town()) == LOWER.needed(town()) == 3
    assert RAISE.needed(town()) == 1
    policy = roster.Policy(min_signatures_to_revoke=2, min_signatures_to_demote=5)
    other = with_events(town(), commands.CommunityAuthor(town(), ROOT).set_policy(policy, NOW))
    assert (PROPOSAL.needed(other), LOWER.needed(other)) == (2, 4)
    alone = msgspec.structs.replace(PROPOSAL, target_node_id=FOUNDER.node_id)
    assert alone.needed(founded()) == 1


@pytest.mark.req("COMM-6", "COMM-12")
def test_an_invite_is_agreed_to_by_those_who_may_invite() -> None:
    said = INVITE
    for signer in (SAM, MAX, EVE):
        said = proposals.decode(proposals.encode(said)).sign(signer)
    assert said.check(town()) == (SAM.node_id, MAX.node_id)
    assert said.needed(town()) == 1
    policy = roster.Policy(min_signatures_to_invite=3, default_member_can_invite=False)
    strict = with_events(town(), commands.CommunityAuthor(town(), ROOT).set_policy(policy, NOW))
    assert said.check(strict) == (SAM.node_id,)
    assert said.needed(strict) == 3
    altered = msgspec.structs.replace(said, expires_at=NOW + 1)
    with pytest.raises(HearthNetError, match="has signed something else") as caught:
        altered.check(town())
    assert caught.value.code == "invalid_signature"


@pytest.mark.req("COMM-6")
def test_a_proposal_is_checked_against_the_roster() -> None:
    forged = CoSigner(SAM.node_id, ids.b64(bytes(64)))
    moved = PROPOSAL.sign(SAM)
    other = f"{ids.short_id(SAM.node_id)} has signed something else"
    for proposal, code, said in (
        (
            msgspec.structs.replace(PROPOSAL, community_id=EVE.node_id),
            "unauthorized",
            "is about another community",
        ),
        (
            msgspec.structs.replace(PROPOSAL, target_node_id=EVE.node_id),
            "not_found",
            "is no member of Ahornweg",
        ),
        (msgspec.structs.replace(PROPOSAL, co_signers=(forged,)), "invalid_signature", other),
        (msgspec.structs.replace(moved, what="inactive"), "invalid_signature", other),
        (msgspec.structs.replace(moved, client_id="other"), "invalid_signature", other),
        (msgspec.structs.replace(moved, target_node_id=UMA.node_id), "invalid_signature", other),
        (msgspec.structs.replace(LOWER, co_signers=moved.co_signers), "invalid_signature", other),
    ):
        with pytest.raises(HearthNetError, match=said) as caught:
            proposal.check(town())
        assert caught.value.code == code


@pytest.mark.req("COMM-9")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"e": "community.policy.updated"}, "is damaged"),
        ({"c": "x"}, "'x' is not a node id"),
        ({"t": "x"}, "'x' is not a node id"),
        ({"e": "community.member.demoted", "w": "king"}, "names no level"),
        ({"i": ""}, "is damaged"),
        ({"w": "x" * 201}, "is damaged"),
        ({"s": [{"node_id": SAM.node_id, "signature": "x"}] * 33}, "is damaged"),
        ({"more": 1}, "is of a later version; upgrade"),
        ({"e": "community.member.invited", "x": 0}, "has no end, or too long a name"),
        ({"e": "community.member.invited", "x": NOW, "w": "x" * 65}, "has no end, or too long a name"),
        ({"e": "community.member.invited", "x": NOW, "r": "x"}, "is damaged"),
        ({"x": NOW}, "only an invite has an end"),
        ({"r": "blake3:" + "0" * 64}, "only an invite has an end"),
    ],
    ids=range(13),
)
def test_what_proposes_nothing_is_refused(changes: dict[str, object], said: str) -> None:
    members = {**msgspec.to_builtins(PROPOSAL), **changes}
    with pytest.raises(HearthNetError, match=said) as caught:
        proposals.decode(text_armor.armor(proposals.SCHEME, members))
    assert caught.value.code == "bad_request"


@pytest.mark.req("COMM-9")
@given(st.integers(0, 10**6), st.text(max_size=3))
def test_a_damaged_proposal_is_told_in_one_line(at: int, put: str) -> None:
    text = proposals.encode(PROPOSAL.sign(SAM))
    at %= len(text)
    altered = text[:at] + put + text[at + max(1, len(put)) :]
    if altered == text:
        return
    with pytest.raises(HearthNetError, match=r"no proposal|is damaged") as caught:
        proposals.decode(altered)
    assert caught.value.code == "bad_request"
    assert "\n" not in caught.value.message


@pytest.mark.req("COMM-9")
def test_a_full_proposal_fits_where_it_is_read() -> None:
    signers = tuple(CoSigner(SAM.node_id, ids.b64(bytes([number]) * 64)) for number in range(32))
    full = msgspec.structs.replace(PROPOSAL, what="x" * 200, co_signers=signers)
    assert proposals.decode(proposals.encode(full)) == full
    assert events.COSIGN_PURPOSE == "cosign"
