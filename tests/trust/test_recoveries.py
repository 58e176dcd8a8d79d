"""Recoveries by helpers: what is begun, witnessed and objected to, and what colluding helpers gain."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
import pytest

from hearthnet.bus.session.event_intake import UNKNOWN_BYTES
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import token_form
from hearthnet.trust.community import event_validation, person_statements, roster
from hearthnet.trust.community import recovery_statements as statements
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.person_statements import MAX_DEVICES
from hearthnet.trust.community.persons import Person
from hearthnet.trust.community.recovery_statements import (
    MAX_EPOCHS,
    MAX_WITNESSES,
    RecoveryBegun,
    recovery_id,
)
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import NOW, act
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
    THIRD,
    added,
    begun,
    carried,
    helping,
    keyed,
    keys,
    removed,
    settled,
    witnessed,
)
from tests.trust.town import (
    EVE,
    FOUNDER,
    MAX,
    NORA,
    QUINN,
    SAM,
    TILDA,
    UMA,
    early,
    removal,
    town,
    with_events,
)

ANNA = PAPER.node_id
WITNESSES = (QUINN, SAM, TILDA, UMA)


@functools.cache
def anna() -> Roster:
    """The town, with a person who has Max's node and has named helpers and four witnesses."""
    held = settled(town(), MAX)
    return carried(held, MAX, helping(held, *WITNESSES))


def person(held: Roster) -> Person:
    """Anna, as `held` has her."""
    found = held.person(ANNA)
    assert found is not None
    return found


def present(held: Roster) -> tuple[int, str]:
    """Her epoch and person key."""
    return person(held).epoch, person(held).key


def refused(held: Roster, content: statements.Content, author: Identity = NORA) -> str:
    """The code with which an event with `content` is refused, `flaw` if it is kept and does not count."""
    event = act(held, author, KINDS[type(content)], content)
    try:
        event_validation.validate_event(event, held.community_id)
    except HearthNetError as error:
        assert roster.merge(held, [event]) is held
        return error.code
    return "flaw" if roster.merge(held, [event]).flaw(event) else ""


def word(held: Roster, name: str) -> str:
    """Whether the word of a witness about the recovery `name` would count, `flaw` if not."""
    return refused(held, statements.witnessed(held.community_id, ANNA, name, SAM))


def announced(held: Roster, content: RecoveryBegun) -> tuple[Roster, str]:
    """`held` with the announcement, carried by a helper, and its id."""
    return carried(held, SAM, content), recovery_id(held.community_id, content)


@pytest.mark.req("PERSON-40")
def test_three_witnesses_complete_what_helpers_have_begun() -> None:
    content = begun(anna(), stay=(MAX,))
    held, name = announced(anna(), content)
    (open_,) = person(held).recoveries
    assert (open_.recovery, open_.begun, open_.objected) == (name, content, ())
    assert set(open_.witnesses) == {one.node_id for one in WITNESSES}
    for count, one in enumerate((QUINN, SAM), 1):
        held = with_events(held, CommunityAuthor(held, one).witness(name, NOW))
        assert len(person(held).recoveries[0].witnessed) == count
        assert present(held) == (1, FIRST.node_id)
    held = with_events(held, CommunityAuthor(held, UMA).witness(name, NOW))
    assert present(held) == (2, SECOND.node_id)
    assert person(held).recoveries == ()
    assert keys(held) == [MAX.node_id]
    with pytest.raises(HearthNetError) as late:
        CommunityAuthor(held, TILDA).witness(name, NOW)
    assert late.value.code == "not_found"


@pytest.mark.req("PERSON-40", "ATTACK-80")
def test_new_key_signs_nothing_before_the_recovery_is_completed() -> None:
    content = begun(anna())
    held, _ = announced(anna(), content)
    held = witnessed(held, content, QUINN, SAM)
    for _ in range(2):  # a word that is repeated is one
        held = witnessed(held, content, SAM)
    with pytest.raises(HearthNetError) as early_:
        CommunityAuthor(held, NORA).add_node(ANNA, SECOND, "new", NOW)
    assert early_.value.code == "unauthorized"
    held = witnessed(held, content, TILDA)
    held = with_events(held, CommunityAuthor(held, NORA).add_node(ANNA, SECOND, "new", NOW))
    assert keys(held) == [NORA.node_id]
    held = with_events(held, CommunityAuthor(held, UMA).add_node(ANNA, FIRST, "old", NOW))
    assert keys(held) == [NORA.node_id]


@pytest.mark.req("PERSON-41", "ATTACK-80")
def test_witnesses_sign_nothing_that_a_device_objects_to() -> None:
    held, name = announced(anna(), begun(anna()))
    for stranger in (SAM, NORA, PAGE):
        with pytest.raises(HearthNetError) as none:
            CommunityAuthor(held, stranger).objection(name)
        assert none.value.code == "unauthorized"
    held = carried(held, SAM, CommunityAuthor(held, MAX).objection(name))
    assert person(held).recoveries[0].objected == (MAX.node_id,)
    with pytest.raises(HearthNetError) as refusal:
        CommunityAuthor(held, QUINN).witness(name, NOW)
    assert refusal.value.code == "unauthorized"
    # Of a device that is removed it counts no more, and of a stranger it never did.
    out = with_events(held, removed(held, SAM, MAX))
    assert person(out).recoveries[0].objected == ()
    assert CommunityAuthor(out, QUINN).witness(name, NOW)


@pytest.mark.req("PERSON-41")
def test_browser_of_the_person_objects_with_its_own_key() -> None:
    held, name = announced(with_events(anna(), added(anna(), MAX, PAGE)), begun(anna()))
    held = carried(held, SAM, CommunityAuthor(held, PAGE).objection(name))
    assert person(held).recoveries[0].objected == (PAGE.node_id,)
    with pytest.raises(HearthNetError) as refusal:
        CommunityAuthor(held, QUINN).witness(name, NOW)
    assert refusal.value.code == "unauthorized"


@pytest.mark.req("PERSON-41")
def test_strangers_neither_witness_nor_object() -> None:
    held, name = announced(anna(), begun(anna()))
    with pytest.raises(HearthNetError) as refusal:
        CommunityAuthor(held, NORA).witness(name, NOW)
    assert refusal.value.code == "unauthorized"
    said = statements.witnessed(held.community_id, ANNA, name, NORA)
    assert refused(held, said) == "flaw"
    other = "blake3:" + "0" * 64
    for content in (
        statements.witnessed(held.community_id, ANNA, other, SAM),
        statements.objected(held.community_id, ANNA, other, MAX),
    ):
        assert refused(held, content) == "flaw"
    held = carried(held, NORA, statements.objected(held.community_id, ANNA, name, NORA))
    assert person(held).recoveries[0].objected == ()
    with pytest.raises(HearthNetError) as unknown:
        CommunityAuthor(held, MAX).objection(other)
    assert unknown.value.code == "not_found"


@pytest.mark.req("PERSON-41")
def test_a_witness_signs_for_one_recovery_of_an_epoch() -> None:
    held, first = announced(anna(), begun(anna(), SECOND))
    held, second = announced(held, begun(anna(), THIRD))
    held = with_events(held, CommunityAuthor(held, SAM).witness(first, NOW))
    with pytest.raises(HearthNetError) as refusal:
        CommunityAuthor(held, SAM).witness(second, NOW)
    assert refusal.value.code == "unauthorized"
    assert CommunityAuthor(held, SAM).witness(first, NOW)
    # Were both completed, the same one would count everywhere.
    for one in (begun(anna(), SECOND), begun(anna(), THIRD)):
        held = witnessed(held, one, *WITNESSES)
    assert present(held) == (2, min(SECOND.node_id, THIRD.node_id))


@pytest.mark.req("PERSON-42", "ATTACK-81")
def test_helpers_of_a_thief_are_none() -> None:
    """The thief has the person key and a device; it names helpers, and announces with a key of its own."""
    held, community = anna(), anna().community_id
    mine = helping(held, SAM, UMA, TILDA, key=THIEF_KEY, number=9, paper=OTHER_PAPER)
    assert refused(held, msgspec.structs.replace(mine, person=ANNA)) == "invalid_signature"
    for signer in (THIEF_KEY, FIRST, SHARED_LATER):
        content = begun(held, by=signer)
        assert refused(held, content) == "flaw"
        thief = witnessed(carried(held, SAM, content), content, *WITNESSES)
        assert (present(thief), person(thief).recoveries) == ((1, FIRST.node_id), ())
    forged = msgspec.structs.replace(begun(held, by=THIEF_KEY), helpers=SHARED.node_id)
    assert refused(held, forged) == "invalid_signature"
    for content_ in (
        msgspec.structs.replace(
            statements.witnessed(community, ANNA, "blake3:" + "0" * 64, EVE), key=SAM.node_id
        ),
        msgspec.structs.replace(
            statements.objected(community, ANNA, "blake3:" + "0" * 64, EVE), key=MAX.node_id
        ),
    ):
        assert refused(held, content_) == "invalid_signature"


@pytest.mark.req("PERSON-42", "ATTACK-81")
def test_the_recovery_key_goes_before_what_helpers_do() -> None:
    content = begun(anna(), THIEF_KEY, epoch=1 + MAX_EPOCHS)
    held = witnessed(carried(anna(), SAM, content), content, *WITNESSES)
    assert present(held) == (1 + MAX_EPOCHS, THIEF_KEY.node_id)
    # An epoch above it has it as its past, in which no device stayed; one in between ends it.
    for epoch in (2, 1 + MAX_EPOCHS, 2 + MAX_EPOCHS):
        after = with_events(held, keyed(held, MAX, key=SECOND, epoch=epoch, stay=(MAX,)))
        assert present(after) == (epoch, SECOND.node_id)
        assert keys(after) == ([] if epoch > 1 + MAX_EPOCHS else [MAX.node_id])
    for base in (2, 3):
        assert refused(anna(), begun(anna(), base=base, epoch=4)) == "flaw"


@pytest.mark.req("PERSON-42", "ATTACK-82")
def test_replaced_helpers_begin_nothing_more() -> None:
    """What was completed by them stays; their statement, repeated, names nobody any more."""
    content = begun(anna(), stay=(MAX,))
    held = witnessed(carried(anna(), SAM, content), content, QUINN, SAM, UMA)
    later = helping(held, *WITNESSES, key=SHARED_LATER, number=2, epoch=2)
    held = carried(held, MAX, later)
    assert (present(held), person(held).helpers) == ((2, SECOND.node_id), later)
    again = begun(held, THIRD, epoch=3)
    assert refused(held, again) == "flaw"
    assert word(*announced(held, again)) == "flaw"
    held = witnessed(carried(held, SAM, again), again, *WITNESSES)
    held = carried(held, NORA, helping(held, *WITNESSES))
    assert (present(held), person(held).helpers) == ((2, SECOND.node_id), later)
    with pytest.raises(HearthNetError) as former:
        CommunityAuthor(held, SHARED).begun_recovery(ANNA, THIRD, ())
    assert former.value.code == "unauthorized"
    by_present, removals = CommunityAuthor(held, SHARED_LATER).begun_recovery(ANNA, THIRD, ())
    assert (by_present.base, by_present.epoch, by_present.devices) == (1, 3, (token_form(MAX.node_id),))
    assert removals == ()
    held = witnessed(carried(held, SAM, by_present), by_present, QUINN, SAM, UMA)
    assert present(held) == (3, THIRD.node_id)
    # Below what is there nothing is open, though former helpers have signed it.
    old = carried(held, SAM, begun(held, THIEF_KEY, epoch=2))
    assert (present(old), person(old).recoveries) == ((3, THIRD.node_id), ())


@pytest.mark.req("PERSON-42")
def test_of_two_statements_with_a_number_one_counts() -> None:
    held = carried(anna(), MAX, helping(anna(), *WITNESSES, key=SHARED_LATER))
    counts = min(SHARED.node_id, SHARED_LATER.node_id)
    found = person(held).helpers
    assert found is not None
    assert found.key == counts
    flaws = [held.flaw(one) for one in held.events if one.event_type == statements.HELPERS_NAMED]
    assert sorted(map(bool, flaws)) == [False, True]


@pytest.mark.req("PERSON-42")
def test_helpers_that_are_named_for_nothing_recover_nobody() -> None:
    """So a person without helpers is one who has named a key that nobody has, and no witness."""
    author = CommunityAuthor(anna(), PAPER)
    nobody = author.named_helpers(Identity.generate().node_id, 86_400, ())
    assert (nobody.number, nobody.epoch) == (2, 1)
    held = carried(anna(), MAX, nobody)
    assert refused(held, begun(held)) == "flaw"
    with pytest.raises(HearthNetError) as unknown:
        CommunityAuthor(held, OTHER_PAPER).named_helpers(SHARED.node_id, 86_400, ())
    assert unknown.value.code == "not_found"
    first = CommunityAuthor(settled(town(), MAX), PAPER).named_helpers(SHARED.node_id, 1, (SAM.node_id,))
    assert first.number == 1
    stranger = helping(held, *WITNESSES, paper=OTHER_PAPER)
    held = carried(held, NORA, stranger, begun(held, paper=OTHER_PAPER))
    assert held.person(OTHER_PAPER.node_id) is None


@pytest.mark.req("PERSON-40")
def test_what_was_lost_is_removed_by_the_new_key_afterwards() -> None:
    content, (removal_,) = CommunityAuthor(anna(), SHARED).begun_recovery(ANNA, SECOND, (MAX.node_id,))
    held, _ = announced(anna(), content)
    held = with_events(held, act(held, SAM, person_statements.DEVICE_REMOVED, removal_))
    assert not held.is_revoked(MAX.node_id)
    held = witnessed(held, content, QUINN, SAM, TILDA)
    assert held.is_revoked(MAX.node_id)
    assert held.owner(MAX.node_id) == ANNA


@pytest.mark.req("PERSON-40", "ATTACK-80")
def test_dates_and_places_of_events_gain_nothing() -> None:
    """An announcement that is dated back takes the words of witnesses all the same, and in any order."""
    content = begun(anna())
    place = early(anna(), SAM, 0)
    held = carried(anna(), SAM, content, place=place)
    assert present(held) == (1, FIRST.node_id)
    other = witnessed(anna(), content, QUINN, SAM, UMA)
    assert present(other) == (1, FIRST.node_id)
    both = roster.merge(other, held.events)
    assert present(both) == (2, SECOND.node_id)
    assert roster.merge(held, other.events) == both


@pytest.mark.req("PERSON-42")
def test_a_witness_that_was_put_out_has_one_word_and_no_more() -> None:
    content = begun(anna())
    held = carried(anna(), SAM, content)
    held = with_events(held, removal(held, FOUNDER, SAM, TILDA, QUINN))
    assert held.is_revoked(SAM.node_id)
    held = witnessed(held, content, SAM, QUINN)
    assert present(held) == (1, FIRST.node_id)


@pytest.mark.req("PERSON-2")
def test_statements_fit_earlier_versions_and_their_own_rules() -> None:
    held, community = anna(), anna().community_id
    many = [Identity(bytes([number]) * 32) for number in range(180, 180 + MAX_DEVICES)]
    largest: Sequence[statements.Content] = (
        statements.helpers_named(
            community,
            PAPER,
            SHARED.node_id,
            number=2**53 - 1,
            epoch=2**53 - 1,
            wait_seconds=statements.MAX_WAIT_SECONDS,
            witnesses=tuple(one.node_id for one in many[:MAX_WITNESSES]),
        ),
        begun(held, base=2**53 - 2, epoch=2**53 - 1, stay=tuple(many)),
    )
    for content in largest:
        event = act(held, MAX, KINDS[type(content)], content, (2**53 - 1, "blake3:" + "0" * 64, 2**53 - 1))
        event_validation.validate_event(event, community)
        assert len(event.encode()) <= UNKNOWN_BYTES
    twice = helping(held, SAM, SAM)
    for content in (
        twice,
        helping(held, SAM, key=PAPER),
        begun(held, base=1, epoch=1),
        begun(held, base=1, epoch=2 + MAX_EPOCHS),
        begun(held, SHARED),
        begun(held, PAPER),
        begun(held, by=PAPER),
        begun(held, stay=(PHONE, PHONE)),
        statements.witnessed(community, ANNA, "blake3:" + "0" * 64, PAPER),
        statements.objected(community, ANNA, "blake3:" + "0" * 64, PAPER),
    ):
        assert refused(held, content) == "bad_request"


@pytest.mark.req("PERSON-47")
def test_code_is_of_one_node_person_and_community() -> None:
    community, node = anna().community_id, NORA.node_id
    code = statements.share_code(community, ANNA, node)
    assert (len(code), code.isalnum(), code.islower()) == (12, True, True)
    others = ((ANNA, ANNA, node), (community, node, node), (community, ANNA, SAM.node_id))
    assert code not in {statements.share_code(*other) for other in others}
