"""Tokens: issued within what their issuer may do, revoked everywhere, explained."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization import token as tokens
from hearthnet.trust.keys import Identity
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, POST, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for
from tests.services.auth.houses import (
    INTROSPECT,
    ISSUE,
    POLICY,
    PROMOTE,
    REVOKE_TOKEN,
    House,
    body,
    living,
)

pytestmark = pytest.mark.asyncio


async def refused(house: House, capability: str, **members: object) -> HearthNetError:
    """The error that a call ends with."""
    with pytest.raises(HearthNetError) as caught:
        await house.do(capability, **members)
    return caught.value


@pytest.mark.req("AUTH-1")
async def test_a_token_lets_its_subject_do_what_it_says(mesh: Mesh) -> None:
    async with (
        living(mesh, mesh.home) as founder,
        mesh.hosting(ProbeService(trust="trusted")),
        await mesh.guest_bus() as guest,
    ):
        client_id = ids.new_ulid()
        wanted = {
            "client_id": client_id,
            "subject": guest.peer.node_id,
            "scope": {
                "capabilities": [QUERY],
                "corpora": ["probe"],
                "max_calls_total": 2,
                "rate_limit_per_minute": None,
            },
            "ttl_seconds": 600,
        }
        made = await founder.do(ISSUE, **wanted)
        again = await founder.do(ISSUE, **wanted)
        reused = await refused(founder, ISSUE, **{**wanted, "ttl_seconds": 60})
        with pytest.raises(HearthNetError) as without:
            await guest.call(QUERY, query())
        assert (await guest.call(QUERY, query(), token=made["token"])).output
        with pytest.raises(HearthNetError) as wider:
            await guest.call(CHAT, CHAT_BODY, token=made["token"])
    claims = tokens.decode(made["token"])
    assert (made, claims.jti) == (again, made["token_id"])
    assert claims.scope.params_constraints == {"corpus": ["probe"]}
    assert (claims.exp - claims.iat, claims.issued_via, claims.scope.max_calls_total) == (600, "manual", 2)
    assert reused.code == "bad_request"
    assert without.value.code == "unauthorized"
    assert wider.value.code == "token_scope_insufficient"


@pytest.mark.req("AUTH-1")
async def test_a_session_names_its_guest_and_the_guests_key(mesh: Mesh) -> None:
    key = Identity.generate()
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": key.token}
    async with living(mesh, mesh.home) as founder, mesh.hosting(ProbeService()):
        scope = {"capabilities": [POST], "max_effects": 3}
        made = await founder.do(
            ISSUE, subject=founder.node_id, scope=scope, principal="anna", cnf={"jwk": jwk}
        )
        said = await founder.do(INTROSPECT, token=made["token"])
        malformed = await refused(
            founder,
            ISSUE,
            subject=founder.node_id,
            scope=scope,
            principal="anna",
            cnf={"jwk": {**jwk, "x": "B" * 43}},
        )
    claims = tokens.decode(made["token"])
    assert claims.cnf is not None
    assert (claims.kind, claims.principal, claims.cnf.key) == ("session", "anna", key.node_id)
    assert said["principal"] == "anna"
    assert malformed.code == "bad_request"


REFUSALS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "for anybody": ("unauthorized", "one for anybody is not issued", {"subject": "*"}),
    "for a stranger": ("not_found", "is no member of", {"subject": Identity.generate().node_id}),
    "for another community": (
        "not_federated",
        "no agreement with that one",
        {"audience": Identity.generate().node_id},
    ),
    "of what nobody offers": (
        "not_found",
        "nobody offers llm.complete@1.0 now",
        {"scope": {"capabilities": ["llm.complete@1.0"]}},
    ),
    "of a version that nobody offers": (
        "not_found",
        "nobody offers rag.query@1.7 now",
        {"scope": {"capabilities": ["rag.query@1.7"]}},
    ),
    "of more than the issuer may do": (
        "unauthorized",
        "rag.query takes more than level member",
        {"scope": {"capabilities": ["rag.query"]}},
    ),
    "to issue tokens": (
        "unauthorized",
        "auth.token.issue is not called under a token",
        {"scope": {"capabilities": ["auth.token.issue"]}},
    ),
    "of what is the node's own": (
        "unauthorized",
        "community.revoke@1.0 serves only its own node",
        {"scope": {"capabilities": ["community.revoke@1.0"]}},
    ),
    "longer than the rules say": ("bad_request", "live 600 seconds at most", {"ttl_seconds": 601}),
    "with a limit unknown here": (
        "bad_request",
        "per_night",
        {"scope": {"capabilities": ["market.post"], "per_night": 1}},
    ),
    "with corpora in two places": (
        "bad_request",
        "say the same; give one",
        {"corpora": ["a"], "scope": {"capabilities": ["market.post"], "corpora": ["a"]}},
    ),
    "with corpora twice": (
        "bad_request",
        "say the same; give one",
        {
            "corpora": ["a"],
            "scope": {"capabilities": ["market.post"], "params_constraints": {"corpus": ["a"]}},
        },
    ),
    "too long": (
        "payload_too_large",
        "name fewer capabilities or shorter values",
        {
            "scope": {
                "capabilities": ["market.post"],
                "params_constraints": {f"input.{letter * 60}": [letter * 99] for letter in "abcdefghij"},
            }
        },
    ),
}


@pytest.mark.req("AUTH-2")
async def test_a_token_is_not_issued_beyond_its_issuer_and_the_rules(mesh: Mesh) -> None:
    service = ProbeService(trust="anchor")
    async with (
        living(mesh, mesh.home) as founder,
        living(mesh, mesh.guest) as guest,
        mesh.hosting(service),
    ):
        await founder.do(POLICY, capability_token_ttl_seconds=600)
        await wait_for(
            lambda: guest.auth._membership.roster.policy.capability_token_ttl_seconds == 600, what="the rules"
        )
        usual: dict[str, Any] = {
            "subject": founder.node_id,
            "scope": {"capabilities": ["market.post"]},
            "ttl_seconds": 60,
        }
        assert (await guest.do(ISSUE, **usual))["token"]
        errors = {
            name: await refused(guest, ISSUE, **{**usual, **change})
            for name, (_, _, change) in REFUSALS.items()
        }
        to_itself = {**usual, "subject": guest.node_id, "scope": {"capabilities": ["auth.token.issue"]}}
        assert (await refused(guest, ISSUE, **to_itself)).code == "unauthorized"
        with pytest.raises(HearthNetError) as elsewhere:
            await guest.bus.call(ISSUE, body(**usual), node=founder.node_id)
    for name, (code, words, _) in REFUSALS.items():
        assert (name, errors[name].code) == (name, code)
        assert words in errors[name].message
    assert elsewhere.value.code == "not_found", "who signs with a key serves nobody else"


@pytest.mark.req("AUTH-2", "TOKEN-1")
async def test_tokens_are_not_issued_under_a_token(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder:
        own = founder.identity
        under = tokens.mint(
            own,
            subject=own.node_id,
            audience=founder.bus.peer.community,
            scope=tokens.Scope(("auth.token.issue@1.0",)),
            now_ms=now_ms(),
            ttl_seconds=60,
        )
        wanted = body(subject=own.node_id, scope={"capabilities": ["community.sync@1.0"]})
        with pytest.raises(HearthNetError) as caught:
            await founder.bus.call(ISSUE, wanted, token=under)
    assert caught.value.code == "unauthorized"
    assert "auth.token.issue" in caught.value.message
    assert "under a token" in caught.value.message


@pytest.mark.req("AUTH-3", "TOKEN-1")
async def test_a_token_is_revoked_by_its_issuer_a_trusted_member_and_nobody_else(mesh: Mesh) -> None:
    async with (
        living(mesh, mesh.home) as founder,
        living(mesh, mesh.guest) as guest,
        mesh.hosting(ProbeService()) as host,
    ):
        scope = {"capabilities": [QUERY]}
        mine = await founder.do(ISSUE, subject=guest.node_id, scope=scope)
        theirs = await guest.do(ISSUE, subject=founder.node_id, scope=scope)
        stranger = await refused(guest, REVOKE_TOKEN, token_id=mine["token_id"], issuer=founder.node_id)
        assert (await guest.bus.call(QUERY, query(), token=mine["token"])).output
        first = await founder.do(REVOKE_TOKEN, token_id=mine["token_id"], reason="compromise")
        again = await founder.do(REVOKE_TOKEN, token_id=mine["token_id"])
        await founder.do(REVOKE_TOKEN, token_id=theirs["token_id"], issuer=guest.node_id)
        for document, bus in ((mine, guest.bus), (theirs, founder.bus)):
            claims = tokens.decode(document["token"])
            await wait_for(
                partial(host.peer.membership.revocations.revoked, claims.iss, claims.jti),
                what="the revocation",
            )
            with pytest.raises(HearthNetError) as caught:
                await bus.call(QUERY, query(), token=document["token"])
            assert caught.value.code == "token_revoked"
        said = await guest.do(INTROSPECT, token=mine["token"])
    assert stranger.code == "unauthorized"
    assert first == again
    assert (said["active"], said["reason"]) == (False, "token_revoked")


@pytest.mark.req("AUTH-4")
async def test_a_token_is_explained_to_its_issuer_and_its_subject_at_their_own_nodes(mesh: Mesh) -> None:
    async with living(mesh, mesh.home) as founder, living(mesh, mesh.guest) as guest:
        await founder.do(PROMOTE, target_node_id=guest.node_id, new_level="trusted")
        scope = {"capabilities": ["community.sync@1.0"], "max_calls_total": 7}
        made = await founder.do(ISSUE, subject=guest.node_id, scope=scope, ttl_seconds=60)
        said = [await house.do(INTROSPECT, token=made["token"]) for house in (founder, guest)]
        late = tokens.mint(
            founder.identity,
            subject=guest.node_id,
            audience=founder.bus.peer.community,
            scope=tokens.Scope(("community.sync@1.0",)),
            now_ms=now_ms() - 7_200_000,
            ttl_seconds=60,
        )
        foreign = tokens.mint(
            Identity.generate(),
            subject=guest.node_id,
            audience=founder.bus.peer.community,
            scope=tokens.Scope(("community.sync@1.0",)),
            now_ms=now_ms(),
            ttl_seconds=60,
        )
        reasons = [(await guest.do(INTROSPECT, token=text))["reason"] for text in (late, foreign)]
        no_token = await refused(guest, INTROSPECT, token="hntoken://v1/e30.e30.e30")
    assert said[0] == said[1]
    assert said[0]["active"] is True
    assert said[0]["scope"] == scope
    assert (said[0]["issuer"], said[0]["subject"]) == (founder.node_id, guest.node_id)
    assert reasons == ["token_expired", "unauthorized"]
    assert no_token.code == "token_invalid"
