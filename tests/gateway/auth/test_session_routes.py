"""Who gets in, and how: over a real server, a real bus and a real socket."""

from __future__ import annotations

import pytest

from hearthnet import __version__
from hearthnet.trust.keys import Identity
from tests.helpers.envelopes import opening, parts_of, sign_envelope
from tests.helpers.gateway import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("GATE-1")
async def test_the_gateway_says_that_it_is_well(shared: House) -> None:
    async with shared.http() as http:
        answer = await http.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "version": __version__})


@pytest.mark.req("GATE-2")
async def test_a_client_learns_who_it_is(shared: House) -> None:
    guest = shared.guest("rag.query", key=True)
    async with shared.http(guest) as http:
        page = (await http.get("/v1/me")).json()
    assert guest.identity is not None
    assert page.pop("time") >= guest.entry.created_at
    assert page == {
        "node": shared.bus.peer.node_id,
        "community": shared.bus.peer.community,
        "id": guest.entry.id,
        "name": guest.entry.name,
        "principal": f"{shared.bus.peer.node_id}/{guest.entry.principal}",
        "key": guest.identity.node_id,
        "scope": {"capabilities": ["rag.query"]},
        "expires_at": guest.entry.expires_at,
    }


@pytest.mark.req("GATE-3")
async def test_a_link_makes_a_client_once(shared: House) -> None:
    page = Identity.generate()
    body = opening(page, shared.gateway.links.make(), shared.bus.peer.node_id, "Anna's phone")
    async with shared.http() as http:
        opened = await http.post("/v1/session", json=body)
        assert opened.status_code == 201, opened.text
        assert opened.json()["key"] == page.node_id
        assert (await http.get("/v1/me")).json()["name"] == "Anna's phone"
    async with shared.http() as http:
        again = await http.post("/v1/session", json=body)
    assert (again.status_code, again.json()["error"]) == (401, "unauthorized")


@pytest.mark.req("PERSON-82", "ATTACK-116")
async def test_a_link_is_opened_with_a_key_that_one_has(shared: House) -> None:
    """Somebody opens their own link with the key of another one's browser, which is no device yet."""
    victim, own, node = Identity.generate(), Identity.generate(), shared.bus.peer.node_id
    link = shared.gateway.links.link(shared.url, "mallory")
    base, code, named = parts_of(link)
    assert (base, named) == (shared.url, node)
    seen = opening(victim, shared.gateway.links.make("victim"), node)
    envelope = sign_envelope(victim, shared.envelope("rag.query", {}, "1.0"))
    wrong = [
        {"code": code, "key": victim.node_id},
        {**opening(own, code, node), "key": victim.node_id},
        {**seen, "code": code},
        {**opening(victim, code, node), "name": "another name"},
        opening(victim, code, Identity.generate().node_id),
        {**opening(victim, code, node), "signature": "ed25519:nothing"},
        {**opening(victim, code, node), "signature": envelope["signature"]},
    ]
    async with shared.http() as http:
        for body in wrong:
            refused = await http.post("/v1/session", json=body)
            assert (refused.status_code, refused.json()["error"]) == (401, "invalid_signature"), body
        assert not [one for one in shared.gateway.clients.book.entries() if one.key == victim.node_id]
        opened = await http.post("/v1/session", json=opening(own, code, node))
    assert opened.status_code == 201, "none of these has used the link"


@pytest.mark.req("GATE-4")
async def test_a_call_goes_out_under_the_clients_token(shared: House) -> None:
    client = shared.client(shared.guest("rag.query"))
    body = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
    reply = await shared.bus.call("rag.query", body, token=shared.gateway.clients.token(client))
    assert reply.output["chunks"][0]["text"] == "about water"
    assert shared.workshop.calls[-1].principal == client.principal
