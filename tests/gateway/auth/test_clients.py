"""Whom the gateway takes for whom: keys of the book, tokens from elsewhere, signed calls; and who is gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import HTTPConnection

from hearthnet.bus.session import keyring
from hearthnet.cli.entry_point import run
from hearthnet.contracts.registry import contracts
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import ServiceState, read_node_state
from hearthnet.core.times import now_ms, rfc3339
from hearthnet.gateway.auth.client_store import ClientStore, api_key
from hearthnet.gateway.auth.clients import Client, Clients
from hearthnet.gateway.auth.login_links import LinkBook
from hearthnet.gateway.http.rate_limits import RateLimits
from hearthnet.trust.authorization import revocation
from hearthnet.trust.authorization.authority import UNDELEGABLE
from hearthnet.trust.authorization.token import Scope, decode, mint
from hearthnet.trust.keys import Identity
from tests.helpers.envelopes import sign_envelope
from tests.helpers.gateway import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUERY: dict[str, Any] = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
SCOPE = Scope(("rag.query",))


def asking(bearer: str = "", cookie: str = "") -> HTTPConnection:
    """A request that shows these."""
    headers = [(b"authorization", f"Bearer {bearer}".encode())] if bearer else []
    headers += [(b"cookie", cookie.encode())] if cookie else []
    return HTTPConnection({"type": "http", "headers": headers, "client": ("127.0.0.1", 1)})


def minted(house: House, issuer: Identity, **changes: Any) -> str:
    """A token for the house's gateway."""
    fields: dict[str, Any] = {
        "subject": house.bus.peer.node_id,
        "audience": house.bus.peer.community,
        "scope": SCOPE,
        "now_ms": now_ms(),
        "ttl_seconds": 600,
    }
    return mint(issuer, **{**fields, **changes})


def neighbour(house: House) -> Identity:
    """Another member of the community."""
    return keyring.load_identity(house.mesh.guest.device_key)


async def refused(house: House, code: str, bearer: str = "", cookie: str = "") -> str:
    """Why a request is refused."""
    with pytest.raises(HearthNetError) as raised:
        await house.gateway.clients.from_request(asking(bearer, cookie))
    assert raised.value.code == code
    return raised.value.message


def not_taken(house: House, code: str, envelope: dict[str, Any], client: Client | None = None) -> None:
    """The call is refused."""
    with pytest.raises(HearthNetError) as raised:
        house.gateway.clients.from_envelope(envelope, client)
    assert raised.value.code == code, raised.value


@pytest.mark.req("GATE-2")
async def test_wrong_keys_are_all_told_the_same(shared: House) -> None:
    guest = shared.guest()
    wrong = [
        f"hnk_{guest.entry.id}_{'A' * 43}",
        "hnk_aaaaaaaa_x",
        "hnk_../../x_y",
        "hnk_x",
        "hnk__",
        "hnk_é_ü",
    ]
    said = {await refused(shared, "unauthorized", bearer) for bearer in wrong}
    cookies = [f"{guest.cookie}={guest.entry.id}_x", f"{guest.cookie}=x"]
    said |= {await refused(shared, "unauthorized", cookie=cookie) for cookie in cookies}
    assert len(said) == 1
    assert "say who you are" in await refused(shared, "unauthorized")
    assert "no key" in await refused(shared, "unauthorized", "sk-something-of-another-house")
    basic = {"type": "http", "headers": [(b"authorization", b"Basic x")], "client": None}
    with pytest.raises(HearthNetError, match="takes the form"):
        await shared.gateway.clients.from_request(HTTPConnection(basic))


@pytest.mark.req("GATE-2", "GATE-4")
async def test_a_guest_of_a_neighbour_comes_with_a_token_for_this_node(shared: House) -> None:
    issuer, key = neighbour(shared), Identity.generate()
    shown = minted(shared, issuer, principal="bo", cnf=key.node_id)
    client = await shared.gateway.clients.from_request(asking(shown))
    assert client.principal == f"{issuer.node_id}/bo"
    assert client.key == key.node_id
    assert shared.gateway.clients.token(client) == shown
    assert shown not in repr(client)
    reply = await shared.bus.call("rag.query", QUERY, token=shown)
    assert reply.output["chunks"]
    assert shared.workshop.calls[-1].principal == client.principal


@pytest.mark.req("GATE-16")
async def test_socket_takes_keys_and_session_tokens_in_its_frame(shared: House) -> None:
    clients, guest, issuer = shared.gateway.clients, shared.guest(), neighbour(shared)
    key = guest.bearer["Authorization"].removeprefix("Bearer ")
    session, own = minted(shared, issuer, principal="bo"), minted(shared, issuer)
    assert [clients.is_bearer(shown) for shown in (key, session, own, "", "sk-x")] == [1, 1, 0, 0, 1]
    assert (await clients.from_request(asking(), key)).id == guest.entry.id
    assert (await clients.from_request(asking(), session)).principal == f"{issuer.node_id}/bo"
    with pytest.raises(HearthNetError, match="not known"):
        await clients.from_request(asking(), f"hnk_{guest.entry.id}_{'A' * 43}")
    other = shared.guest()
    shown = api_key(other.entry, other.secret)
    assert (await clients.from_request(asking(shown), key)).id == other.entry.id


@pytest.mark.req("GATE-2", "SESS-4")
async def test_token_of_a_client_lets_no_provider_in(shared: House) -> None:
    """A neighbour whose model answered the owner's page has the token that the question came with."""
    clients, guest = shared.gateway.clients, shared.guest()
    client = await clients.from_request(asking(guest.bearer["Authorization"].removeprefix("Bearer ")))
    assert "by this token itself" in await refused(shared, "unauthorized", clients.token(client))
    with pytest.raises(HearthNetError, match="by this token itself"):
        await clients.from_request(asking(), clients.token(client))
    own = shared.bus.peer.identity
    issued = minted(shared, own, principal="bo", issued_via="manual")
    assert (await clients.from_request(asking(issued))).principal == f"{own.node_id}/bo"


@pytest.mark.req("GATE-2", "GATE-14")
async def test_tokens_that_do_not_hold_are_refused(shared: House) -> None:
    issuer, peer = neighbour(shared), shared.bus.peer
    elsewhere = minted(shared, issuer, principal="bo", subject=Identity.generate().node_id)
    await refused(shared, "invalid_signature", elsewhere)
    await refused(shared, "unauthorized", minted(shared, issuer, principal="bo", audience=issuer.node_id))
    await refused(shared, "token_expired", minted(shared, issuer, principal="bo", now_ms=now_ms() - 900_000))
    await refused(shared, "unauthorized", minted(shared, Identity.generate(), principal="bo"))
    await refused(shared, "unauthorized", minted(shared, issuer))
    await refused(shared, "bad_request", "hntoken://v1/x.y.é")
    shown = minted(shared, issuer, principal="bo")
    client = await shared.gateway.clients.from_request(asking(shown))
    token_id = decode(shown).jti
    document = revocation.TokenRevocation.sign(issuer, token_id, issuer.node_id, "manual", now_ms=now_ms())
    await peer.membership.add((), [document])
    await refused(shared, "token_revoked", shown)
    late = Clients(peer, shared.gateway.clients.book, clock=lambda: now_ms() + 700_000)
    with pytest.raises(HearthNetError, match="life is over"):
        late.token(client)


@pytest.mark.req("GATE-2", "GATE-14")
async def test_a_member_calls_with_its_own_key(shared: House) -> None:
    member = neighbour(shared)
    said = shared.envelope("rag.query", QUERY, "1.0", token=minted(shared, member))
    envelope = sign_envelope(member, said)
    client = shared.gateway.clients.from_envelope(envelope, None)
    assert (client.principal, client.key) == (member.node_id, member.node_id)
    reply = await shared.bus.call("rag.query", QUERY, token=shared.gateway.clients.token(client))
    assert reply.output["chunks"]
    assert shared.workshop.calls[-1].principal == member.node_id
    not_taken(shared, "invalid_signature", envelope)  # the same once more
    thief = sign_envelope(Identity.generate(), said)
    not_taken(shared, "invalid_signature", thief)
    not_taken(shared, "unauthorized", shared.envelope("rag.query", QUERY, "1.0"))
    session = minted(shared, member, principal="bo")
    not_taken(shared, "unauthorized", sign_envelope(member, {**said, "token": session}))


@pytest.mark.req("GATE-14")
async def test_a_signed_call_counts_once_now_and_as_it_was_said(shared: House) -> None:
    guest = shared.guest(key=True)
    assert guest.identity is not None
    client = shared.client(guest)
    good = shared.envelope("rag.query", QUERY, "1.0", guest)
    for name in ("capability", "version", "request_id", "timestamp", "body", "community"):
        not_taken(shared, "invalid_signature", {**good, name: "2026-11-21T20:15:00Z"}, client)
        not_taken(shared, "bad_request", {key: value for key, value in good.items() if key != name}, client)
    not_taken(shared, "invalid_signature", {**good, "signature": "x"}, client)
    not_taken(shared, "invalid_signature", {**good, "signature": "ed25519:AAAA"}, client)
    not_taken(shared, "bad_request", {**good, "signature": "ed25519:!"}, client)
    not_taken(shared, "invalid_signature", {**good, "from": Identity.generate().node_id}, client)
    not_taken(shared, "invalid_signature", shared.envelope("rag.query", QUERY, "1.0"), client)
    for odd, code in (
        ({"timestamp": rfc3339(now_ms() - 61_000 - 1000)}, "expired"),
        ({"timestamp": "yesterday"}, "bad_request"),
        ({"request_id": "x"}, "bad_request"),
        ({"community": Identity.generate().node_id}, "invalid_signature"),
        ({"body": 1e400}, "bad_request"),
    ):
        said = {**good, **odd}
        with contextlib.suppress(HearthNetError):
            said = sign_envelope(guest.identity, said)
        not_taken(shared, code, said, client)
    assert shared.gateway.clients.from_envelope(good, client) == client
    not_taken(shared, "invalid_signature", good, client)


@pytest.mark.req("GATE-2")
async def test_a_client_without_a_key_signs_nothing(shared: House) -> None:
    client = shared.client(shared.guest())
    said = shared.envelope("rag.query", QUERY, "1.0")
    assert shared.gateway.clients.from_envelope(said, client) is client
    not_taken(shared, "bad_request", sign_envelope(Identity.generate(), said), client)


@pytest.mark.req("GATE-6", "GATE-8")
async def test_who_is_removed_has_no_token_any_more(shared: House) -> None:
    guest = shared.guest("rag.query")
    client = await shared.gateway.clients.from_request(asking(api_key(guest.entry, guest.secret)))
    token = shared.gateway.clients.token(client)
    claims = decode(token)
    assert claims.exp - claims.iat == 3600
    assert shared.gateway.clients.token(client) == token
    ClientStore(shared.mesh.home).remove(guest.entry.id)
    await refused(shared, "unauthorized", api_key(guest.entry, guest.secret))
    with pytest.raises(HearthNetError, match="not known"):
        shared.gateway.clients.token(client)


@pytest.mark.req("GATE-4")
async def test_tokens_are_renewed_before_their_time_is_over(shared: House) -> None:
    now = [now_ms()]
    clients = Clients(shared.bus.peer, ClientStore(shared.mesh.home), clock=lambda: now[0])
    client = clients.of(shared.guest(principal="carla").entry)
    first = clients.token(client)
    now[0] += 49 * 60_000
    assert clients.token(client) == first
    now[0] += 2 * 60_000
    second = clients.token(client)
    assert decode(second).exp - now[0] // 1000 == 3600
    now[0] -= 86_400_000  # a clock that was set
    assert clients.token(client) != second


@pytest.mark.req("GATE-4")
async def test_a_scope_without_names_is_all_that_a_guest_may_ever_call(shared: House) -> None:
    clients, guest = shared.gateway.clients, shared.guest()
    scope = clients.scope_of(guest.entry)
    of_members = {one.name for one in contracts() if one.trust_required in ("member", "trusted", "anchor")}
    of_members -= UNDELEGABLE
    assert set(scope.capabilities) == of_members
    assert {"llm.chat", "market.post", "rag.query"} <= of_members
    assert not any(name.startswith(("auth.", "community.", "node.trace")) for name in of_members)
    assert len(clients.token(shared.client(guest))) < 2048


@pytest.mark.req("GATE-4")
async def test_the_owners_page_may_call_what_the_owner_added(shared: House) -> None:
    clients, owner, guest = shared.gateway.clients, shared.guest(principal="owner"), shared.guest()
    before = clients.token(shared.client(owner))
    names = [f"experimental.mcp.everything-{number:02}.*" for number in range(40)]
    tools = [name.replace("*", tool) for name in names for tool in ("one", "two")]
    offers = (*(f"{tool}@1.0" for tool in tools), "experimental.odd@1.0", "rag.query@1.0 corpus=system")
    state = read_node_state(shared.mesh.home)
    service = ServiceState("mcp", 1, "ready", 0, None, offers, 0)
    changed = msgspec.structs.replace(state, services=(service,))
    shared.mesh.home.state.write_bytes(msgspec.json.encode(changed))
    scope = clients.scope_of(owner.entry)
    assert names[0] in scope.capabilities
    assert tools[0] not in scope.capabilities
    assert all(scope.covers(parse_capability(f"{tool}@1.0")) for tool in tools[:2])
    assert names[39] not in scope.capabilities  # there is no room for so many
    token = clients.token(shared.client(owner))
    assert token != before
    assert token == clients.token(shared.client(owner))
    assert not any(name.startswith("experimental.") for name in clients.scope_of(guest.entry).capabilities)
    shared.mesh.home.state.write_bytes(b"{")
    assert names[0] not in clients.scope_of(owner.entry).capabilities
    shared.mesh.home.state.unlink()
    assert names[0] not in clients.scope_of(owner.entry).capabilities
    shared.mesh.home.state.write_bytes(msgspec.json.encode(state))


@pytest.mark.req("GATE-12")
async def test_who_asks_too_often_is_told_when_to_come_back(shared: House) -> None:
    clients = Clients(shared.bus.peer, ClientStore(shared.mesh.home), RateLimits((3, 0.001), (2, 0.001)))
    one, other = shared.guest(), shared.guest()
    for _ in range(3):
        await clients.from_request(asking(api_key(one.entry, one.secret)))
    with pytest.raises(HearthNetError) as raised:
        await clients.from_request(asking(api_key(one.entry, one.secret)))
    assert raised.value.code == "rate_limited"
    assert 900_000 < (raised.value.retry_after_ms or 0) <= 1_000_000  # one each 1000 s
    await clients.from_request(asking(api_key(other.entry, other.secret)))
    for code in ("unauthorized", "unauthorized", "rate_limited"):
        with pytest.raises(HearthNetError) as raised:
            await clients.from_request(asking("hnk_aaaaaaaa_x"))
        assert raised.value.code == code
    await clients.from_request(asking(api_key(other.entry, other.secret)))  # is not blamed for it
    limits = RateLimits()
    limits.opened("a", 1)
    with pytest.raises(HearthNetError, match="streams open"):
        limits.opened("a", 1)
    assert limits._open.total() == 1
    limits.closed("a")
    assert limits._open.total() == 0


# --- the book and the links, which are files


@pytest.mark.req("GATE-6")
async def test_the_book_keeps_hashes_and_passes_over_what_is_damaged(tmp_path: Path) -> None:
    book = ClientStore(Home(tmp_path))
    assert book.entries() == []
    entry, secret = book.add("a phone", "anna")
    file = tmp_path / "clients" / f"{entry.id}.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert secret not in file.read_text()
    assert book.prove(entry.id, secret) == entry
    over, late = book.add("old", life_ms=-1)
    with pytest.raises(HearthNetError) as raised:
        book.prove(over.id, late)
    assert raised.value.code == "token_expired"
    (tmp_path / "clients" / "aaaaaaaa.json").write_text("{")
    (tmp_path / "clients" / "bbbbbbbb.json").write_text(file.read_text())
    (tmp_path / "clients" / "notes.txt").write_text("x")
    # Both may be of one millisecond.
    assert sorted(one.id for one in book.entries()) == sorted([entry.id, over.id])
    assert book.remove(entry.id)
    assert not book.remove(entry.id)
    assert not book.remove("../../etc/passwd")


@pytest.mark.req("GATE-6")
@pytest.mark.parametrize(
    "given", [{"name": ""}, {"name": "x" * 81}, {"name": "a\nb"}, {"principal": "a/b"}, {"key": "ed25519:x"}]
)
async def test_a_client_that_could_not_be_shown_or_called_is_refused(
    tmp_path: Path, given: dict[str, str]
) -> None:
    book = ClientStore(Home(tmp_path))
    with pytest.raises(HearthNetError) as raised:
        book.add(given.get("name", "x"), given.get("principal", ""), key=given.get("key", ""))
    assert raised.value.code == "bad_request"
    assert book.ids() == []


@pytest.mark.req("GATE-12")
async def test_the_book_is_full_at_some_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.gateway.auth.client_store.MOST_CLIENTS", 1)
    book = ClientStore(Home(tmp_path))
    book.add("one")
    with pytest.raises(HearthNetError, match="remove one"):
        book.add("two")
    assert len(book.entries()) == 1


@pytest.mark.req("GATE-3")
async def test_a_code_is_good_once_however_many_come(tmp_path: Path) -> None:
    book = LinkBook(Home(tmp_path))
    code = book.make("anna")
    assert code not in " ".join(os.listdir(tmp_path / "run" / "links"))

    def use() -> str:
        try:
            return book.use(code).principal
        except HearthNetError as error:
            return error.code

    said = await asyncio.gather(*(asyncio.to_thread(use) for _ in range(16)))
    assert sorted(said) == ["anna", *["unauthorized"] * 15]


@pytest.mark.req("GATE-3")
async def test_a_code_has_its_time(tmp_path: Path) -> None:
    book = LinkBook(Home(tmp_path))
    late = book.make(life_ms=-1)
    with pytest.raises(HearthNetError, match="no longer"):
        book.use(late)
    book.make(life_ms=-1)
    (tmp_path / "run" / "links" / ("a" * 64)).write_text("{")
    began = now_ms()
    kept = book.make()
    made = now_ms()
    assert len(os.listdir(tmp_path / "run" / "links")) == 1
    link = book.use(kept)
    assert link.principal == "owner"
    assert began <= link.expires_at - 600_000 <= made, "ten minutes"


@pytest.mark.req("GATE-3")
async def test_two_pages_with_one_code_at_once(shared: House) -> None:
    code = shared.gateway.links.make()
    async with shared.http() as http:
        answers = await asyncio.gather(*(http.post("/v1/session", json={"code": code}) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [201, 401, 401, 401, 401]
    code = shared.gateway.links.make()
    async with shared.http() as http:
        passed_on = await http.post(
            "/v1/session", json={"code": code}, headers={"x-forwarded-for": "192.0.2.9"}
        )
        assert passed_on.status_code == 401
        assert "on the node's own computer only" in passed_on.json()["message"]
        odd: list[Any] = [
            {"code": code, "name": ""},
            {"code": code, "key": "x"},
            {"code": code, "more": 1},
            [],
        ]
        for opening in odd:
            answer = await http.post("/v1/session", json=opening)
            assert (answer.status_code, answer.json()["error"]) == (400, "bad_request"), opening
    assert shared.gateway.links.use(code).principal == "owner", "none of these has used it"


@pytest.mark.req("GATE-3")
async def test_a_link_opens_on_this_computer_alone(shared: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.gateway.auth.session_routes.address_of", lambda _request: "192.0.2.9")
    code = shared.gateway.links.make()
    async with shared.http() as http:
        answer = await http.post("/v1/session", json={"code": code})
        assert "on the node's own computer only" in answer.json()["message"]
        monkeypatch.setattr("hearthnet.gateway.auth.session_routes.address_of", lambda _request: "odd")
        assert (await http.post("/v1/session", json={"code": code})).status_code == 401
    assert shared.gateway.links.use(code).principal == "owner"


@pytest.mark.req("GATE-8")
async def test_a_token_from_elsewhere_is_not_ended_here(shared: House) -> None:
    shown = minted(shared, neighbour(shared), principal="bo")
    async with shared.http(headers={"Authorization": f"Bearer {shown}"}) as http:
        kept = await http.delete("/v1/session")
        assert (kept.status_code, kept.json()["error"]) == (400, "bad_request")
        assert "a token ends by its own time" in kept.json()["message"]
        assert (await http.get("/v1/me")).json()["principal"].endswith("/bo")


@pytest.mark.req("GATE-6")
async def test_the_commands_without_a_gateway(shared: House, capsys: pytest.CaptureFixture[str]) -> None:
    home = ("--home", str(shared.mesh.home.path))
    assert run(["link", *home]) == 5  # the node runs, its gateway does not
    assert "no gateway runs here" in capsys.readouterr().err
    away = ("--home", str(shared.mesh.guest.path))
    assert run(["clients", "add", "twin", *away]) == 0  # no node runs there at all
    assert run(["clients", "add", "twin", *away, "--json"]) == 0
    said = capsys.readouterr()
    assert '"url":null' in said.out.replace(" ", "")
    assert "base URL" not in said.err
    assert run(["clients", "remove", "twin", *away]) == 2
    assert "2 clients are called 'twin'" in capsys.readouterr().err
    tool = "experimental.mcp.clock.now"
    assert run(["clients", "add", "agent", "--scope", tool, *away, "--json"]) == 3
    assert "no node" in capsys.readouterr().err
    assert run(["clients"]) == 0
    assert "hearthnet clients add editor" in capsys.readouterr().out


@pytest.mark.req("GATE-15")
async def test_what_is_called_for_a_request_is_one_trace(shared: House) -> None:
    traces = shared.bus.peer.traces
    before = traces.count
    async with shared.http(shared.guest()) as http:
        called = await http.post("/v1/call", json={"capability": "rag.query", "body": QUERY})
        await http.post("/v1/session", json={"code": "x"})
        await http.get("/v1/me")
    assert called.status_code == 200, called.text
    call, request, other = [entry for _, entry in traces.after(before)]
    assert (call.side, call.capability) == ("caller", "rag.query@1.0")
    assert [(one.side, one.capability) for one in (request, other)] == [
        ("run", "POST /v1/call"),
        ("run", "POST /v1/session"),
    ]
    assert (call.trace, call.parent) == (request.trace, request.span)
    assert other.trace != request.trace
