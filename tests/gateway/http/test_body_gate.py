"""Who may send a body, and how much of them at once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.core.times import now_ms
from hearthnet.gateway.http.body_gate import ADMITTED, BodyGate, BodyLimits, BodyRoom, Refusal, release
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


def head(guest: Guest | None, length: int | str | None, path: str = "/v1/call") -> dict[str, Any]:
    """The scope of a request, with the key of `guest`; without a length it comes in chunks."""
    headers = [(b"authorization", guest.bearer["Authorization"].encode())] if guest else []
    length_of = (
        (b"transfer-encoding", b"chunked") if length is None else (b"content-length", str(length).encode())
    )
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "client": ("192.0.2.9", 1),
        "headers": [*headers, length_of],
    }


def grant(house: House) -> str:
    """A token of a member, which counts only with a call that its key has signed."""
    peer = house.bus.peer
    return mint(
        keyring.load_identity(house.mesh.guest.device_key),
        subject=peer.node_id,
        audience=peer.community,
        scope=Scope(("rag.query",)),
        now_ms=now_ms(),
        ttl_seconds=60,
    )


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
async def test_the_number_of_bodies_under_way_is_bounded(shared: House) -> None:
    limits = BodyLimits(client_bytes=10**6, total_bytes=10**7, owner_bytes=0, total_bodies=4, owner_bodies=1)
    gate, owner = BodyGate(shared.gateway.clients, limits), shared.guest(principal=OWNER)
    one, large = shared.guest(), 65_537
    held = [head(one, large) for _ in range(3)]
    assert [code_of(gate, scope) for scope in held] == ["", "", ""]
    assert code_of(gate, head(one, large)) == "capacity_exceeded"
    held.append(head(owner, large))
    assert code_of(gate, held[-1]) == "", "one is for the owner"
    assert code_of(gate, head(owner, large)) == "capacity_exceeded"
    release(held[0])
    held.append(head(owner, large))
    assert code_of(gate, held[-1]) == ""
    for scope in held:
        release(scope)
    assert not gate._bodies
    assert not gate._bytes


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
    assert code_of(gate, head(guest, "0" * 5_000 + "1")) == "bad_request"


@pytest.mark.req("ATTACK-43")
async def test_clients_that_fill_the_room_leave_a_body_to_each_other_one(shared: House) -> None:
    gate = BodyGate(shared.gateway.clients)
    for guest in [shared.guest() for _ in range(4)]:
        assert code_of(gate, head(guest, 25_165_824, "/v1/chat/completions")) == ""
        assert code_of(gate, head(guest, 1)) == "rate_limited"
    other = shared.guest()
    assert code_of(gate, head(other, 65_537)) == "capacity_exceeded"
    first = head(other, 65_536)
    assert code_of(gate, first) == ""
    assert code_of(gate, head(other, 1)) == "capacity_exceeded"
    release(first)
    assert code_of(gate, head(other, 1)) == ""


@pytest.mark.req("ATTACK-43")
async def test_a_member_s_token_takes_the_room_of_its_address(shared: House) -> None:
    """Whoever read the token on its way cannot fill the member's room from elsewhere."""
    gate, token = BodyGate(shared.gateway.clients), grant(shared)

    def shown(address: str, length: int, path: str = "/v1/call") -> dict[str, Any]:
        scope = head(None, length, path)
        scope["headers"].append((b"authorization", b"Bearer " + token.encode()))
        return scope | {"client": (address, 1)}

    for _ in range(4):
        assert code_of(gate, shown("192.0.2.9", 1_048_576)) == ""
    assert code_of(gate, shown("192.0.2.9", 1)) == "rate_limited"
    assert [code_of(gate, shown("192.0.2.8", 1)) for _ in range(33)] == [""] * 32 + ["rate_limited"]
    assert code_of(gate, shown("192.0.2.8", 1_048_577, "/v1/chat/completions")) == "payload_too_large"


@pytest.mark.req("ATTACK-43")
async def test_an_address_has_some_of_the_sockets_of_nobody(shared: House) -> None:
    gate = BodyGate(shared.gateway.clients)

    def opened(address: str) -> dict[str, Any]:
        scope = {"type": "websocket", "path": "/v1/socket", "headers": [], "client": (address, 1)}
        gate.admit_socket(scope)
        return scope

    held = [opened("192.0.2.9") for _ in range(9)]
    assert [type(one[ADMITTED]) for one in held] == [BodyRoom] * 8 + [Refusal]
    for scope in held:
        release(scope)
    assert not gate._sockets
    assert isinstance(opened("192.0.2.9")[ADMITTED], BodyRoom)
    local = [opened("127.0.0.1")[ADMITTED] for _ in range(64)]
    assert [type(one) for one in local] == [BodyRoom] * 63 + [Refusal]


@pytest.mark.req("ATTACK-43")
async def test_a_client_that_its_handshake_names_has_sockets_of_its_own(shared: House) -> None:
    gate = BodyGate(shared.gateway.clients)

    def opened(guest: Guest) -> type:
        scope = head(guest, 0, "/v1/socket") | {"type": "websocket"}
        assert gate.admit_socket(scope)
        return type(scope[ADMITTED])

    one, other = shared.guest(), shared.guest()
    assert [opened(one) for _ in range(129)] == [BodyRoom] * 128 + [Refusal]
    assert opened(other) is BodyRoom


@pytest.mark.req("ATTACK-43")
async def test_members_show_their_token_in_the_head(shared: House) -> None:
    """The token lets the body be read; the signature in the body says that the member is calling."""
    member, token = keyring.load_identity(shared.mesh.guest.device_key), grant(shared)
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
async def test_room_is_given_back_where_a_socket_follows(shared: House) -> None:
    """The protocol of sockets would take the connection over, with the requests that wait on it."""
    gate, guest = shared.gateway.bodies, shared.guest()
    key = b"Authorization: %s\r\n" % guest.bearer["Authorization"].encode()
    begin = b"HTTP/1.1\r\nHost: localhost\r\n" + key
    post = b"POST /v1/call " + begin + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    upgrade = b"GET /v1/socket " + begin + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    port = int(shared.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/me " + begin + b"\r\n" + 9 * post + upgrade)
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 30)
    writer.close()
    await wait_for(lambda: gate._bodies[guest.entry.id] == 0, 30, "the room of all")


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
