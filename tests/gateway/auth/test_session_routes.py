"""Who gets in, and how: over a real server, a real bus and a real socket."""

from __future__ import annotations

import pytest

from hearthnet import __version__
from hearthnet.trust.keys import Identity
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
    code, key = shared.gateway.links.make(), Identity.generate().node_id
    opening = {"code": code, "key": key, "name": "Anna's phone"}
    async with shared.http() as http:
        opened = await http.post("/v1/session", json=opening)
        assert opened.status_code == 201, opened.text
        assert opened.json()["key"] == key
        assert (await http.get("/v1/me")).json()["name"] == "Anna's phone"
    async with shared.http() as http:
        again = await http.post("/v1/session", json=opening)
    assert (again.status_code, again.json()["error"]) == (401, "unauthorized")


@pytest.mark.req("GATE-4")
async def test_a_call_goes_out_under_the_clients_token(shared: House) -> None:
    client = shared.client(shared.guest("rag.query"))
    body = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
    reply = await shared.bus.call("rag.query", body, token=shared.gateway.clients.token(client))
    assert reply.output["chunks"][0]["text"] == "about water"
    assert shared.workshop.calls[-1].principal == client.principal
