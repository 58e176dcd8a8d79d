"""Persons and their devices, and what a thief of a node gains (docs/protocol/persons.md)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session.event_intake import UNKNOWN_BYTES
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.community import event_validation, events, pending_removals, reducer, roster
from hearthnet.trust.community import person_statements as statements
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.person_statements import MAX_DEVICES, DeviceKind
from hearthnet.trust.community.persons import MAX_FORMER
from hearthnet.trust.community.replay import MAX_REMOVALS, RosterReplay
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import NOW, act
from tests.trust.people import (
    FIRST,
    OTHER_PAPER,
    PAGE,
    PAPER,
    PHONE,
    SECOND,
    THIEF_KEY,
    added,
    keyed,
    keys,
    removed,
    settled,
)
from tests.trust.town import (
    EVE,
    FOUNDER,
    KEY,
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
    invited,
    removal,
    town,
    with_events,
)

ANNA, THIEF = PAPER.node_id, OTHER_PAPER.node_id


@functools.cache
def anna() -> Roster:
    """The town, with a person who has the nodes of Max and Nora."""
    return settled(town(), MAX, NORA)


def with_page(held: Roster) -> Roster:
    """`held` with a page of the person, carried by Max."""
    return with_events(held, added(held, MAX, PAGE))


@pytest.mark.req("PERSON-1")
def test_devices_belong_to_the_person_whose_keys_signed_them() -> None:
    held = with_page(anna())
    assert keys(held) == [MAX.node_id, NORA.node_id, PAGE.node_id]
    assert [one.kind for one in held.devices(ANNA)] == ["node", "node", "browser"]
    for one in (MAX, NORA):
        assert held.owner(one.node_id) == ANNA
        assert held.person_of(one.node_id) == ANNA
    assert held.is_device(PAGE.node_id, ANNA)
    assert held.person_name(ANNA) == "max"
    person = held.person(ANNA)
    assert person is not None
    assert (person.epoch, person.key) == (1, FIRST.node_id)
    assert held.persons == (person,)


@pytest.mark.req("PERSON-1")
def test_whoever_has_no_person_owns_its_own_things() -> None:
    held = with_page(anna())
    for principal in (SAM.node_id, EVE.node_id, f"{MAX.node_id}/eva", PAGE.node_id, "nobody"):
        assert held.owner(principal) == principal
    assert not held.is_device(SAM.node_id, ANNA)
    assert not held.is_device(EVE.node_id, "")
    assert held.devices(THIEF) == ()
    assert held.person_name(THIEF) == ""


@pytest.mark.req("PERSON-2", "ATTACK-49")
def test_a_statement_in_the_name_of_another_is_not_held() -> None:
    held = anna()
    forged: list[tuple[str, statements.Statement]] = []
    mine = statements.keyed(held.community_id, OTHER_PAPER, 2, SECOND.node_id)
    forged.append((statements.KEYED, msgspec.structs.replace(mine, person=ANNA)))
    offered = statements.offered_device(held.community_id, ANNA, THIEF_KEY, EVE.node_id, "browser", "x")
    both = statements.consented(held.community_id, offered, EVE)
    forged.append((statements.DEVICE_ADDED, msgspec.structs.replace(both, key=FIRST.node_id)))
    unasked = statements.offered_device(held.community_id, ANNA, FIRST, PAGE.node_id, "browser", "x")
    forged.append((statements.DEVICE_ADDED, statements.consented(held.community_id, unasked, EVE)))
    out = statements.device_removed(held.community_id, ANNA, THIEF_KEY, NORA.node_id, ())
    forged.append((statements.DEVICE_REMOVED, msgspec.structs.replace(out, key=FIRST.node_id)))
    for event_type, content in forged:
        event = act(held, SAM, event_type, content)
        assert refusal(event) == "invalid_signature"
        assert roster.merge(held, [event]) is held


@pytest.mark.req("PERSON-2")
def test_a_statement_of_another_community_is_not_held() -> None:
    elsewhere = roster.create(EVE, roster.member(MAX, "anchor", "max", 0), "Elsewhere", 0)
    held = anna()
    for event in (
        keyed(elsewhere, MAX, epoch=2, key=SECOND),
        added(elsewhere, MAX, PAGE),
        removed(elsewhere, MAX, NORA),
    ):
        content = event.content
        assert isinstance(content, statements.Statement)
        assert refusal(act(held, SAM, event.event_type, content)) == "invalid_signature"


@pytest.mark.req("PERSON-2")
def test_what_contradicts_itself_is_not_held() -> None:
    held, community = anna(), town().community_id
    same = statements.keyed(community, PAPER, 2, ANNA)
    begun = statements.keyed(community, PAPER, 1, SECOND.node_id, (NORA.node_id,))
    twice = statements.keyed(community, PAPER, 2, SECOND.node_id, (NORA.node_id, NORA.node_id))
    own = statements.device_removed(community, ANNA, FIRST, FIRST.node_id, ())
    for event_type, content in (
        (statements.KEYED, same),
        (statements.KEYED, begun),
        (statements.KEYED, twice),
        (statements.DEVICE_REMOVED, own),
    ):
        assert refusal(act(held, SAM, event_type, content)) == "bad_request"
    for event in (
        added(held, SAM, FIRST),
        added(held, SAM, PAPER),
        added(held, SAM, NORA, kind="node"),
        added(held, SAM, SAM, kind="browser"),
    ):
        assert refusal(event) == "bad_request"
    for changes in ({"signature": "x"}, {"signature": "ed25519:*"}):
        broken = msgspec.structs.replace(same, key=SECOND.node_id, **changes)
        assert refusal(act(held, SAM, statements.KEYED, broken)) == "invalid_signature"


@pytest.mark.req("PERSON-2")
def test_the_largest_statements_fit_earlier_versions() -> None:
    held = anna()
    devices = tuple(Identity(bytes([number, 1] * 16)) for number in range(MAX_DEVICES))
    largest = [
        keyed(held, MAX, key=SECOND, epoch=2**53 - 1, stay=devices, place=(2**53 - 1, hash_(1), 2**53 - 1)),
        added(held, MAX, PAGE, name="x" * 64, place=(2**53 - 1, hash_(1), 2**53 - 1)),
        removed(held, MAX, NORA, known=tuple(map(hash_, range(8))), place=(2**53 - 1, hash_(1), 2**53 - 1)),
    ]
    for event in largest:
        event_validation.validate_event(event, held.community_id)
        assert len(event.encode()) <= UNKNOWN_BYTES
    wide = added(held, MAX, PAGE, name="\x01" * 64)
    assert len(wide.encode()) <= UNKNOWN_BYTES
    content = statements.device_removed(
        held.community_id, ANNA, FIRST, NORA.node_id, tuple(map(hash_, range(8))), "\x01" * 64
    )
    longest = act(held, MAX, statements.DEVICE_REMOVED, content, (2**53 - 1, hash_(1), 2**53 - 1))
    assert len(longest.encode()) <= UNKNOWN_BYTES


@pytest.mark.req("PERSON-3")
def test_a_removed_device_never_comes_back_and_keeps_its_owner() -> None:
    held = with_page(anna())
    out = with_events(held, removed(held, MAX, NORA))
    out = with_events(out, removed(out, MAX, PAGE))
    again = with_events(out, added(out, MAX, PAGE))
    assert keys(out) == keys(again) == [MAX.node_id]
    assert again.owner(NORA.node_id) == ANNA
    assert not again.is_device(NORA.node_id, ANNA)
    person = again.person(ANNA)
    assert person is not None
    assert {one.key for one in person.former} == {NORA.node_id, PAGE.node_id}


@pytest.mark.req("PERSON-41")
def test_a_key_of_a_removed_page_is_known_and_added_no_more() -> None:
    held = with_events(anna(), added(anna(), MAX, PAGE))
    assert not held.is_removed_device(PAGE.node_id)
    after = with_events(held, removed(held, MAX, PAGE))
    assert after.is_removed_device(PAGE.node_id)
    author = CommunityAuthor(after, MAX)
    about: tuple[str, DeviceKind, str] = (PAGE.node_id, "browser", "again")
    with pytest.raises(HearthNetError) as refused:
        author.add_page(ANNA, FIRST, about, "", NOW)
    assert refused.value.code == "revoked"
    # A later epoch that leaves a page out ends it, too; a node that is removed is no page.
    left_out = with_events(held, keyed(held, MAX, key=SECOND, epoch=2, stay=(MAX, NORA)))
    assert left_out.is_removed_device(PAGE.node_id)
    kept = with_events(held, keyed(held, MAX, key=SECOND, epoch=2, stay=(MAX, NORA, PAGE)))
    assert not kept.is_removed_device(PAGE.node_id)
    without = with_events(held, removed(held, MAX, NORA))
    assert not without.is_removed_device(NORA.node_id)


@pytest.mark.req("PERSON-40")
def test_a_page_is_added_by_its_own_signature_and_the_person_key() -> None:
    held = anna()
    about: tuple[str, DeviceKind, str] = (PAGE.node_id, "browser", "Firefox")
    offered = statements.offered_device(held.community_id, ANNA, FIRST, *about)
    consent = statements.consented(held.community_id, offered, PAGE).device_signature
    event = CommunityAuthor(held, MAX).add_page(ANNA, FIRST, about, consent, NOW)
    assert with_events(held, event).is_device(PAGE.node_id, ANNA)
    other = statements.consented(held.community_id, offered, PHONE).device_signature
    with pytest.raises(HearthNetError) as refused:
        CommunityAuthor(held, MAX).add_page(ANNA, FIRST, about, other, NOW)
    assert refused.value.code == "invalid_signature"


@pytest.mark.req("PERSON-4")
def test_a_removed_node_is_out_of_the_community_whoever_carries_it() -> None:
    for author in (SAM, MAX, NORA):
        held = anna()
        out = with_events(held, removed(held, author, NORA))
        assert out.is_revoked(NORA.node_id)
        assert out.level(NORA.node_id) == "unknown"
        assert out.flaw(out.events[-1]) == ""
    assert with_events(anna(), removed(anna(), SAM, MAX, key=PAPER)).is_revoked(MAX.node_id)


@pytest.mark.req("PERSON-4")
def test_a_removal_counts_as_the_departure_of_the_node_up_to_the_given_events() -> None:
    held = with_events(anna(), invited(anna(), NORA))
    held = with_events(held, asked(held, EVE))
    known = tuple(tip.hash for tip in held.history.tips[NORA.node_id])
    held = with_events(held, admitted(held, NORA, held.events[-1]))
    assert held.member(EVE.node_id) is not None
    assert with_events(held, removed(held, MAX, NORA)).member(EVE.node_id) is not None
    assert with_events(held, removed(held, MAX, NORA, known=known)).member(EVE.node_id) is None


@pytest.mark.req("PERSON-4")
def test_a_person_removes_neither_nodes_of_others_nor_strangers() -> None:
    held = settled(anna(), SAM, paper=OTHER_PAPER, key=SECOND)
    for event in (
        removed(held, MAX, SAM),
        removed(held, MAX, TILDA),
        removed(held, MAX, PAGE),
        removed(held, MAX, NORA, key=SECOND),
        removed(held, MAX, NORA, paper=OTHER_PAPER, key=SECOND),
        removed(held, MAX, NORA, key=THIEF_KEY),
    ):
        after = with_events(held, event)
        assert after.flaw(event)
        assert after.members == held.members
        assert after.persons == held.persons


@pytest.mark.req("PERSON-4", "ATTACK-49")
def test_an_old_removal_repeated_after_a_return_puts_nobody_out() -> None:
    """The person's computer was taken in anew; somebody carries the old statement once more."""
    held = anna()
    event = removed(held, MAX, NORA)
    out = with_events(held, event)
    back = _invited_back(out)
    assert back.member(NORA.node_id) is not None
    content = event.content
    assert isinstance(content, statements.DeviceRemoved)
    repeated = act(back, SAM, statements.DEVICE_REMOVED, content)
    after = with_events(back, repeated)
    assert after.member(NORA.node_id) is not None
    assert "carried out before" in after.flaw(repeated)
    assert not after.is_device(NORA.node_id, ANNA)


def _invited_back(held: Roster) -> Roster:
    held = with_events(held, invited(held, FOUNDER, invitee=NORA.node_id))
    held = with_events(held, asked(held, NORA))
    return with_events(held, admitted(held, FOUNDER, held.events[-1]))


@pytest.mark.req("PERSON-5", "ATTACK-49")
def test_a_new_epoch_names_what_stays_of_all_that_the_old_key_signed() -> None:
    held = with_page(anna())
    new = with_events(held, keyed(held, MAX, key=SECOND, epoch=2, stay=(MAX, PAGE)))
    assert keys(new) == [MAX.node_id, PAGE.node_id]
    person = new.person(ANNA)
    assert person is not None
    assert (person.epoch, person.key) == (2, SECOND.node_id)
    late = with_events(new, added(new, MAX, PHONE))
    assert keys(late) == keys(new)
    early_one = added(new, MAX, PHONE, place=early(new, MAX, 1))
    assert keys(with_events(new, early_one)) == keys(new)
    by_new = with_events(new, added(new, MAX, PHONE, key=SECOND))
    assert by_new.is_device(PHONE.node_id, ANNA)


@pytest.mark.req("PERSON-5")
def test_each_later_epoch_has_to_keep_a_device() -> None:
    held = anna()
    second = with_events(held, keyed(held, MAX, key=SECOND, epoch=2, stay=(MAX,)))
    third = with_events(second, keyed(second, MAX, key=THIEF_KEY, epoch=3, stay=(MAX, NORA)))
    assert keys(third) == [MAX.node_id]
    same = with_events(second, keyed(second, MAX, key=FIRST, epoch=3, stay=(MAX,)))
    assert keys(same) == [MAX.node_id]
    assert keys(with_events(same, added(same, MAX, PHONE, key=FIRST))) == [MAX.node_id]


@pytest.mark.req("PERSON-5", "ATTACK-49")
def test_what_a_thief_of_the_person_key_removed_comes_back_by_the_recovery_key() -> None:
    """The thief has the node of Nora, so the person key, and puts out the other one."""
    held = anna()
    robbed = with_events(held, removed(held, NORA, MAX, known=()))
    assert robbed.is_revoked(MAX.node_id)
    saved = with_events(robbed, keyed(robbed, SAM, key=SECOND, epoch=2, stay=(MAX,)))
    assert saved.member(MAX.node_id) is not None
    assert keys(saved) == [MAX.node_id]
    out = with_events(saved, removed(saved, MAX, NORA, key=PAPER))
    assert out.is_revoked(NORA.node_id)
    assert out.owner(NORA.node_id) == ANNA
    again = with_events(out, removed(out, SAM, NORA, key=FIRST, known=()))
    assert "a later key" in again.flaw(again.events[-1])


@pytest.mark.req("PERSON-5")
def test_former_devices_of_an_old_key_are_confirmed_by_the_new_one() -> None:
    """Else a thief could make nodes of others former devices of the person."""
    held = with_events(anna(), removed(anna(), MAX, NORA))
    new = with_events(held, keyed(held, MAX, key=SECOND, epoch=2, stay=(MAX,)))
    assert new.owner(NORA.node_id) == NORA.node_id
    confirmed = with_events(new, removed(new, MAX, NORA, key=SECOND))
    assert confirmed.owner(NORA.node_id) == ANNA


@pytest.mark.req("PERSON-5")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_keys_of_one_epoch_the_same_counts_everywhere(order: tuple[int, int]) -> None:
    held = town()
    both = [keyed(held, MAX), keyed(held, NORA, key=SECOND)]
    for at in order:
        held = with_events(held, both[at])
    person = held.person(ANNA)
    assert person is not None
    assert person.key == min(FIRST.node_id, SECOND.node_id)
    loser = next(one for one in both if one.data["key"] != person.key)
    assert held.flaw(loser) == "that epoch of the person has another key"
    winner = FIRST if person.key == FIRST.node_id else SECOND
    other = SECOND if winner is FIRST else FIRST
    assert keys(with_events(held, added(held, MAX, key=winner))) == [MAX.node_id]
    assert keys(with_events(held, added(held, MAX, key=other))) == []


@pytest.mark.req("PERSON-6")
def test_a_node_is_of_the_first_person_in_its_chain() -> None:
    held = with_events(anna(), keyed(anna(), SAM, OTHER_PAPER, THIEF_KEY))
    second = added(held, NORA, paper=OTHER_PAPER, key=THIEF_KEY)
    after = with_events(held, second)
    assert after.flaw(second) == "the device is another person's"
    assert after.owner(NORA.node_id) == ANNA
    assert keys(after) == keys(held)
    out = removed(after, SAM, NORA, OTHER_PAPER, THIEF_KEY)
    assert with_events(after, out).member(NORA.node_id) is not None


@pytest.mark.req("PERSON-6", "ATTACK-49")
def test_a_claim_dated_back_by_who_stole_a_node_gains_nothing() -> None:
    """It forks the node's chain: nobody can see which was first, until members name the true branch."""
    held = with_events(anna(), keyed(anna(), SAM, OTHER_PAPER, THIEF_KEY))
    true_end = tuple(tip.hash for tip in held.history.tips[NORA.node_id])
    sequence, _, _ = held.next(NORA.node_id)
    back = added(held, NORA, paper=OTHER_PAPER, key=THIEF_KEY, place=early(held, NORA, sequence - 2))
    stolen = with_events(held, back)
    assert stolen.owner(NORA.node_id) == NORA.node_id
    assert not stolen.is_device(NORA.node_id, ANNA)
    assert not stolen.is_device(NORA.node_id, THIEF)
    kept = removed(stolen, SAM, NORA, OTHER_PAPER, THIEF_KEY, known=(back.hash,))
    by_thief = with_events(stolen, kept)
    assert by_thief.owner(NORA.node_id) == NORA.node_id
    for held in (stolen, by_thief):
        out = with_events(held, removal(held, QUINN, NORA, SAM, UMA, known=true_end))
        assert out.owner(NORA.node_id) == ANNA
        assert out.flaw(back) == "the node is no member"


@pytest.mark.req("PERSON-6", "ATTACK-49")
def test_who_stole_a_node_cannot_make_it_leave_before_it_was_the_person_s() -> None:
    held = with_events(anna(), keyed(anna(), SAM, OTHER_PAPER, THIEF_KEY))
    sequence, _, _ = held.next(NORA.node_id)
    back = added(held, NORA, paper=OTHER_PAPER, key=THIEF_KEY, place=early(held, NORA, sequence - 2))
    held = with_events(held, back)
    left = removal(held, NORA, NORA, place=(back.sequence + 1, back.hash, back.lamport + 1), known=())
    held = with_events(held, left)
    assert held.is_revoked(NORA.node_id)
    assert held.owner(NORA.node_id) == NORA.node_id


@pytest.mark.req("PERSON-6")
def test_other_devices_are_of_the_person_who_was_first() -> None:
    held = with_page(with_events(anna(), keyed(anna(), SAM, OTHER_PAPER, THIEF_KEY)))
    second = added(held, SAM, PAGE, OTHER_PAPER, THIEF_KEY)
    after = with_events(held, second)
    assert after.is_device(PAGE.node_id, ANNA)
    assert after.flaw(second) == "the device is another person's"
    of_node = added(after, MAX, TILDA)
    after = with_events(after, of_node)
    assert "is a node's" in after.flaw(of_node)
    assert not with_events(after, removed(after, MAX, TILDA)).is_revoked(TILDA.node_id)


@pytest.mark.req("PERSON-6")
def test_a_stranger_and_a_revoked_node_add_themselves_to_nobody() -> None:
    held = with_events(anna(), invited(anna(), FOUNDER))
    held = with_events(held, asked(held, EVE, KEY))
    stranger = added(held, EVE)
    held = with_events(held, stranger)
    assert held.flaw(stranger) == "the node is no member"
    held = with_events(held, removal(held, ROOT, SAM))
    out = added(held, SAM)
    held = with_events(held, out)
    assert held.flaw(out) == "the node is no member"
    assert keys(held) == [MAX.node_id, NORA.node_id]


@pytest.mark.req("PERSON-3")
def test_a_node_that_members_put_out_is_no_device_and_keeps_its_owner() -> None:
    held = with_events(anna(), removal(anna(), QUINN, NORA, SAM, UMA))
    assert keys(held) == [MAX.node_id]
    assert held.owner(NORA.node_id) == ANNA


@pytest.mark.req("PERSON-7")
def test_a_person_has_at_most_24_devices() -> None:
    held = anna()
    for number in range(MAX_DEVICES):
        held = with_events(held, added(held, MAX, Identity(bytes([number, 2] * 16))))
    assert len(keys(held)) == MAX_DEVICES
    last = Identity(bytes([MAX_DEVICES - 1, 2] * 16))
    assert not held.is_device(last.node_id, ANNA)
    held = with_events(held, removed(held, MAX, Identity(bytes([0, 2] * 16))))
    assert not held.is_device(last.node_id, ANNA)
    assert len(keys(with_events(held, removed(held, MAX, NORA)))) == MAX_DEVICES


@pytest.mark.req("PERSON-2")
def test_a_lamport_far_ahead_gives_a_person_nothing() -> None:
    held = anna()
    sequence, previous, lamport = held.next(MAX.node_id)
    far = keyed(held, MAX, key=SECOND, epoch=2, place=(sequence, previous, lamport + 2_000_000))
    after = with_events(held, far)
    assert "far beyond" in after.flaw(far)
    assert keys(after) == keys(held)


@pytest.mark.req("PERSON-4")
def test_a_removal_acts_before_its_place_is_there() -> None:
    held = anna()
    later = with_events(held, invited(held, NORA))
    event = removed(later, MAX, NORA)
    shown, counting = pending_removals.without_revoked(held, [event])
    assert counting == [event]
    assert shown.is_revoked(NORA.node_id)
    assert keys(shown) == [MAX.node_id]
    assert events.co_signatures(event) == 2


@pytest.mark.req("PERSON-1", "PERSON-3")
def test_a_member_acts_for_its_person() -> None:
    held = with_events(town(), CommunityAuthor(town(), MAX).key_person(PAPER, FIRST, NOW))
    held = with_events(held, CommunityAuthor(held, MAX).add_node(ANNA, FIRST, "Max", NOW))
    offered = statements.offered_device(held.community_id, ANNA, FIRST, PAGE.node_id, "browser", "Page")
    signed = statements.consented(held.community_id, offered, PAGE)
    held = with_events(held, CommunityAuthor(held, SAM).add_device(signed, NOW))
    assert keys(held) == [MAX.node_id, PAGE.node_id]
    held = with_events(held, CommunityAuthor(held, MAX).key_person(PAPER, SECOND, NOW, (MAX.node_id,)))
    person = held.person(ANNA)
    assert person is not None
    assert (person.epoch, person.key, keys(held)) == (2, SECOND.node_id, [MAX.node_id])
    held = with_events(held, CommunityAuthor(held, SAM).remove_device(ANNA, PAPER, MAX.node_id, "", NOW))
    assert held.is_revoked(MAX.node_id)
    assert held.owner(MAX.node_id) == ANNA


@pytest.mark.req("PERSON-3", "PERSON-7")
def test_a_member_is_told_what_would_not_count() -> None:
    held = anna()

    def code(make: Callable[[CommunityAuthor], CommunityEvent]) -> str:
        with pytest.raises(HearthNetError) as caught:
            make(CommunityAuthor(held, MAX))
        return caught.value.code

    assert code(lambda one: one.remove_device(ANNA, FIRST, SAM.node_id, "", NOW)) == "not_found"
    assert code(lambda one: one.remove_device(ANNA, SECOND, NORA.node_id, "", NOW)) == "unauthorized"
    assert code(lambda one: one.add_node(ANNA, SECOND, "Max", NOW)) == "unauthorized"
    for number in range(MAX_DEVICES - 2):
        held = with_events(held, added(held, MAX, Identity(bytes([number, 3] * 16))))
    offered = statements.offered_device(held.community_id, ANNA, FIRST, PHONE.node_id, "phone", "x")
    signed = statements.consented(held.community_id, offered, PHONE)
    assert code(lambda one: one.add_device(signed, NOW)) == "capacity_exceeded"


@pytest.mark.req("PERSON-4")
def test_a_roster_sealed_before_persons_were_known_loses_removed_nodes() -> None:
    """The version before kept a removal as an event of an unknown kind, and the node as a member."""
    held = anna()
    out = with_events(held, removed(held, MAX, NORA))
    before = msgspec.structs.replace(
        held, events=out.events, version=out.version, head_lamport=out.head_lamport
    )
    sealed = signed_document.sign(msgspec.structs.replace(before, signed_by=SAM.node_id), SAM, roster.PURPOSE)
    assert sealed.level(NORA.node_id) == "member"
    loaded = roster.decode(roster.encode(sealed), SAM.node_id)
    assert loaded.is_revoked(NORA.node_id)
    assert loaded.level(NORA.node_id) == "unknown"


def refusal(event: CommunityEvent) -> str:
    """The code with which the event is not held."""
    try:
        event_validation.validate_event(event, event.community_id)
    except HearthNetError as error:
        return error.code
    return ""


def hash_(number: int) -> str:
    """Any hash."""
    return f"blake3:{number:064x}"


def _chained(held: Roster, author: Identity, contents: list[tuple[str, statements.Statement]]) -> Roster:
    """`held` with a chain of events of `author` that carry these statements, whether they count or not."""
    sequence, previous, lamport = held.next(author.node_id)
    made: list[CommunityEvent] = []
    for event_type, content in contents:
        number = len(made)
        made.append(act(held, author, event_type, content, (sequence + number, previous, lamport + number)))
        previous = made[-1].hash
    return roster.merge(held, made)


def _claims_and_removals(held: Roster, number: int) -> list[tuple[str, statements.Statement]]:
    """A node that claims itself and removes itself, over and over."""
    community = held.community_id
    found: list[tuple[str, statements.Statement]] = [
        (statements.KEYED, statements.keyed(community, OTHER_PAPER, 1, THIEF_KEY.node_id))
    ]
    for count in range(number):
        offered = statements.offered_device(community, THIEF, THIEF_KEY, MAX.node_id, "node", f"{count}")
        found.append((statements.DEVICE_ADDED, statements.consented(community, offered, MAX)))
    for count in range(number):
        out = statements.device_removed(community, THIEF, OTHER_PAPER, MAX.node_id, (), f"{count}")
        found.append((statements.DEVICE_REMOVED, out))
    return found


def _epochs_and_removals(held: Roster, number: int) -> list[tuple[str, statements.Statement]]:
    """A phone that one epoch of many keeps, removed over and over by the old key and by the recovery key."""
    community, found = held.community_id, list[tuple[str, statements.Statement]]()
    for epoch in range(1, number + 1):
        key = THIEF_KEY if epoch == 1 else Identity.generate()
        stay = (PHONE.node_id,) if epoch == number else ()
        found.append((statements.KEYED, statements.keyed(community, OTHER_PAPER, epoch, key.node_id, stay)))
    offered = statements.offered_device(community, THIEF, THIEF_KEY, PHONE.node_id, "phone", "x")
    found.append((statements.DEVICE_ADDED, statements.consented(community, offered, PHONE)))
    for signer in (THIEF_KEY, OTHER_PAPER):
        for count in range(number):
            out = statements.device_removed(community, THIEF, signer, PHONE.node_id, (), f"{count}")
            found.append((statements.DEVICE_REMOVED, out))
    return found


@pytest.mark.req("ATTACK-36")
@pytest.mark.parametrize(("make", "number"), [(_claims_and_removals, 150), (_epochs_and_removals, 400)])
def test_the_time_for_statements_grows_with_their_number(
    make: Callable[[Roster, int], list[tuple[str, statements.Statement]]], number: int
) -> None:
    """Some 300 fit into the room of a plain member at once; found anew for each, that took over a minute."""
    held = _chained(anna(), MAX, make(anna(), number))
    assert len(held.events) > len(anna().events) + 2 * number
    began = time.process_time()
    after = roster.derived(held.history)
    assert time.process_time() - began < 1
    assert after.is_device(NORA.node_id, ANNA)


@pytest.mark.req("PERSON-4", "ATTACK-36")
def test_of_the_removals_of_a_node_by_its_person_eight_are_weighed() -> None:
    """They name other ends each; a repetition of one by anybody takes no place."""
    held = anna()
    first = removed(held, MAX, NORA)
    held = with_events(held, first)
    assert isinstance(first.content, statements.DeviceRemoved)
    for _ in range(MAX_REMOVALS):
        held = with_events(held, act(held, SAM, statements.DEVICE_REMOVED, first.content))
    made = []
    for event in [one for one in held.events if one.author == FOUNDER.node_id][: MAX_REMOVALS + 1]:
        made.append(removed(held, MAX, NORA, known=(event.hash,)))
        held = with_events(held, made[-1])
    flaws = [held.flaw(one) for one in made]
    assert [str(MAX_REMOVALS) in flaw for flaw in flaws] == [False] * (MAX_REMOVALS - 1) + [True] * 2
    assert not held.flaw(first)
    assert held.member(NORA.node_id) is None


@pytest.mark.req("ATTACK-36")
def test_a_flood_of_own_removals_takes_no_round_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    held, made = anna(), list[CommunityEvent]()
    for number in range(6):
        known = () if not number else (held.events[number].hash,)
        made.append(removed(held, MAX, NORA, known=known))
        held = with_events(held, made[-1])
    rounds = list[int]()

    def counted(*arguments: Any) -> RosterReplay:
        rounds.append(1)
        return RosterReplay(*arguments)

    monkeypatch.setattr(reducer, "RosterReplay", counted)
    assert roster.derived(held.history).member(NORA.node_id) is None
    assert len(rounds) == 2


@pytest.mark.req("ATTACK-64")
def test_devices_that_a_thief_adds_and_removes_do_not_fill_a_recovery() -> None:
    """The owner's come first, and the nodes of members are all there."""
    phones = [Identity(number.to_bytes(32, "big")) for number in range(1_000, 1_000 + 3 * MAX_FORMER)]
    held = with_page(anna())
    for device in (NORA, PAGE):
        held = with_events(held, removed(held, MAX, device))
    for phone in phones:
        held = with_events(held, added(held, MAX, phone))
        held = with_events(held, removed(held, MAX, phone))
    person = held.person(ANNA)
    assert person is not None
    former = [one.key for one in person.former]
    listed = [PAGE, *phones[: MAX_FORMER - 1], *phones[-MAX_FORMER:]]
    assert sorted(former) == sorted(one.node_id for one in (NORA, *listed))
    assert held.owner(NORA.node_id) == ANNA
    signed = CommunityAuthor(held, PAPER).recovered(SECOND, ())
    assert len(signed) == 1 + len(former)


@pytest.mark.req("PERSON-2", "PERSON-33")
def test_what_is_no_statement_and_who_is_no_person_is_refused() -> None:
    held = town()
    with pytest.raises(HearthNetError, match="no statement of a person") as refused:
        CommunityAuthor(held, FOUNDER).carry(statements.KEYED, {"person": 1}, NOW)
    assert refused.value.code == "bad_request"
    with pytest.raises(HearthNetError, match="has this recovery key") as refused:
        CommunityAuthor(held, PAPER).recovered(SECOND, ())
    assert refused.value.code == "not_found"
