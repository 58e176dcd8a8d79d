"""The roster proves itself (wire.md; conventions.md 6 and 13)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hearthnet import ids
from hearthnet.errors import HearthNetError
from hearthnet.trust import roster, signed
from hearthnet.trust.keys import Identity
from hearthnet.trust.roster import RANK, Member, Roster

ROOT, ANNA, BERTA = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
NOW = 1_795_292_100_000
A, B = roster.member(ANNA, "anchor", "Küche", NOW), roster.member(BERTA, "member", "Werkstatt", NOW)


def community(*members: Member) -> Roster:
    """A community of `members`, signed by its root."""
    whole = msgspec.structs.replace(roster.found(ROOT, A, "Ahornweg", NOW), members=members)
    return signed.sign(whole, ROOT, roster.PURPOSE)


def bound(identity: Identity, login: str) -> Member:
    """An entry whose login `identity` itself has signed, whatever it is."""
    signature = ids.b64(identity.sign(roster.LOGIN_PURPOSE, login.encode()))
    return Member(identity.node_id, "member", "x", login, signature, "2026-11-21T20:15:00Z")


@pytest.mark.req("TRUST-3")
def test_a_founded_community_is_read_as_it_was_written() -> None:
    founded = roster.found(ROOT, A, "Ahornweg 7", NOW)
    assert roster.decode(roster.encode(founded)) == founded
    assert founded.community_id == ROOT.node_id
    assert founded.created_at == A.added_at == "2026-11-21T20:15:00Z"
    assert founded.version == 1


@pytest.mark.req("TRUST-3")
def test_levels_are_the_rosters_and_strangers_have_none() -> None:
    whole = roster.decode(roster.encode(community(A, B)))
    levels = [whole.level(one.node_id) for one in (ANNA, BERTA, ROOT)]
    assert levels == ["anchor", "member", "unknown"]
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
    "other root": lambda whole: whole.update(community_id=ANNA.node_id),
    "no signature": lambda whole: whole.update(signature=""),
}


@pytest.mark.req("TRUST-3")
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_altered_is_noticed(change: str) -> None:
    whole = json.loads(roster.encode(community(A, B)))
    CHANGES[change](whole)
    with pytest.raises(HearthNetError, match="the roster is not signed by") as caught:
        roster.decode(json.dumps(whole).encode())
    assert caught.value.code == "invalid_signature"


MALFORMED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "level": lambda whole: whole["members"][0].update(level="king"),
    "more": lambda whole: whole.update(more=1),
    "more of a member": lambda whole: whole["members"][0].update(more=1),
    "version": lambda whole: whole.update(version="1"),
    "missing": lambda whole: whole.pop("members"),
    "root": lambda whole: whole.update(community_id="ed25519:x"),
}


@pytest.mark.req("TRUST-3")
@pytest.mark.parametrize("change", MALFORMED)
def test_another_shape_is_refused(change: str) -> None:
    whole = json.loads(roster.encode(community(A, B)))
    MALFORMED[change](whole)
    with pytest.raises(HearthNetError) as caught:
        roster.decode(json.dumps(whole).encode())
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-3", "WIRE-13")
def test_broken_and_ambiguous_text_is_refused() -> None:
    good = roster.encode(community(A, B))
    for data in (
        b"",
        b"[]",
        b"\xff",
        good[:-5],
        good.replace("Küche".encode(), b"\xff"),
        b"[" * 100_000,
        good.replace(b'"version"', b'"version": 9, "version"'),
        good.replace(b'"level": "member"', b'"level": "anchor", "level": "member"'),
    ):
        with pytest.raises(HearthNetError, match="is no roster") as caught:
            roster.decode(data)
        assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-3")
def test_nobody_else_can_name_a_login_for_a_member() -> None:
    stolen = msgspec.structs.replace(A, login=BERTA.login().public)
    foreign = msgspec.structs.replace(A, login=B.login, login_signature=B.login_signature)
    raw = ids.b64(ANNA.sign_raw(A.login.encode()))
    for entry in (stolen, foreign, msgspec.structs.replace(A, login_signature=raw)):
        with pytest.raises(HearthNetError, match="is not its own") as caught:
            roster.decode(roster.encode(community(entry)))
        assert caught.value.code == "invalid_signature"
    for signature in ("?", A.login_signature + "="):
        with pytest.raises(HearthNetError, match="not base64url"):
            roster.decode(roster.encode(community(msgspec.structs.replace(A, login_signature=signature))))


@pytest.mark.req("TRUST-3")
def test_a_login_is_an_nkey_because_it_goes_into_a_servers_configuration() -> None:
    for login in ('U" } ] } system_account: X #', "", "Ü", ANNA.store_login().seed.decode()):
        with pytest.raises(HearthNetError, match="is not its own"):
            roster.decode(roster.encode(community(bound(ANNA, login))))


@pytest.mark.req("TRUST-3")
def test_nobody_stands_in_it_twice_and_no_login_serves_two() -> None:
    again = msgspec.structs.replace(B, level="anchor")
    for members in ((A, B, again), (A, bound(BERTA, A.login))):
        with pytest.raises(HearthNetError, match="stands in it twice") as caught:
            roster.decode(roster.encode(community(*members)))
        assert caught.value.code == "bad_request"
