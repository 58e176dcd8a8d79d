"""What several members signed is carried out once: nobody repeats it alone (docs/decisions/0040)."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import commands
from hearthnet.trust.community.events import CommunityEvent, Demoted, Revoked
from hearthnet.trust.community.roster import Roster, derive
from hearthnet.trust.keys import Identity
from tests.helpers.members import NOW, act
from tests.trust.town import (
    FOUNDER,
    KEY,
    QUINN,
    SAM,
    TILDA,
    UMA,
    admitted,
    asked,
    early,
    flaw,
    invited,
    levels,
    promoted,
    removal,
    town,
    with_events,
)


def again(
    held: Roster,
    by: Identity,
    earlier: CommunityEvent,
    *,
    knows: bool = True,
    place: tuple[int, str, int] | None = None,
) -> CommunityEvent:
    """The same agreement with the same signatures, handed in by `by` now, or at `place`."""
    content = earlier.content
    assert isinstance(content, Demoted | Revoked)
    ends = held.history.tips.get(content.target_node_id, ()) if knows else ()
    heads = tuple(tip.hash for tip in ends)
    return act(held, by, earlier.event_type, msgspec.structs.replace(content, target_heads=heads), place)


def back_again(held: Roster) -> Roster:
    """Uma, who was put out, is let in by an invite of the founder's that names it."""
    held = with_events(held, invited(held, FOUNDER, invitee=UMA.node_id))
    held = with_events(held, joined := asked(held, UMA, KEY))
    held = with_events(held, admitted(held, FOUNDER, joined))
    assert levels(held)["uma"] == "member"
    return held


@pytest.mark.req("COMM-6")
@pytest.mark.parametrize("by", [TILDA, QUINN])
def test_old_signatures_do_not_lower_a_member_a_second_time(by: Identity) -> None:
    first = removal(town(), TILDA, UMA, TILDA, QUINN, SAM, level="member")
    held = with_events(town(), first)
    assert levels(held)["uma"] == "member"
    held = with_events(held, promoted(held, FOUNDER, UMA))
    repeated = again(held, by, first)
    assert "carried out before" in flaw(held, repeated)
    assert levels(with_events(held, repeated))["uma"] == "trusted"
    with pytest.raises(HearthNetError, match="carried out before"):
        commands.CommunityAuthor(held, by).demote(
            UMA.node_id,
            "member",
            client_id=repeated.data["client_id"],
            now_ms=NOW,
            co_signers=first.content.co_signers,  # type: ignore[union-attr]
        )


@pytest.mark.req("COMM-6", "COMM-8")
def test_nor_do_they_put_out_again_who_came_back() -> None:
    first = removal(town(), TILDA, UMA, TILDA, QUINN, SAM)
    held = back_again(with_events(town(), first))
    did = invited(held, UMA, Identity(bytes([98]) * 32))
    held = with_events(held, did)
    for knows in (True, False):
        repeated = again(held, SAM, first, knows=knows)
        after = with_events(held, repeated)
        assert "carried out before" in after.flaw(repeated)
        assert levels(after)["uma"] == "member"
        assert after.flaw(did) == ""
        # A new agreement does.
        signed = removal(after, SAM, UMA, QUINN, TILDA)
        assert levels(with_events(after, signed)).get("uma") is None
        assert "takes 3 signatures" in flaw(after, removal(after, SAM, UMA))


@pytest.mark.req("COMM-4", "COMM-6")
@pytest.mark.parametrize("wait", [-1, 1])
def test_two_who_hand_in_one_proposal_apart_both_count_as_one(wait: int) -> None:
    """Each knew other events of the target: what either did not know does not count, whoever was first."""
    known = invited(town(), UMA, Identity(bytes([97]) * 32))
    seen = with_events(town(), known)
    late = invited(seen, UMA, Identity(bytes([96]) * 32))
    one = removal(seen, TILDA, UMA, TILDA, QUINN, SAM)
    sequence, previous, _ = town().next(QUINN.node_id)
    other = again(town(), QUINN, one, knows=False, place=(sequence, previous, one.lamport + wait))
    assert (one.order < other.order) == (wait > 0)
    rosters = [
        derive(town().community_id, [*town().events, *order])
        for order in itertools.permutations((one, other, known, late))
    ]
    assert all(roster.members == rosters[0].members for roster in rosters)
    for merged in rosters:
        assert levels(merged).get("uma") is None
        assert sum("carried out before" in merged.flaw(event) for event in (one, other)) == 1
        for event in (known, late):
            assert merged.flaw(event) == "to invite takes level member, which its author did not have"


@pytest.mark.req("COMM-8")
def test_handing_in_an_agreement_early_does_not_let_the_removed_write_on() -> None:
    """A friend of the removed hands in the same signatures at an earlier place, with later events of hers as
    known ones: those who made the first removal did not know these, and that still holds.
    """
    held = town()
    sequence, previous, lamport = held.next(TILDA.node_id)
    first = removal(held, TILDA, UMA, TILDA, QUINN, SAM, place=(sequence, previous, lamport + 1))
    written = invited(held, UMA, Identity(bytes([96]) * 32), place=early(held, UMA))
    friendly = again(with_events(held, written), SAM, first)
    merged = with_events(held, written, friendly, first)
    assert written.order < friendly.order < first.order
    assert "level member" in merged.flaw(written)
    assert levels(merged).get("uma") is None
