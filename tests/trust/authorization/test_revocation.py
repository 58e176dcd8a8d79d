"""Revoked tokens: who may revoke one, and for how long it is known.

See: docs/protocol/tokens.md#revocation.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization import revocation
from hearthnet.trust.authorization.revocation import RETENTION_MS, Revocations, TokenRevocation
from hearthnet.trust.authorization.token import MAX_TTL_SECONDS, SKEW_SECONDS
from hearthnet.trust.keys import Identity

ROOT, ISSUER, TRUSTED, ANCHOR, MEMBER, FOREIGN = (Identity(bytes([number]) * 32) for number in range(1, 7))
NOW = 1_795_292_100_000
TOKEN = "01HZX3Q4R5S6T7V8W9XA0BC1DE"
replace = msgspec.structs.replace


class Community:
    """What is asked of a roster."""

    community_id = ROOT.node_id

    def level(self, node: str) -> str:
        levels = {ISSUER: "member", TRUSTED: "trusted", ANCHOR: "anchor", MEMBER: "member"}
        return {who.node_id: level for who, level in levels.items()}.get(node, "unknown")


HERE = Community()


def revoked_by(who: Identity, token: str = TOKEN, now_ms: int = NOW) -> TokenRevocation:
    """A token of the issuer, revoked by `who`."""
    return revocation.TokenRevocation.sign(who, token, ISSUER.node_id, "manual", now_ms=now_ms)


def refused(document: TokenRevocation, code: str, said: str) -> None:
    """It is not taken in, with this code and for this reason."""
    known = Revocations()
    with pytest.raises(HearthNetError, match=said) as caught:
        known.add(document, HERE)
    assert caught.value.code == code
    assert known.current(NOW) == ()
    assert not known.revoked(document.issuer, document.token_id)


@pytest.mark.req("TOKEN-1")
@pytest.mark.parametrize("who", [ISSUER, TRUSTED, ANCHOR, ROOT], ids=["issuer", "trusted", "anchor", "root"])
def test_the_issuer_the_trusted_and_the_root_revoke(who: Identity) -> None:
    known = Revocations()
    assert known.add(revoked_by(who), HERE)
    assert known.revoked(ISSUER.node_id, TOKEN)
    assert not known.add(revoked_by(who), HERE)


@pytest.mark.req("TOKEN-1")
@pytest.mark.parametrize("who", [MEMBER, FOREIGN], ids=["a member", "a stranger"])
def test_others_do_not(who: Identity) -> None:
    refused(revoked_by(who), "unauthorized", "by its issuer, a trusted member or the community's root")


@pytest.mark.req("TOKEN-1")
def test_a_stranger_revokes_not_even_its_own() -> None:
    own = revocation.TokenRevocation.sign(FOREIGN, TOKEN, FOREIGN.node_id, "manual", now_ms=NOW)
    refused(own, "unauthorized", "by its issuer, a trusted member or the community's root")


@pytest.mark.req("TOKEN-1")
def test_it_is_about_that_token_of_that_issuer_alone() -> None:
    known = Revocations()
    known.add(revoked_by(ISSUER), HERE)
    assert not known.revoked(MEMBER.node_id, TOKEN)
    assert not known.revoked(ISSUER.node_id, TOKEN[::-1])


@pytest.mark.req("TOKEN-1")
@pytest.mark.parametrize(
    "field", [name for name in TokenRevocation.__struct_fields__ if name not in ("signature", "forget_at")]
)
def test_every_member_is_under_the_signature(field: str) -> None:
    good = revoked_by(TRUSTED)
    other: dict[str, Any] = {
        "token_id": "01HZX3Q4R5S6T7V8W9XA0BC1DF",
        "issuer": MEMBER.node_id,
        "reason": "compromise",
        "revoked_at": NOW + 1,
        "by": ANCHOR.node_id,
    }
    changed = replace(good, **{field: other[field]})
    changed = replace(changed, forget_at=changed.revoked_at + RETENTION_MS)
    refused(changed, "invalid_signature", f"is not signed by {ids.short_id(changed.by)}")


@pytest.mark.req("TOKEN-1")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token_id": "x"}, "names no token"),
        ({"issuer": "somebody"}, "'somebody' is not a node id"),
        ({"by": "somebody"}, "'somebody' is not a node id"),
        ({"forget_at": NOW}, "is kept for a day and two minutes"),
        ({"forget_at": NOW + RETENTION_MS + 1}, "is kept for a day and two minutes"),
    ],
    ids=range(5),
)
def test_what_says_nothing_is_refused(changes: dict[str, Any], said: str) -> None:
    refused(replace(revoked_by(ISSUER), **changes), "bad_request", said)


@pytest.mark.req("TOKEN-1")
def test_it_survives_its_journey_and_has_one_meaning() -> None:
    good = revoked_by(ISSUER)
    data = msgspec.json.encode(good)
    assert revocation.decode(data) == good
    for bad, said in (
        (b"", "truncated"),
        (b"null", "Expected `object`, got `null`"),
        (data + b"{}", "trailing characters"),
        (data.replace(b'"manual"', b'"spite"'), "Invalid enum value 'spite'"),
        (data.replace(b'"by"', b'"by": "x", "by"'), "a key stands twice"),
        (data.replace(b'{"', b'{"more": 1, "', 1), "unknown field `more`"),
    ):
        with pytest.raises(HearthNetError, match=said) as caught:
            revocation.decode(bad)
        assert caught.value.code == "bad_request"


@pytest.mark.req("TOKEN-1")
def test_it_is_known_for_as_long_as_any_such_token_could_be_valid_and_then_forgotten() -> None:
    assert RETENTION_MS >= (MAX_TTL_SECONDS + 2 * SKEW_SECONDS) * 1000
    known, good = Revocations(), revoked_by(ISSUER)
    known.add(good, HERE)
    assert known.current(NOW + RETENTION_MS) == (good,)
    assert known.revoked(ISSUER.node_id, TOKEN)
    assert known.current(NOW + RETENTION_MS + 1) == ()
    assert not known.revoked(ISSUER.node_id, TOKEN)
    assert known.add(good, HERE)


@pytest.mark.req("TOKEN-1")
def test_the_one_that_is_kept_longer_counts() -> None:
    known, first, later = Revocations(), revoked_by(TRUSTED, now_ms=NOW - 1), revoked_by(ISSUER)
    known.add(first, HERE)
    assert known.add(later, HERE)
    assert not known.add(first, HERE)
    assert not known.keep(later)
    assert known.current(NOW) == (later,)


@pytest.mark.req("TOKEN-1")
def test_nobody_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "MOST_OF_ONE", 3)
    known = Revocations()
    for number in range(3):
        known.add(revoked_by(ISSUER, ids.new_ulid(number)), HERE)
    with pytest.raises(HearthNetError, match="has revoked 3 tokens") as caught:
        known.add(revoked_by(ISSUER), HERE)
    assert caught.value.code == "capacity_exceeded"
    assert known.add(revoked_by(TRUSTED), HERE)
    known.current(NOW + RETENTION_MS + 1)
    assert known.add(revoked_by(ISSUER), HERE)


@pytest.mark.req("TOKEN-1")
def test_what_was_replaced_counts_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "MOST_OF_ONE", 1)
    known = Revocations()
    assert known.add(revoked_by(TRUSTED, now_ms=NOW - 1), HERE)
    assert known.add(revoked_by(ISSUER), HERE)
    other = revoked_by(TRUSTED, ids.new_ulid(1))
    assert known.add(other, HERE)
    with pytest.raises(HearthNetError, match="has revoked 1 tokens"):
        known.add(revoked_by(TRUSTED, ids.new_ulid(2)), HERE)
