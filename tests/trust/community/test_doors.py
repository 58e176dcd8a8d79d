"""The doors of a community: who opens and closes them, and what ends them (docs/decisions/0221)."""

from __future__ import annotations

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import doors, event_validation, pending_removals, roster
from hearthnet.trust.community.commands import CommunityAuthor
from hearthnet.trust.community.doors import DoorClosed, DoorOpened
from hearthnet.trust.community.events import CommunityEvent
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from tests.helpers.members import NOW, act, raise_to, take_in
from tests.trust.town import (
    EVE,
    FOUNDER,
    MAX,
    NORA,
    QUINN,
    ROOT,
    SAM,
    TILDA,
    early,
    flaw,
    promoted,
    removal,
    town,
    with_events,
)

CERTIFICATE = Identity(bytes([77]) * 32).node_id
Place = tuple[int, str, int] | None


def opened(
    held: Roster,
    by: Identity,
    address: str = "kitchen:7422",
    place: Place = None,
    route: str = "kitchen:7423",
    key: str = CERTIFICATE,
) -> CommunityEvent:
    """A door, whether allowed or not."""
    return act(held, by, doors.OPENED, DoorOpened(address=address, route=route, key=key), place)


def closed(held: Roster, by: Identity, of: Identity) -> CommunityEvent:
    """The end of a door, whether allowed or not."""
    return act(held, by, doors.CLOSED, DoorClosed(node_id=of.node_id))


def open_at(held: Roster) -> list[tuple[str, str]]:
    """The nodes with open doors and their addresses."""
    return [(one.node_id, one.address) for one in held.doors]


def with_door(by: Identity = TILDA) -> Roster:
    """The town with one open door."""
    return with_events(town(), opened(town(), by))


@pytest.mark.req("DOOR-1")
def test_a_trusted_member_opens_its_own_door_and_moves_it() -> None:
    held = with_events(with_door(), opened(with_door(), QUINN, "attic:7422"))
    assert open_at(held) == [(TILDA.node_id, "kitchen:7422"), (QUINN.node_id, "attic:7422")]
    (door, _) = held.doors
    assert (door.route, door.key, door.opened_at) == ("kitchen:7423", CERTIFICATE, held.events[-1].wall_clock)
    moved = with_events(held, opened(held, TILDA, "[fd00::1]:7422"))
    assert open_at(moved) == [(TILDA.node_id, "[fd00::1]:7422"), (QUINN.node_id, "attic:7422")]


@pytest.mark.req("DOOR-1", "ATTACK-124")
@pytest.mark.parametrize("by", [MAX, ROOT], ids=["member", "root"])
def test_a_door_of_another_than_a_trusted_node_does_not_count(by: Identity) -> None:
    event = opened(town(), by)
    assert "takes level trusted" in flaw(town(), event)
    assert with_events(town(), event).doors == ()


@pytest.mark.req("DOOR-1")
def test_a_community_has_so_many_open_doors_and_no_more() -> None:
    held = town()
    for number in range(doors.MAX_DOORS):
        one = Identity(bytes([150 + number]) * 32)
        held = raise_to(take_in(held, FOUNDER, one, f"home {number}", NOW), FOUNDER, one, "trusted", NOW)
        held = with_events(held, opened(held, one))
    assert "close some" in flaw(held, opened(held, TILDA))
    assert flaw(held, opened(held, one, "attic:7422")) == "", "a door that moves takes no other place"
    fewer = with_events(held, closed(held, one, one))
    assert flaw(fewer, opened(fewer, TILDA)) == ""


@pytest.mark.req("DOOR-2", "ATTACK-124")
@pytest.mark.parametrize(
    ("by", "allowed"), [(TILDA, True), (QUINN, True), (ROOT, True), (NORA, False), (EVE, False)]
)
def test_a_door_is_closed_by_its_node_or_a_trusted_one(by: Identity, allowed: bool) -> None:
    held = with_door()
    event = closed(held, by, TILDA)
    after = roster.merge(held, [event])
    assert (after.doors == ()) is allowed
    if allowed:
        assert after.flaw(event) == ""
        assert "no such open door" in flaw(after, closed(after, by, TILDA))


@pytest.mark.req("DOOR-2")
def test_what_ends_the_trust_in_a_node_closes_its_door() -> None:
    held = with_door()
    for event in (
        removal(held, ROOT, TILDA),
        removal(held, ROOT, TILDA, level="member"),
        removal(held, TILDA, TILDA),
    ):
        gone = with_events(held, event)
        assert (gone.flaw(event), gone.doors) == ("", ())
        assert not gone.folded.doors.by_node, "nor is it open again once the node comes back"
    lowered = with_events(held, removal(held, ROOT, TILDA, level="member"))
    raised = with_events(lowered, promoted(lowered, FOUNDER, TILDA))
    assert raised.doors == (), "who is trusted again opens its door again"
    anchor = raise_to(held, FOUNDER, TILDA, "anchor", NOW)
    assert open_at(with_events(anchor, removal(anchor, ROOT, TILDA, level="trusted"))) == open_at(held)


@pytest.mark.req("DOOR-2", "ATTACK-124")
def test_a_door_dated_back_before_a_removal_stays_shut() -> None:
    gone = with_events(town(), removal(town(), ROOT, TILDA))
    assert "takes level trusted" in flaw(gone, opened(gone, TILDA, place=early(gone, TILDA)))


@pytest.mark.req("DOOR-2")
def test_a_removal_without_its_place_closes_the_door_meanwhile() -> None:
    held = with_door()
    ahead = take_in(held, SAM, EVE)
    waiting = removal(ahead, ROOT, TILDA, known=(ahead.events[-1].hash,))
    shown, _ = pending_removals.without_revoked(held, [waiting])
    assert shown.is_revoked(TILDA.node_id)
    assert (shown.doors, shown.proven.doors) == ((), held.doors)


@pytest.mark.req("DOOR-3", "ATTACK-123")
@pytest.mark.parametrize(
    "fault",
    [
        {"address": "kitchen"},
        {"address": "kitchen:0"},
        {"address": "kitchen:65536"},
        {"route": "kitchen:99999"},
        {"address": 'kitchen", account: "SYS:1'},
        {"address": "kitchen:7422\n"},
        {"address": "fd00::1:7422"},
        {"route": "-kitchen:7422"},
        {"key": "ed25519:short"},
        {"key": ""},
    ],
)
def test_a_door_that_no_configuration_should_name_does_not_hold(fault: dict[str, str]) -> None:
    content = DoorOpened(**{"address": "kitchen:7422", "route": "kitchen:7423", "key": CERTIFICATE} | fault)
    with pytest.raises(HearthNetError) as refused:
        event_validation.validate_event(act(town(), TILDA, doors.OPENED, content), town().community_id)
    assert refused.value.code == "bad_request"


@pytest.mark.req("DOOR-3")
def test_a_closed_door_names_a_node() -> None:
    event = act(town(), TILDA, doors.CLOSED, DoorClosed(node_id="nobody"))
    with pytest.raises(HearthNetError) as refused:
        event_validation.validate_event(event, town().community_id)
    assert refused.value.code == "bad_request"


@pytest.mark.req("DOOR-3")
def test_versions_without_doors_keep_and_pass_on_their_events() -> None:
    """Of a kind that is unknown to it, a version takes 2,048 bytes, with integers and ASCII names only."""
    event = opened(town(), TILDA, "a" * 253 + ":65535", route="b" * 253 + ":65535")
    event_validation.validate_event(event, town().community_id)
    assert len(event.encode()) <= 2_048
    assert all(name.isascii() for name in msgspec.json.decode(event.encode())["data"])


@pytest.mark.req("DOOR-1")
def test_an_act_about_a_door_says_why_it_would_not_count() -> None:
    event = CommunityAuthor(town(), TILDA).open_door("kitchen:7422", "kitchen:7423", CERTIFICATE, NOW)
    held = with_events(town(), event)
    assert open_at(held) == [(TILDA.node_id, "kitchen:7422")]
    assert with_events(held, CommunityAuthor(held, QUINN).close_door(TILDA.node_id, NOW)).doors == ()
    with pytest.raises(HearthNetError, match="has no open door") as none:
        CommunityAuthor(held, QUINN).close_door(QUINN.node_id, NOW)
    with pytest.raises(HearthNetError, match="takes level trusted") as plain:
        CommunityAuthor(held, MAX).open_door("kitchen:7422", "kitchen:7423", CERTIFICATE, NOW)
    assert (none.value.code, plain.value.code) == ("not_found", "unauthorized")
