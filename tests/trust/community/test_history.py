"""What is held, what has its place, and what others lack (docs/decisions/0040)."""

from __future__ import annotations

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.community import commands, event_validation, events, roster
from hearthnet.trust.community.events import Admitted, CommunityEvent, Invited, PolicyUpdated
from hearthnet.trust.community.history import History
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.eventlog.chain_ends import MAX_ENDS
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, NOW, act, take_in
from tests.trust.town import (
    EVE,
    FOUNDER,
    MAX,
    NORA,
    QUINN,
    ROOT,
    SAM,
    TILDA,
    UMA,
    raising,
    removal,
    town,
    with_events,
)

KEYS = [Identity(number.to_bytes(4, "big") * 8) for number in range(1, 70)]


def invited(
    held: Roster, by: Identity, key: Identity, place: tuple[int, str, int] | None = None
) -> CommunityEvent:
    """An invite."""
    content = events.invited(held.community_id, by.node_id, key, display_name="", expires_at=NOW + DAY_MS)
    return act(held, by, events.INVITED, content, place)


def refused(held: Roster, *events: CommunityEvent) -> None:
    """None of the events is kept, nor waited for."""
    assert roster.merge(held, events) is held
    assert held.missing_before(events) == ()


@pytest.mark.req("COMM-4")
def test_an_event_waits_for_what_it_builds_on() -> None:
    first = invited(town(), MAX, KEYS[0])
    held = with_events(town(), first)
    second = invited(held, MAX, KEYS[1])
    assert town().missing_before([second]) == (second,)
    assert town().missing_before([second, first]) == ()
    assert [town().history.has_place(one) for one in (first, second)] == [True, False]
    assert held.history.has_place(second)
    assert roster.merge(town(), [second]) is town()
    assert with_events(town(), second, first) == with_events(with_events(town(), first), second)


@pytest.mark.req("COMM-4")
def test_whatever_an_event_names_comes_before_it() -> None:
    inviting = invited(town(), MAX, KEYS[0])
    held = with_events(town(), inviting)
    withdrawn = commands.CommunityAuthor(held, TILDA).withdraw(inviting.event_id, NOW)
    removing = removal(held, QUINN, MAX, SAM, UMA)
    ruling = commands.CommunityAuthor(held, ROOT).set_policy(
        roster.Policy(default_member_can_invite=False), NOW
    )
    for event in (withdrawn, removing, ruling):
        assert town().missing_before([event]) == (event,)
        assert roster.merge(town(), [event]) is town()
        early = msgspec.structs.replace(event, lamport=inviting.lamport)
        author = {one.node_id: one for one in (TILDA, QUINN, ROOT)}[event.author]
        refused(held, signed_document.sign(early, author, events.PURPOSE))
    unknown = Admitted(joined_event_hash="blake3:" + "0" * 64, node_id=EVE.node_id)
    event = act(town(), FOUNDER, events.ADMITTED, unknown)
    assert town().missing_before([event]) == (event,)
    heads: dict[str, tuple[str, ...]] = {MAX.node_id: (inviting.hash,)}
    event = act(town(), ROOT, events.POLICY, PolicyUpdated(policy=roster.Policy(), heads=heads))
    assert town().missing_before([event]) == (event,)


@pytest.mark.req("COMM-1", "COMM-4")
def test_a_chain_is_its_authors_and_has_no_gap() -> None:
    sequence, previous, lamport = town().next(MAX.node_id)
    other = town().history.tips[NORA.node_id][-1]
    for place in (
        (sequence + 1, previous, lamport),
        (sequence, other.hash, lamport),
        (sequence, previous, 1),
    ):
        refused(town(), invited(town(), MAX, KEYS[0], place))
    assert with_events(town(), invited(town(), MAX, KEYS[0], (sequence, previous, lamport + 5)))


@pytest.mark.req("COMM-3")
def test_only_an_invite_under_its_own_key_makes_a_stranger_an_author() -> None:
    inviting = invited(town(), MAX, KEYS[0])
    held = with_events(town(), inviting, invited(town(), NORA, KEYS[1]))
    for event_hash, key in (
        (inviting.hash, KEYS[1]),
        (inviting.hash, KEYS[2]),
        (town().events[0].hash, KEYS[0]),
    ):
        bare = events.Joined(
            invite_event_hash=event_hash,
            invite_key=key.node_id,
            member=events.entry_of(EVE, "eve"),
            invite_signature="",
        )
        signature = key.sign(events.INVITE_PURPOSE, events.request(held.community_id, bare))
        content = msgspec.structs.replace(bare, invite_signature=ids.b64(signature))
        refused(held, act(held, EVE, events.JOINED, content))
    stranger = act(held, EVE, events.INVITED, _own_invite(held, EVE))
    assert roster.merge(held, [stranger]) is held


def _own_invite(held: Roster, by: Identity) -> Invited:
    return events.invited(held.community_id, by.node_id, KEYS[3], display_name="", expires_at=NOW + DAY_MS)


@pytest.mark.req("COMM-1", "COMM-4")
def test_what_does_not_hold_is_left_out_and_the_rest_kept() -> None:
    good = invited(town(), MAX, KEYS[0])
    forged = msgspec.structs.replace(invited(town(), NORA, KEYS[1]), wall_clock="2026-11-21T20:15:01Z")
    malformed = act(town(), TILDA, events.PROMOTED, raising(MAX))
    malformed = signed_document.sign(msgspec.structs.replace(malformed, data={}), TILDA, events.PURPOSE)
    unspeakable = msgspec.structs.replace(good, data={"x": 2**60})
    foreign = roster.create(EVE, roster.member(MAX, "anchor", "x", NOW), "Eschenweg", NOW).events[0]
    held = roster.merge(town(), [forged, malformed, unspeakable, foreign, good])
    assert held == with_events(town(), good)
    refused(held, forged, malformed, unspeakable)


@pytest.mark.req("COMM-4")
def test_known_events_cost_no_check_of_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    real = event_validation.validate_event

    def counting(event: CommunityEvent, community_id: str) -> None:
        checked.append(event)
        real(event, community_id)

    monkeypatch.setattr(event_validation, "validate_event", counting)
    new = invited(town(), MAX, KEYS[0])
    again = [events.decode(event.encode()) for event in town().events]
    with_events(town(), *again, new)
    assert checked == [new]
    held = roster.decode(roster.encode(roster.seal(town(), FOUNDER)), FOUNDER.node_id)
    with_events(held, new)
    assert checked == [new, new]


@pytest.mark.req("COMM-4")
def test_heads_say_what_one_lacks() -> None:
    held = with_events(town(), invited(town(), MAX, KEYS[0]), invited(town(), NORA, KEYS[1]))
    newest = held.events[-2:]
    assert [event.hash for event in held.missing(town().heads())] == [event.hash for event in newest]
    assert town().missing(held.heads()) == ()
    assert town().lacks(held.heads())
    assert not held.lacks(town().heads())
    assert held.missing({}) == held.events
    assert held.missing({EVE.node_id: [f"1:{newest[0].hash}"]}) == held.events
    first = town().heads()[MAX.node_id]
    assert first == [f"1:{town().history.tips[MAX.node_id][0].hash}"]


@pytest.mark.req("COMM-4")
def test_two_events_in_one_place_are_found_out_and_spread() -> None:
    """An author who tells two nodes different things, as many as it likes of each."""
    one = with_events(town(), invited(town(), MAX, KEYS[0]))
    one = with_events(one, invited(one, MAX, KEYS[1]))
    other = with_events(town(), invited(town(), MAX, KEYS[2]))
    assert one.lacks(other.heads())
    assert other.lacks(one.heads())
    assert other.missing(one.heads()) == (), "who is taken to be ahead is asked first"
    other_then = roster.merge(other, one.missing(other.heads()))
    one_then = roster.merge(one, other_then.missing(one.heads()))
    assert one_then == other_then
    assert one_then.version == one.version + 1
    assert len(one_then.heads()[MAX.node_id]) == 2
    assert one_then.next(MAX.node_id)[0] == 4, "the longest chain goes on"
    assert len(one_then.invites) == 3, "both count until somebody says what it knew"
    fork = other.events[-1]
    longer = f"9:blake3:{'0' * 64}"
    heads = {**one_then.heads(), MAX.node_id: [*one.heads()[MAX.node_id], longer]}
    assert one_then.missing(heads) == (fork,), "what is beyond the ends known here is sent at once"
    assert one_then.missing({**one_then.heads(), MAX.node_id: [longer]}) == ()


@pytest.mark.req("COMM-4")
def test_heads_and_removals_stay_small_however_often_an_author_writes_in_one_place() -> None:
    place = town().next(MAX.node_id)
    held = with_events(town(), *(invited(town(), MAX, key, place) for key in KEYS))
    assert len(held.history.tips[MAX.node_id]) == len(KEYS) > MAX_ENDS
    assert len(held.heads()[MAX.node_id]) == MAX_ENDS
    first = min((one for one in held.events if one.sequence == place[0]), key=lambda one: one.hash)
    assert first.author == MAX.node_id
    last = invited(held, MAX, Identity(bytes([77]) * 32), (place[0] + 1, first.hash, first.lamport + 1))
    held = with_events(held, last)
    assert f"{last.sequence}:{last.hash}" in held.heads()[MAX.node_id], "the longest chain is among them"
    out = commands.CommunityAuthor(held, ROOT).revoke(MAX.node_id, "other", client_id="x", now_ms=NOW)
    assert len(out.data["target_heads"]) == MAX_ENDS
    assert out.data["target_heads"][0] == last.hash
    assert with_events(held, out).is_revoked(MAX.node_id)


@pytest.mark.req("COMM-4")
@pytest.mark.parametrize(
    "head", ["", "1", "0:blake3:" + "0" * 64, "1:blake3:0", "-1:blake3:" + "0" * 64, "x" * 999]
)
def test_malformed_heads_are_a_bad_request(head: str) -> None:
    for ask in (town().lacks, town().missing):
        with pytest.raises(HearthNetError, match="is not a head") as caught:
            ask({MAX.node_id: [head]})
        assert caught.value.code == "bad_request"


@pytest.mark.req("COMM-4")
def test_a_newcomers_chain_begins_with_its_request() -> None:
    held = take_in(town(), MAX, EVE, "eve", NOW)
    assert held.next(EVE.node_id)[0] == 2
    assert held.next(QUINN.node_id)[2] == held.head_lamport + 1
    assert held.next(KEYS[0].node_id) == (1, "", held.head_lamport + 1)


@pytest.mark.req("COMM-4")
def test_an_author_goes_on_after_its_own_highest_lamport() -> None:
    sequence, previous, lamport = town().next(MAX.node_id)
    far = invited(town(), MAX, KEYS[0], (sequence, previous, lamport + 10**9))
    held = with_events(town(), far)
    assert held.next(MAX.node_id) == (sequence + 1, far.hash, far.lamport + 1)
    assert held.next(NORA.node_id)[2] == lamport


@pytest.mark.req("COMM-1")
def test_a_history_needs_its_beginning() -> None:
    empty = History(town().community_id)
    assert empty.extended(town().events[1:]) == (empty, town().events[1:])
    with pytest.raises(HearthNetError, match="nothing founds it") as caught:
        roster.derive(town().community_id, town().events[1:])
    assert caught.value.code == "bad_request"
    assert roster.derive(town().community_id, town().events) == town()
