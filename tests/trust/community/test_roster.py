"""The roster proves itself.

See: docs/protocol/community.md#entry, docs/protocol/community.md#store-and-seal, docs/decisions/0040.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import roster
from hearthnet.trust.community.roster import RANK
from hearthnet.trust.keys import Identity
from tests.helpers.members import raise_to, take_in
from tests.trust.people import PAPER, added, removed, settled
from tests.trust.town import with_events

ROOT, ANNA, BERTA, CARLA = (Identity(bytes([number]) * 32) for number in (1, 2, 3, 4))
NOW = 1_795_292_100_000
FOUNDED = roster.create(ROOT, roster.member(ANNA, "anchor", "Küche", NOW), "Ahornweg", NOW)
LARGER = raise_to(take_in(FOUNDED, ANNA, BERTA, "Werkstatt", NOW), ANNA, BERTA, "trusted", NOW)


@pytest.mark.req("TRUST-3")
def test_a_founded_community_is_read_as_it_was_written() -> None:
    assert roster.decode(roster.encode(FOUNDED)) == FOUNDED
    assert FOUNDED.community_id == ROOT.node_id
    assert FOUNDED.created_at == FOUNDED.members[0].added_at == "2026-11-21T20:15:00Z"
    assert FOUNDED.version == 1
    assert FOUNDED.members == (roster.member(ANNA, "anchor", "Küche", NOW),)


@pytest.mark.req("TRUST-3")
def test_one_who_holds_none_derives_it_from_events_in_any_order() -> None:
    assert roster.derive(ROOT.node_id, reversed(LARGER.events)) == LARGER
    assert roster.derive(ROOT.node_id, LARGER.events[:1]) == FOUNDED
    for events in ((), LARGER.events[1:]):
        with pytest.raises(HearthNetError, match="nothing founds it") as caught:
            roster.derive(ROOT.node_id, events)
        assert caught.value.code == "bad_request"
    with pytest.raises(HearthNetError, match="nothing founds it"):
        roster.derive(ANNA.node_id, LARGER.events)


@pytest.mark.req("TRUST-3")
def test_levels_are_the_rosters_and_strangers_have_none() -> None:
    whole = roster.decode(roster.encode(LARGER))
    levels = [whole.level(one.node_id) for one in (ANNA, BERTA, ROOT)]
    assert levels == ["anchor", "trusted", "unknown"]
    assert whole.level("") == "unknown"
    assert sorted(RANK, key=RANK.__getitem__) == ["unknown", "invited", "member", "trusted", "anchor"]


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda whole: whole.update(name="Eschenweg"),
    "version": lambda whole: whole.update(version=2),
    "time": lambda whole: whole.update(created_at="2027-01-01T00:00:00Z"),
    "level": lambda whole: whole["members"][1].update(level="anchor"),
    "member gone": lambda whole: whole["members"].pop(),
    "order": lambda whole: whole["members"].reverse(),
    "display name": lambda whole: whole["members"][0].update(display_name="Keller"),
    "policy": lambda whole: whole["policy"].update(min_signatures_to_revoke=1),
    "lamport": lambda whole: whole.update(head_lamport=1),
    "events in another order": lambda whole: whole["events"].reverse(),
    "the last event gone": lambda whole: whole["events"].pop(),
    "an event": lambda whole: whole["events"][-1]["data"].update(new_level="anchor"),
}


@pytest.mark.req("TRUST-3")
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_altered_is_noticed(change: str) -> None:
    for text in (roster.encode(LARGER), roster.encode(roster.seal(LARGER, BERTA))):
        whole = json.loads(text)
        CHANGES[change](whole)
        said = "the community is not signed by" if change == "an event" else "not what its events say"
        for own in ("", BERTA.node_id):
            with pytest.raises(HearthNetError, match=said) as caught:
                roster.decode(json.dumps(whole).encode(), own)
            assert caught.value.code == "invalid_signature"


@pytest.mark.req("TRUST-3")
def test_the_own_seal_spares_the_proof_and_no_other_does() -> None:
    lie = msgspec.structs.replace(LARGER, name="Eschenweg")
    assert roster.decode(roster.encode(roster.seal(lie, BERTA)), BERTA.node_id).name == "Eschenweg"
    for own in ("", ANNA.node_id):
        with pytest.raises(HearthNetError, match="not what its events say"):
            roster.decode(roster.encode(roster.seal(lie, BERTA)), own)


@pytest.mark.req("COMM-11")
def test_a_seal_of_a_version_that_knew_fewer_rules_is_none_and_the_events_prove_the_same() -> None:
    whole = json.loads(roster.encode(roster.seal(LARGER, BERTA)))
    del whole["policy"]["min_signatures_to_invite"]
    read = roster.decode(json.dumps(whole).encode(), BERTA.node_id)
    assert (read.members, read.policy, read.invites) == (LARGER.members, LARGER.policy, LARGER.invites)
    assert roster.decode(roster.encode(roster.seal(read, BERTA)), BERTA.node_id).members == LARGER.members
    foreign = msgspec.structs.replace(
        roster.seal(LARGER, BERTA), signature=roster.seal(LARGER, ANNA).signature
    )
    assert roster.decode(roster.encode(foreign), BERTA.node_id).members == LARGER.members


MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "level": (lambda whole: whole["members"][0].update(level="king"), "'king' - at `$.members[0].level`"),
    "more": (lambda whole: whole.update(more=1), "unknown field `more`"),
    "more of a member": (
        lambda whole: whole["members"][0].update(more=1),
        "unknown field `more` - at `$.members[0]`",
    ),
    "version": (lambda whole: whole.update(version="1"), "got `str` - at `$.version`"),
    "missing": (lambda whole: whole.pop("members"), "missing required field `members`"),
    "root": (lambda whole: whole.update(community_id="ed25519:x"), "the event is of another community"),
    "no events": (lambda whole: whole.update(events=[]), "nothing founds it"),
    "a gap": (lambda whole: whole["events"].pop(0), "events that others build on are not in it"),
}


@pytest.mark.req("TRUST-3")
@pytest.mark.parametrize("change", MALFORMED)
def test_another_shape_is_refused(change: str) -> None:
    whole = json.loads(roster.encode(LARGER))
    alter, said = MALFORMED[change]
    alter(whole)
    with pytest.raises(HearthNetError) as caught:
        roster.decode(json.dumps(whole).encode())
    assert caught.value.code == "bad_request"
    assert said in caught.value.message


@pytest.mark.req("TRUST-3", "WIRE-13")
@pytest.mark.parametrize("depth", [17, 400, 900, 960, 970, 980, 990, 1_000, 5_000])
@pytest.mark.parametrize("own", ["", BERTA.node_id])
def test_an_event_in_it_that_is_nested_too_deeply_is_refused(depth: int, own: str) -> None:
    nested = b'"data": {"x": ' + b"[" * depth + b"]" * depth + b", "
    # From some depth on, which depends on the stack, the reader of JSON gives up first.
    said = "nested at most 16 deep" if depth <= 400 else "nested at most 16 deep|maximum recursion depth"
    for good in (roster.encode(LARGER), roster.encode(roster.seal(LARGER, BERTA))):
        with pytest.raises(HearthNetError, match=said) as caught:
            roster.decode(good.replace(b'"data": {', nested, 1), own)
        assert caught.value.code == "bad_request"
    value: Any = 0
    for _ in range(5_000):
        value = [value]
    deep = msgspec.structs.replace(LARGER.events[-1], data={"x": value})
    with pytest.raises(HearthNetError, match="nested too deeply") as caught:
        roster.seal(msgspec.structs.replace(LARGER, events=(deep,)), BERTA)
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-3", "WIRE-13")
def test_broken_and_ambiguous_text_is_refused() -> None:
    good = roster.encode(LARGER)
    for data in (
        b"",
        b"[]",
        b"\xff",
        good[:-5],
        good.replace("Küche".encode(), b"\xff"),
        b"[" * 100_000,
        good.replace(b'"version"', b'"version": 9, "version"', 1),
        good.replace(b'"level": "trusted"', b'"level": "anchor", "level": "trusted"'),
    ):
        with pytest.raises(HearthNetError, match="is no roster") as caught:
            roster.decode(data)
        assert caught.value.code == "bad_request"


@pytest.mark.req("COMM-11")
def test_merging_an_older_roster_takes_nothing_back() -> None:
    assert roster.merge(LARGER, FOUNDED.events) is LARGER
    sealed = roster.seal(LARGER, ANNA)
    assert roster.merge(sealed, FOUNDED.events) is sealed, "what changes nothing leaves the seal"
    more = take_in(sealed, ANNA, CARLA, "Garten", NOW)
    assert (more.signed_by, more.signature) == ("", "")
    assert more.version == LARGER.version + 3


@pytest.mark.req("COMM-11")
def test_a_roster_read_under_the_own_seal_is_merged_as_any_other() -> None:
    read = roster.decode(roster.encode(roster.seal(LARGER, ANNA)), ANNA.node_id)
    assert take_in(read, ANNA, CARLA, "Garten", NOW).level(CARLA.node_id) == "member"
    assert read.flaw(read.events[-1]) == ""
    assert read.heads() == LARGER.heads()
    assert not read.is_revoked(BERTA.node_id)
    assert read.member(BERTA.node_id) == LARGER.members[1]
    assert read.invite(BERTA.node_id) is None


@pytest.mark.req("PERSON-20")
def test_works_of_all_nodes_of_a_person_are_the_persons() -> None:
    held = settled(LARGER, ANNA, BERTA)
    held = with_events(held, added(held, ANNA, CARLA))
    nodes = {one for node in (ANNA, BERTA) for one in (node.node_id, f"{node.node_id}/owner")}
    assert held.principals(ANNA.node_id) == held.principals(PAPER.node_id) - {PAPER.node_id} == nodes
    assert held.principals(f"{ANNA.node_id}/eva") == {f"{ANNA.node_id}/eva"}
    gone = with_events(held, removed(held, ANNA, BERTA))
    assert gone.principals(ANNA.node_id) == nodes, "what a removed node has made stays the person's"
    assert LARGER.principals(BERTA.node_id) == {BERTA.node_id, f"{BERTA.node_id}/owner"}, "a node of nobody"
