"""Who may send a body, and how much of them at once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.core.times import now_ms
from hearthnet.gateway.http.body_gate import ADMITTED, BodyGate, BodyLimits, BodyRoom, release
from hearthnet.trust.authorization.token import OWNER, Scope, mint
from hearthnet.trust.keys import Identity
from tests.helpers.envelopes import sign_envelope
from tests.helpers.gateway import Guest, House
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUERY = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
FEW = BodyLimits(
    client_bytes=3_000, client_bodies=2, total_bytes=5_000, total_bodies=6, owner_bytes=1_000, owner_bodies=1
)


def head(guest: Guest | None, length: int | None, path: str = "/v1/call") -> dict[str, Any]:
    """The scope of a request, with the key of `guest`; without a length it comes in chunks."""
    headers = [(b"authorization", guest.bearer["Authorization"].encode())] if guest else []
    length_of = (b"transfer-encoding", b"chunked") if length is None else (b"content-length", b"%d" % length)
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "client": ("192.0.2.9", 1),
        "headers": [*headers, length_of],
    }


def code_of(gate: BodyGate, scope: dict[str, Any]) -> str:
    """The code with which a body is refused, empty where it is read."""
    return "" if gate.admit(scope) else scope[ADMITTED].error.code


@pytest.mark.req("GATE-9", "ATTACK-43")
async def test_bodies_under_way_are_bounded_and_given_back(shared: House) -> None:
    gate = BodyGate(shared.gateway.clients, FEW)
    one, two, owner = shared.guest(), shared.guest(), shared.guest(principal=OWNER)
    held = [head(one, 2_000), head(one, 500), head(two, 1_400)]
    assert [code_of(gate, scope) for scope in held] == ["", "", ""]
    assert code_of(gate, head(one, 1)) == "rate_limited"
    assert code_of(gate, head(two, 1_700)) == "rate_limited"
    assert code_of(gate, head(two, 200)) == "capacity_exceeded"
    assert code_of(gate, head(owner, 900)) == "", "the owner has room of its own"
    assert isinstance(held[0][ADMITTED], BodyRoom)
    for _ in range(2):
        release(held[0])
    assert code_of(gate, head(two, 200)) == ""
    assert code_of(gate, head(one, 1_000)) == ""


@pytest.mark.req("GATE-9", "ATTACK-43")
async def test_bodies_are_refused_by_their_heads(shared: House) -> None:
    gate, guest = BodyGate(shared.gateway.clients), shared.guest()
    assert code_of(gate, head(None, 0)) == "", "the route answers a request without a body"
    assert code_of(gate, head(None, 1)) == "unauthorized"
    assert code_of(gate, head(None, None)) == "unauthorized"
    assert code_of(gate, head(guest, 1_048_577)) == "payload_too_large"
    assert code_of(gate, head(guest, 1_048_577, "/v1/chat/completions")) == ""
    assert code_of(gate, head(guest, 25_165_825, "/v1/chat/completions")) == "payload_too_large"
    assert code_of(gate, head(None, 4_096, "/v1/session")) == ""
    assert code_of(gate, head(None, 4_097, "/v1/session")) == "payload_too_large"
    assert code_of(gate, head(None, None, "/v1/session")) == "bad_request"


@pytest.mark.req("ATTACK-43")
async def test_members_show_their_token_in_the_head(shared: House) -> None:
    """The token lets the body be read; the signature in the body says that the member is calling."""
    peer = shared.bus.peer
    member = keyring.load_identity(shared.mesh.guest.device_key)
    token = mint(
        member,
        subject=peer.node_id,
        audience=peer.community,
        scope=Scope(("rag.query",)),
        now_ms=now_ms(),
        ttl_seconds=60,
    )
    called = sign_envelope(member, shared.envelope("rag.query", QUERY, "1.0"))
    thief = sign_envelope(Identity.generate(), shared.envelope("rag.query", QUERY, "1.0"))
    async with shared.http() as http:
        unknown = await http.post("/v1/call", json={**called, "token": token})
        assert (unknown.status_code, unknown.headers["connection"]) == (401, "close")
        header = {"Authorization": f"Bearer {token}"}
        stolen = await http.post("/v1/call", json=thief, headers=header)
        assert (stolen.status_code, stolen.json()["error"]) == (401, "invalid_signature")
        answer = await http.post("/v1/call", json=called, headers=header)
    assert answer.status_code == 200, answer.text


@pytest.mark.req("ATTACK-43")
async def test_room_of_requests_that_never_began_is_given_back(shared: House) -> None:
    """The second request on a connection waits for the first one, and its client leaves."""
    gate, workshop, guest = shared.gateway.bodies, shared.workshop, shared.guest()
    port = int(shared.url.rpartition(":")[2])
    body = msgspec.json.encode(
        {"capability": "llm.complete", "body": {"params": {"model": "echo"}, "input": {"prompt": "slow 1"}}}
    )
    request = b"POST /v1/call HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request += b"Authorization: %s\r\n" % guest.bearer["Authorization"].encode()
    request += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    workshop.go.clear()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request * 3)
        await wait_for(lambda: gate._bodies[guest.entry.id] == 3, 30, "three bodies")
        writer.close()
        workshop.go.set()
        await wait_for(lambda: gate._bodies[guest.entry.id] == 0, 30, "the room of all")
    finally:
        workshop.go.set()
