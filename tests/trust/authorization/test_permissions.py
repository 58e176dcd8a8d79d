"""What the server lets a node do.

See: docs/protocol/subjects.md#permissions.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import node_id, token_form
from hearthnet.trust.authorization.permissions import (
    OPERATOR_INBOX,
    Permissions,
    invite_permissions,
    node_permissions,
    operator_permissions,
    peer_permissions,
)

keys = st.binary(min_size=32, max_size=32)


def allows(pattern: str, subject: str) -> bool:
    """Whether a NATS subject pattern covers a subject."""
    wanted, given_ = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(given_) > index
        if index >= len(given_) or token not in ("*", given_[index]):
            return False
    return len(wanted) == len(given_)


@pytest.mark.req("UP-20")
@given(keys, keys)
def test_a_node_publishes_under_its_own_id_only(mine: bytes, other: bytes) -> None:
    me, you = token_form(node_id(mine)), token_form(node_id(other))
    publish = node_permissions(node_id(mine)).publish
    for kind in ("call", "ctl", "find", "adv", "event", "rep"):
        assert any(allows(pattern, f"hn.{kind}.{me}.{you}.x") for pattern in publish)
        assert me == you or not any(allows(pattern, f"hn.{kind}.{you}.{me}.x") for pattern in publish)
    # All else that it may publish are its answers to the operators of its own server.
    own = {f"hn.{kind}.{me}.>" for kind in ("call", "ctl", "find", "adv", "event", "rep")}
    assert set(publish) - own == {"_INBOX_ops.>"}
    assert set(node_permissions(node_id(mine), at_home=False).publish) == own


@pytest.mark.req("UP-20")
@given(keys, keys)
def test_a_node_hears_what_is_for_it_and_what_is_for_all(mine: bytes, other: bytes) -> None:
    me, you = token_form(node_id(mine)), token_form(node_id(other))
    subscribe = node_permissions(node_id(mine)).subscribe
    for kind in ("call", "ctl", "rep"):
        assert any(allows(pattern, f"hn.{kind}.{you}.{me}.x") for pattern in subscribe)
        assert me == you or not any(allows(pattern, f"hn.{kind}.{me}.{you}.x") for pattern in subscribe)
    for subject in (
        f"hn.find.{you}.rag.query.v1",
        f"hn.adv.{you}.rag.query.v1",
        f"hn.event.{you}.x",
        f"_INBOX.{me}.x",
        "$SRV.PING",
    ):
        assert any(allows(pattern, subject) for pattern in subscribe)
    assert me == you or not any(allows(pattern, f"_INBOX.{you}.x") for pattern in subscribe)


def hears(permissions: Permissions, subject: str) -> bool:
    """Whether a user with these permissions may receive a subject."""
    heard = any(allows(pattern, subject) for pattern in permissions.subscribe)
    return heard and not any(allows(pattern, subject) for pattern in permissions.unheard)


@pytest.mark.req("UP-20")
@given(keys, keys)
def test_a_peer_login_hears_all_but_frames_of_its_own_node(mine: bytes, other: bytes) -> None:
    assume(mine != other)
    me, you = token_form(node_id(mine)), token_form(node_id(other))
    member, peer = node_permissions(node_id(mine), at_home=False), peer_permissions(node_id(mine))
    assert peer.publish == member.publish
    for kind in ("call", "ctl", "rep"):
        assert hears(peer, f"hn.{kind}.{you}.{me}.x")
        assert hears(member, f"hn.{kind}.{me}.{me}.x")
        assert not hears(peer, f"hn.{kind}.{me}.{me}.x")
    for kind in ("find", "adv", "event"):
        assert hears(peer, f"hn.{kind}.{you}.x")
        assert not hears(peer, f"hn.{kind}.{me}.x")
    assert not hears(peer, "$SRV.PING"), "operators are answered under the login of the node"


@pytest.mark.req("UP-33")
@given(keys, keys)
def test_an_invite_finds_and_calls_the_community_alone(mine: bytes, other: bytes) -> None:
    assume(mine != other)
    me, you = token_form(node_id(mine)), token_form(node_id(other))
    invite = invite_permissions(node_id(mine))

    def publishes(subject: str) -> bool:
        return any(allows(pattern, subject) for pattern in invite.publish)

    assert publishes(f"hn.call.{me}.{you}.a1b2c3d4.community.join.v1")
    assert publishes(f"hn.find.{me}.community.join.v1")
    for subject in (
        f"hn.call.{me}.{you}.a1b2c3d4.rag.query.v1",
        f"hn.call.{you}.{me}.a1b2c3d4.community.join.v1",
        f"hn.find.{me}.rag.query.v1",
        *(f"hn.{kind}.{me}.community.x" for kind in ("adv", "event")),
        *(f"hn.{kind}.{me}.{you}.a1b2c3d4.community.x" for kind in ("ctl", "rep")),
    ):
        assert not publishes(subject)
    assert hears(invite, f"hn.rep.{you}.{me}.x")
    assert hears(invite, f"hn.adv.{you}.community.join.v1")
    for subject in (
        f"hn.rep.{you}.{you}.x",
        f"hn.adv.{you}.rag.query.v1",
        f"hn.call.{you}.{me}.x",
        f"hn.find.{you}.community.join.v1",
        f"hn.event.{you}.community.log",
        "$SRV.PING",
    ):
        assert not hears(invite, subject)


@pytest.mark.req("OPERATOR-6", "ATTACK-24")
def test_an_operator_asks_services_and_hears_the_answers() -> None:
    assert operator_permissions() == Permissions(("$SRV.>",), (f"{OPERATOR_INBOX}.>",))


@pytest.mark.req("UP-20")
@given(keys)
def test_nothing_of_jetstream_is_in_reach(mine: bytes) -> None:
    permissions = node_permissions(node_id(mine))
    for subject in ("$JS.API.INFO", "$KV.bucket.key", "$O.blobs.C.x", "$SYS.REQ.SERVER.PING", "mk.post.x.y"):
        assert not any(allows(pattern, subject) for pattern in (*permissions.publish, *permissions.subscribe))
    roots = {pattern.split(".")[0] for pattern in (*permissions.publish, *permissions.subscribe)}
    assert roots == {"hn", "$SRV", "_INBOX", "_INBOX_ops"}


def test_what_is_no_node_id_gets_nothing() -> None:
    with pytest.raises(HearthNetError, match="is not a node id"):
        node_permissions("ed25519:AAAA")
