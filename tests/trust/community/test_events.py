"""Events by themselves: what is kept and passed on, and what is refused (docs/decisions/0040)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.community import event_validation, events, invites, quorum, roster
from hearthnet.trust.community.events import (
    CommunityEvent,
    Created,
    Demoted,
    EventEntry,
    Joined,
    Policy,
    PolicyUpdated,
    Promoted,
    Revoked,
    Withdrawn,
)
from hearthnet.trust.community.removals import removal_target
from hearthnet.trust.keys import Identity
from tests.helpers.members import DAY_MS, NOW, act, agreeing

ROOT, ANNA, BERTA, KEY, CARLA = (Identity(bytes([number]) * 32) for number in (1, 2, 3, 4, 5))
HELD = roster.create(ROOT, roster.member(ANNA, "anchor", "Küche", NOW), "Ahornweg", NOW)
COMMUNITY = HELD.community_id
INVITED = events.invited(COMMUNITY, ANNA.node_id, KEY, display_name="Werkstatt", expires_at=NOW + DAY_MS)
INVITE = act(HELD, ANNA, events.INVITED, INVITED)
LARGER = roster.merge(HELD, [INVITE])
JOIN = invites.ask(LARGER, KEY, BERTA, "Werkstatt", NOW)
REVOKE = act(
    HELD,
    ANNA,
    events.REVOKED,
    Revoked(
        target_node_id=BERTA.node_id,
        reason="other",
        client_id="c",
        co_signers=agreeing(HELD, events.REVOKED, BERTA, "other", "c", CARLA),
    ),
)
EVENTS = (HELD.events[0], INVITE, JOIN, REVOKE)


def resigned(event: CommunityEvent, by: Identity, **changes: Any) -> CommunityEvent:
    """`event` with `changes`, really signed by its author."""
    return signed_document.sign(msgspec.structs.replace(event, **changes), by, events.PURPOSE)


def with_data(event: CommunityEvent, by: Identity, **changes: Any) -> CommunityEvent:
    """`event` with changed data, really signed."""
    return resigned(event, by, data={**event.data, **changes})


def refused(event: CommunityEvent, code: str, said: str) -> None:
    """The event is refused with this code, and the message says so."""
    with pytest.raises(HearthNetError, match=said) as caught:
        event_validation.validate_event(event, COMMUNITY)
    assert caught.value.code == code


@pytest.mark.req("COMM-1")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.event_type)
def test_an_event_is_read_as_it_was_written_and_holds(event: CommunityEvent) -> None:
    again = events.decode(event.encode())
    assert again == event
    assert again.hash == event.hash == content_hash(canonical_json(json.loads(event.encode())))
    assert again.order == (event.lamport, event.event_id, event.hash)
    event_validation.validate_event(again, COMMUNITY)


@pytest.mark.req("COMM-1")
def test_what_follows_from_an_event_does_not_follow_it_into_a_changed_copy() -> None:
    assert INVITE.hash
    assert INVITE.content == INVITED
    copy = msgspec.structs.replace(INVITE, data={**INVITE.data, "display_name": "Keller"})
    assert copy.hash != INVITE.hash
    assert copy.content == msgspec.structs.replace(INVITED, display_name="Keller")
    sealed = roster.seal(LARGER, ANNA)
    assert msgspec.structs.replace(sealed, members=()).member(ANNA.node_id) is None


@pytest.mark.req("COMM-1")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.event_type)
def test_whatever_is_altered_or_borrowed_is_noticed(event: CommunityEvent) -> None:
    other = ids.new_ulid(NOW)
    for changes in (
        {"event_id": other},
        {"lamport": event.lamport + 1},
        {"wall_clock": "2026-11-21T20:15:01Z"},
        {"data": {**event.data, "more": 1}},
        {"signature": ""},
        {"signature": INVITE.signature if event is not INVITE else JOIN.signature},
    ):
        with pytest.raises(HearthNetError, match=f"not signed by {ids.short_id(event.author)}") as caught:
            event_validation.validate_event(msgspec.structs.replace(event, **changes), COMMUNITY)
        assert caught.value.code == "invalid_signature"
    with pytest.raises(HearthNetError, match="of another community"):
        event_validation.validate_event(event, BERTA.node_id)
    with pytest.raises(HearthNetError, match="is not signed by"):
        event_validation.validate_event(resigned(event, CARLA), COMMUNITY)


@pytest.mark.req("COMM-1")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"event_id": "last"}, "ULID"),
        ({"wall_clock": "yesterday"}, "not a time"),
        ({"sequence": 2}, "no event before it"),
        ({"previous": INVITE.hash}, "no event before it"),
        ({"author": "ed25519:x"}, "not a node id"),
        ({"event_type": events.CREATED}, "root alone"),
        ({"event_type": events.POLICY}, "root alone"),
        ({"author": ROOT.node_id}, "begins with its root's first event"),
        ({"author": ROOT.node_id, "event_type": events.CREATED, "sequence": 2}, "first event, and only"),
        ({"data": {"x": "y" * event_validation.MAX_BYTES}}, "at most 16384 bytes"),
        ({"data": {"x": 2**53}}, "no canonical JSON"),
    ],
)
def test_another_form_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as caught:
        event_validation.validate_event(msgspec.structs.replace(INVITE, **changes), COMMUNITY)
    assert caught.value.code == "bad_request"


@pytest.mark.req("COMM-1", "COMM-7")
def test_the_largest_events_that_are_of_use_fit() -> None:
    hashes = [content_hash(bytes([number])) for number in range(64)]
    signers = [Identity(bytes([number]) * 32) for number in range(100, 132)]
    removal = Revoked(
        target_node_id=BERTA.node_id,
        reason="x" * 200,
        client_id="c",
        co_signers=agreeing(HELD, events.REVOKED, BERTA, "x" * 200, "c", *signers),
        target_heads=tuple(hashes),
    )
    event_validation.validate_event(act(HELD, ANNA, events.REVOKED, removal), COMMUNITY)
    authors = [ids.node_id(number.to_bytes(32, "big")) for number in range(4_096)]
    heads = dict.fromkeys(authors, tuple(hashes[:1]))
    change = act(HELD, ROOT, events.POLICY, PolicyUpdated(policy=Policy(), heads=heads))
    event_validation.validate_event(change, COMMUNITY)
    larger = {**change.data, "heads": dict.fromkeys(authors, hashes[:4])}
    refused(resigned(change, ROOT, data=larger), "bad_request", "at most 1048576 bytes")


def nested(depth: int) -> dict[str, Any]:
    """Data with arrays in one another, `depth` levels in all."""
    inner: Any = 0
    for _ in range(depth - 1):
        inner = [inner]
    return {"x": inner}


@pytest.mark.req("COMM-1", "WIRE-13")
@pytest.mark.parametrize("depth", [17, 100, 480, 2_000, 100_000])
def test_an_event_is_not_nested_deeper_than_everyone_can_read(depth: int) -> None:
    """How deep is too deep for a reader depends on its stack; all must keep the same events."""
    kind = {"event_type": "community.fair.opened"}
    event_validation.validate_event(resigned(INVITE, ANNA, **kind, data=nested(16)), COMMUNITY)
    deep = msgspec.structs.replace(INVITE, **kind, data=nested(depth))
    with pytest.raises(HearthNetError, match="nested at most 16 deep") as caught:
        event_validation.validate_event(deep, COMMUNITY)
    assert caught.value.code == "bad_request"
    assert roster.merge(HELD, [deep]) is HELD


@pytest.mark.req("COMM-1")
@pytest.mark.parametrize(
    ("event_type", "data"),
    [
        (events.INVITED, {}),
        (events.INVITED, {**INVITE.data, "initial_level": "trusted"}),
        (events.INVITED, {**INVITE.data, "display_name": "x" * 65}),
        (events.PROMOTED, {"target_node_id": BERTA.node_id, "new_level": "member", "client_id": "x"}),
        (events.DEMOTED, {"target_node_id": BERTA.node_id, "new_level": "anchor", "client_id": "x"}),
        (events.WITHDRAWN, {"invite_event_hash": "blake3:0"}),
        (events.REVOKED, {**REVOKE.data, "co_signers": REVOKE.data["co_signers"] * 33}),
        (events.REVOKED, {**REVOKE.data, "target_heads": [INVITE.hash] * 65}),
    ],
    ids=range(8),
)
def test_malformed_content_is_refused(event_type: str, data: dict[str, Any]) -> None:
    refused(
        resigned(INVITE, ANNA, event_type=event_type, data=data), "bad_request", f"malformed {event_type}"
    )


@pytest.mark.req("COMM-1", "VERSION-2")
def test_what_a_later_version_writes_is_kept_and_means_nothing_here() -> None:
    for changes in (
        {"event_type": "community.fair.opened", "data": {"x": 1.5}},
        {"schema_version": 2},
        {"event_type": events.REVOKED, "data": {**REVOKE.data, "more": True}},
    ):
        event = resigned(INVITE, ANNA, **changes)
        event_validation.validate_event(event, COMMUNITY)
        assert event.content is None
        larger = roster.merge(HELD, [event])
        assert larger.events[-1] == event
        assert "unknown here" in larger.flaw(event)
        assert larger.members == HELD.members
        assert larger.invites == ()


@pytest.mark.req("COMM-7")
@pytest.mark.parametrize(
    "rule", ["min_signatures_to_demote", "min_signatures_to_revoke", "min_signatures_to_invite"]
)
@pytest.mark.parametrize("number", [0, -1, 33, 1.5, "3", None])
def test_no_policy_asks_for_no_signature_or_for_more_than_there_can_be(rule: str, number: object) -> None:
    data = {"policy": {rule: number}, "heads": {}}
    event = act(HELD, ROOT, events.POLICY, PolicyUpdated(policy=Policy(), heads={}))
    event_validation.validate_event(event, COMMUNITY)
    refused(resigned(event, ROOT, data=data), "bad_request", "malformed")
    founding = HELD.events[0]
    refused(with_data(founding, ROOT, policy={rule: number}), "bad_request", "malformed")


@pytest.mark.req("COMM-7")
def test_a_token_of_the_community_lives_a_minute_to_a_day() -> None:
    for seconds in (59, 86_401):
        with pytest.raises(msgspec.ValidationError, match="capability_token_ttl_seconds"):
            msgspec.convert({"capability_token_ttl_seconds": seconds}, Policy)
    for seconds in (60, 86_400):
        policy = msgspec.convert({"capability_token_ttl_seconds": seconds}, Policy)
        assert policy.capability_token_ttl_seconds == seconds


def entry(**changes: str) -> EventEntry:
    """Anna's entry with something changed."""
    return msgspec.structs.replace(events.entry_of(ANNA, "Küche"), **changes)


THEIRS = events.entry_of(BERTA, "Werkstatt")
STOLEN = ids.b64(ANNA.sign(events.LOGIN_PURPOSE, THEIRS.login.encode()))
ENTRIES = {
    "another's login": entry(login=THEIRS.login),
    "another's login and binding": entry(login=THEIRS.login, login_signature=THEIRS.login_signature),
    "another's login, claimed": entry(login=THEIRS.login, login_signature=STOLEN),
    "another's login, claimed, with its proof": entry(
        login=THEIRS.login, login_signature=STOLEN, login_proof=THEIRS.login_proof
    ),
    "signed raw": entry(login_signature=ids.b64(ANNA.sign_raw(ANNA.login().public.encode()))),
    "proved by the node itself": entry(
        login_proof=ids.b64(ANNA.sign(events.PROOF_PURPOSE, ANNA.node_id.encode()))
    ),
    "no login at all": entry(
        login='U" } ] } system_account: X #',
        login_signature=ids.b64(ANNA.sign(events.LOGIN_PURPOSE, b'U" } ] } system_account: X #')),
    ),
}


@pytest.mark.req("TRUST-3")
@pytest.mark.parametrize("which", ENTRIES)
def test_nobody_names_a_login_for_another_nor_another_for_its_login(which: str) -> None:
    """The proof cannot be had from the login's owner either: what a server has it sign is text."""
    created = Created(name="x", founder=ENTRIES[which])
    founding = act(HELD, ROOT, events.CREATED, created, (1, "", 1))
    refused(founding, "invalid_signature", "login of")
    bare = Joined(
        invite_event_hash=INVITE.hash,
        invite_key=KEY.node_id,
        member=ENTRIES[which],
        invite_signature="",
    )
    signature = ids.b64(KEY.sign(events.INVITE_PURPOSE, events.request(COMMUNITY, bare)))
    content = msgspec.structs.replace(bare, invite_signature=signature)
    joining = act(HELD, ANNA, events.JOINED, content, (1, "", 3))
    refused(joining, "invalid_signature", "login of")


@pytest.mark.req("TRUST-3")
def test_signatures_in_an_event_are_base64url() -> None:
    for changes in ({"login_signature": "?"}, {"login_proof": "?"}):
        created = Created(name="x", founder=entry(**changes))
        refused(act(HELD, ROOT, events.CREATED, created, (1, "", 1)), "bad_request", "not base64url")


@pytest.mark.req("COMM-2")
def test_an_invite_is_its_inviters_alone_and_ends() -> None:
    borrowed = act(HELD, CARLA, events.INVITED, INVITED)
    refused(borrowed, "invalid_signature", "not signed by its own key")
    for changes in (
        {"invitee_node_id": CARLA.node_id},
        {"expires_at": NOW + 2 * DAY_MS},
        {"login_signature": ids.b64(bytes(64))},
    ):
        refused(with_data(INVITE, ANNA, **changes), "invalid_signature", "its own key")
    refused(with_data(INVITE, ANNA, invitee_node_id="anna"), "bad_request", "not a node id")
    refused(with_data(INVITE, ANNA, login_proof=ids.b64(bytes(64))), "invalid_signature", "login of")
    for expires in (NOW, NOW - 1, NOW + event_validation.MAX_INVITE_MS + 1):
        content = events.invited(COMMUNITY, ANNA.node_id, KEY, display_name="x", expires_at=expires)
        refused(act(HELD, ANNA, events.INVITED, content), "bad_request", "within 30 days")
    for expires in (NOW + 1, NOW + 30 * DAY_MS):
        content = events.invited(COMMUNITY, ANNA.node_id, KEY, display_name="x", expires_at=expires)
        event_validation.validate_event(act(HELD, ANNA, events.INVITED, content), COMMUNITY)


@pytest.mark.req("COMM-3")
def test_a_request_to_join_is_the_newcomers_and_under_the_invites_key() -> None:
    refused(resigned(JOIN, CARLA, author=CARLA.node_id), "bad_request", "by its own event")
    for key in (CARLA, ANNA, BERTA):
        content = Joined(
            invite_event_hash=INVITE.hash,
            invite_key=KEY.node_id,
            member=THEIRS,
            invite_signature=ids.b64(key.sign(events.INVITE_PURPOSE, b"something else")),
        )
        refused(act(HELD, BERTA, events.JOINED, content), "invalid_signature", "not signed by the invite")
    moved = with_data(JOIN, BERTA, invite_event_hash=JOIN.hash)
    refused(moved, "invalid_signature", "not signed by the invite's key")


@pytest.mark.req("COMM-6")
def test_what_co_signers_signed_cannot_be_used_for_anything_else() -> None:
    for changes in (
        {"target_node_id": CARLA.node_id},
        {"reason": "inactive"},
        {"client_id": "d"},
    ):
        refused(with_data(REVOKE, ANNA, **changes), "invalid_signature", "has signed something else")
    level = {**REVOKE.data, "new_level": "member"}
    level.pop("reason")
    demoting = resigned(REVOKE, ANNA, event_type=events.DEMOTED, data=level)
    refused(demoting, "invalid_signature", "has signed something else")
    refused(with_data(REVOKE, ANNA, target_node_id="x"), "bad_request", "not a node id")
    unreadable = [{"node_id": CARLA.node_id, "signature": "?"}]
    refused(with_data(REVOKE, ANNA, co_signers=unreadable), "bad_request", "not base64url")
    for what in (Promoted, Demoted):
        kind = events.PROMOTED if what is Promoted else events.DEMOTED
        content = what(
            target_node_id=BERTA.node_id,
            new_level="trusted",
            client_id="c",
            co_signers=agreeing(HELD, kind, BERTA, "trusted", "c", CARLA),
        )
        event_validation.validate_event(act(HELD, ANNA, kind, content), COMMUNITY)


@pytest.mark.req("COMM-6")
@pytest.mark.parametrize(("wanted", "others", "needed"), [(3, 5, 3), (3, 2, 2), (3, 0, 1), (1, 9, 1)])
def test_as_many_sign_as_the_policy_wants_or_all_who_could(wanted: int, others: int, needed: int) -> None:
    policy = Policy(min_signatures_to_revoke=wanted, min_signatures_to_demote=wanted)
    for kind in (events.REVOKED, events.DEMOTED):
        assert quorum.required_signatures(policy, kind, others) == needed
    assert quorum.required_signatures(policy, events.PROMOTED, others) == 1


@pytest.mark.req("COMM-1")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lamport": 0}, "Expected `int` >= 1 - at `$.lamport`"),
        ({"lamport": 2**53}, "Expected `int` <= 9007199254740991 - at `$.lamport`"),
        ({"lamport": 1.5}, "got `float` - at `$.lamport`"),
        ({"sequence": 0}, "Expected `int` >= 1 - at `$.sequence`"),
        ({"sequence": -1}, "Expected `int` >= 1 - at `$.sequence`"),
        ({"schema_version": 0}, "Expected `int` >= 1 - at `$.schema_version`"),
        ({"event_type": "market.post.created"}, "at `$.event_type`"),
        ({"event_type": "community."}, "at `$.event_type`"),
        ({"data": []}, "got `array` - at `$.data`"),
        ({"more": 1}, "unknown field `more`"),
        ({"signature": None}, "got `null` - at `$.signature`"),
    ],
    ids=range(11),
)
def test_what_is_no_event_is_not_read(changes: dict[str, Any], said: str) -> None:
    text = json.dumps({**json.loads(INVITE.encode()), **changes})
    with pytest.raises(HearthNetError) as caught:
        events.decode(text.encode())
    assert caught.value.code == "bad_request"
    assert said in caught.value.message


@pytest.mark.req("COMM-1", "WIRE-13")
def test_an_event_with_a_key_twice_is_not_read() -> None:
    text = INVITE.encode().replace(b'"lamport"', b'"lamport":1,"lamport"')
    with pytest.raises(HearthNetError, match="ambiguous"):
        events.decode(text)


@pytest.mark.req("COMM-1", "WIRE-5")
@given(st.sampled_from(EVENTS), st.integers(0, 10**6), st.binary(max_size=3))
def test_mutated_bytes_give_an_error_of_the_closed_set(event: CommunityEvent, at: int, put: bytes) -> None:
    data = event.encode()
    at %= len(data)
    altered = data[:at] + put + data[at + len(put) or at + 1 :]
    assert outcome(altered, event) in {"the same", "bad_request", "invalid_signature"}


def outcome(data: bytes, event: CommunityEvent) -> str:
    """What comes of reading and checking `data`; any other exception fails the test."""
    try:
        read = events.decode(data)
        event_validation.validate_event(read, COMMUNITY)
    except HearthNetError as error:
        return error.code
    return "the same" if read == event else "another"


@pytest.mark.req("COMM-2")
def test_a_withdrawal_needs_only_the_invites_hash() -> None:
    event_validation.validate_event(
        act(LARGER, ANNA, events.WITHDRAWN, Withdrawn(invite_event_hash=INVITE.hash)), COMMUNITY
    )


@pytest.mark.req("COMM-1")
def test_malformed_removals_remove_nobody_and_cost_no_signatures() -> None:
    malformed = resigned(REVOKE, ANNA, data={"target_node_id": 7})
    assert (removal_target(REVOKE), events.co_signatures(REVOKE)) == (BERTA.node_id, 1)
    assert (removal_target(malformed), events.co_signatures(malformed)) == ("", 0)
