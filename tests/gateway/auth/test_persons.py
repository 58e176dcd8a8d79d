"""Several persons of one home at its gateway, each with pages of their own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from hearthnet.agent.devices.conversation_store import ConversationStore
from hearthnet.cli.input import local_call
from hearthnet.cli.workflows import home_person, person_belongings, run_commands
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.home_persons import HomePersons, Limits, clock
from hearthnet.service.community.queued_statements import queue_statements
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.community.person_statements import REMOVED_DEVICE, device_removed
from hearthnet.trust.keys import Identity
from hearthnet_auth import AuthService
from hearthnet_auth import persons as auth_persons
from tests.gateway.test_mcp import connected, said
from tests.helpers.envelopes import opening
from tests.helpers.gateway import House, open_house
from tests.helpers.persons import (
    PersonPage,
    add_person,
    auth_with_owner,
    publish,
    remove_at_running_node,
    remove_person,
)
from tests.helpers.scripted_model import Say
from tests.helpers.socket_client import line
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUERY = {"params": {"corpus": "probe"}, "input": {"query": "water"}}
QUESTION = {
    "params": {"model": "scripted"},
    "input": {"messages": [{"role": "user", "content": "Is water wet?"}], "stream": False},
}


class Family(NamedTuple):
    """A home with its gateway and its auth service."""

    house: House
    auth: AuthService


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def family() -> AsyncIterator[Family]:
    with tempfile.TemporaryDirectory(prefix="hn-persons-") as folder:
        async with open_house(Path(folder)) as house, auth_with_owner(house.mesh) as auth:
            for name in ("anna", "berta"):
                await add_person(auth, house, name)
            yield Family(house, auth)


@pytest.mark.req("PERSON-70")
async def test_a_link_makes_a_browser_a_device_of_its_person(family: Family) -> None:
    for principal in ("owner", "anna"):
        page = await PersonPage.open(family.house, principal, kind="phone")
        person, device = page.me["person"], page.me["device"]
        assert (device["added"], device["kind"], device["key"]) == (True, "phone", page.identity.node_id)
        assert page.house.bus.peer.roster.is_device(page.identity.node_id, person["id"])
        assert person["is_administrator"] is (principal == "owner")
        assert ("administrator_can" in person) is (principal != "owner")
    anna = HomePersons(family.house.mesh.home).present("anna")
    assert person["id"] == anna.person
    assert person["name"] == "anna"


@pytest.mark.req("PERSON-70", "ATTACK-70")
async def test_a_consent_counts_for_its_key_alone(family: Family) -> None:
    page = await PersonPage.open(family.house, "anna")
    fresh = Identity.generate()
    body = opening(fresh, family.house.gateway.links.make("anna"), family.house.bus.peer.node_id)
    async with family.house.http() as http:
        opened = await http.post("/v1/session", json=body)
        offer = opened.json()["device"]["offer"]
        assert (offer["device"], opened.json()["device"]["added"]) == (fresh.node_id, False)
        http.headers["Origin"] = family.house.url
        for kind, signature, answer in (
            ("browser", page.signed({**offer, "kind": "browser"}), (401, "invalid_signature")),
            ("phone", "ed25519:nothing", (400, "bad_request")),
        ):
            refused = await http.post("/v1/device", json={"kind": kind, "signature": signature})
            assert (refused.status_code, refused.json()["error"]) == answer
        me = (await http.get("/v1/me")).json()
    assert me["device"]["added"] is False
    assert not family.house.bus.peer.roster.person_of(fresh.node_id)


@pytest.mark.req("PERSON-72", "ATTACK-71")
async def test_the_key_of_another_persons_page_opens_no_link(family: Family) -> None:
    """Providers would take the page for that person, and its own node had said so."""
    house = family.house
    owner, anna = await PersonPage.open(house), await PersonPage.open(house, "anna")
    book, links = house.gateway.clients.book, house.gateway.links
    for principal, key in (("anna", owner), ("owner", anna), ("somebody", anna)):
        async with house.http() as http:
            code, node = links.make(principal), house.bus.peer.node_id
            refused = await http.post("/v1/session", json=opening(key.identity, code, node))
            assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized"), principal
            assert refused.json()["details"] == {"rule": "another_person"}
            # The link is not used up: a browser makes another key and opens it with that.
            fresh = await http.post("/v1/session", json=opening(Identity.generate(), code, node))
            assert fresh.status_code == 201
    # A page that an earlier version let in so is refused, too.
    entry, secret = book.add("old", "anna", key=owner.identity.node_id, made_by="link")
    async with house.http(cookies={house.gateway.clients.cookie: f"{entry.id}_{secret}"}) as http:
        assert (await http.get("/v1/me")).status_code == 401
    with pytest.raises(HearthNetError, match="another person"):
        house.gateway.clients.token(house.gateway.clients.of(entry))


async def remove(house: House, page: PersonPage) -> None:
    """The person takes the device away; within two seconds the gateway knows."""
    body = {"params": {}, "input": {"client_id": ids.new_ulid(), "device": page.identity.node_id}}
    await house.bus.call("community.device.remove@1.0", body, node=house.bus.peer.node_id)
    await wait_for(lambda: house.bus.peer.roster.is_removed_device(page.identity.node_id), 2)


@pytest.mark.req("PERSON-71", "ATTACK-70")
async def test_a_removed_device_is_refused_with_its_cookie_and_key(family: Family) -> None:
    """Somebody has copied cookie and key; then the person removes the device."""
    house = family.house
    page = await PersonPage.open(house, "anna")
    client = house.gateway.clients.of(house.gateway.clients.book.find(page.me["id"]))
    token = house.gateway.clients.token(client)
    assert (await page.call("rag.query", QUERY)).status_code == 200
    await remove(house, page)
    for answer in (await page.call("rag.query", QUERY), await page.ask("GET", "/v1/me")):
        assert (answer.status_code, answer.json()["error"]) == (403, "revoked")
    with pytest.raises(Exception, match="removed by its person") as refused:
        await house.bus.call("rag.query", QUERY, token=token)
    assert getattr(refused.value, "code", "") == "revoked"
    code, node = house.gateway.links.make("anna"), house.bus.peer.node_id
    async with house.http() as http:
        answer = await http.post("/v1/session", json=opening(page.identity, code, node))
        assert (answer.status_code, answer.json()["error"]) == (403, "revoked")
        # The link is not used up: a browser makes another key and opens it with that.
        fresh = await http.post("/v1/session", json=opening(Identity.generate(), code, node))
    assert fresh.status_code == 201


@pytest.mark.req("PERSON-71")
async def test_signing_out_removes_the_device(family: Family) -> None:
    page = await PersonPage.open(family.house, "berta")
    ended = await page.ask("DELETE", "/v1/session")
    assert ended.json() == {"removed": page.me["id"]}
    await wait_for(lambda: family.house.bus.peer.roster.is_removed_device(page.identity.node_id))


@pytest.mark.req("PERSON-71", "ATTACK-70")
async def test_a_removed_device_loses_its_socket_within_two_seconds(family: Family) -> None:
    house = family.house
    page, other = await PersonPage.open(house, "anna"), await PersonPage.open(house, "anna")
    async with line(house, page) as lost, line(house, other) as stays:  # type: ignore[arg-type]
        for one in (lost, stays):
            await one.send("subscribe", topic="runs")
            await one.until("snapshot")
        await remove(house, page)
        async with asyncio.timeout(2):
            await lost.rest()
        assert (lost.close_code, lost.reason) == (4401, f"unauthorized: {REMOVED_DEVICE}")
        assert stays.close_code is None


async def asked(page: PersonPage, title: str) -> dict[str, Any]:
    """A question of the page whose model wants to post `title`, and waits."""
    house, question = page.house, f"I can lend: {title}"
    post = {"category": "offer", "title": title, "body": "Ring twice."}
    house.model.turns[question] = [Say("I will.", calls=(("market_post", post),)), Say("Posted.")]
    body = {
        "params": {"model": "scripted"},
        "input": {"messages": [{"role": "user", "content": question}], "tools": ["market_post"]},
    }
    answer = await page.call("llm.chat", body, "2.0")
    assert answer.status_code == 200, answer.text
    waits: dict[str, Any] = answer.json()
    return waits


@pytest.mark.req("PERSON-72", "ATTACK-71")
async def test_nobody_of_a_home_sees_or_decides_what_waits_for_another(family: Family) -> None:
    house = family.house
    anna, phone = [await PersonPage.open(house, "anna") for _ in range(2)]
    berta, owner = await PersonPage.open(house, "berta"), await PersonPage.open(house)
    waits = await asked(anna, "Secret ladder")
    run, (pending,) = waits["run"], waits["pending"]
    for other in (berta, owner):
        assert run not in [one["run"] for one in (await other.ask("GET", "/v1/runs")).json()["runs"]]
        no = {"call": pending["tool_call_id"], "decision": "deny"}
        for method, path, sent in (
            ("GET", f"/v1/runs/{run}", None),
            ("POST", f"/v1/runs/{run}/decisions", no),
            ("POST", f"/v1/runs/{run}/cancel", {}),
        ):
            refused = await other.ask(method, path, json=sent)
            assert (refused.status_code, refused.json()["error"]) == (404, "not_found"), path
    # Anna's other device sees it, and decides with its own key.
    (there,) = (await phone.ask("GET", f"/v1/runs/{run}")).json()["pending"]
    assert there["body"]["input"]["title"] == "Secret ladder"
    approval = sign_approval(
        phone.identity, msgspec.convert({**there["approval"], "signature": ""}, Approval)
    )
    yes = {"decision": "approve", "shown": there["arguments_digest"], "approval": approval.as_json()}
    done = await phone.ask("POST", "/v1/call", json={"run": run, "decisions": {there["tool_call_id"]: yes}})
    assert done.status_code == 200, done.text
    (post,) = [one for one in house.workshop.posts if one.body["input"]["title"] == "Secret ladder"]
    assert post.principal == f"{house.bus.peer.node_id}/anna"
    assert post.approval is not None
    assert post.approval.approver == phone.identity.node_id


@pytest.mark.req("PERSON-73", "ATTACK-71")
async def test_the_administrator_sees_that_a_run_is_there_and_may_end_it(
    family: Family, capsys: pytest.CaptureFixture[str]
) -> None:
    home, anna = family.house.mesh.home, await PersonPage.open(family.house, "anna")
    run = (await asked(anna, "Hidden saw"))["run"]
    await run_commands.list_all(home, json=False)
    await run_commands.list_all(home, json=True)
    listed = capsys.readouterr().out
    assert run in listed
    assert "anna of" in listed
    assert "Hidden saw" not in listed
    for refused in (
        run_commands.show_one(home, run, json=True),
        run_commands.deny_call(home, run, None, "", json=True),
        run_commands.approve_call(home, run, None, None, "", confirmed=True, json=True),
    ):
        with pytest.raises(HearthNetError, match="is of anna") as error:
            await refused
        assert error.value.code == "unauthorized"
    await run_commands.cancel_one(home, run, json=True)
    assert "Hidden saw" not in capsys.readouterr().out
    assert (await anna.ask("GET", f"/v1/runs/{run}")).json()["state"] != "suspended"


@pytest.mark.req("PERSON-74", "ATTACK-73")
async def test_a_child_only_reads_and_its_token_says_so(family: Family) -> None:
    house = family.house
    await add_person(family.auth, house, "ben", Limits())
    ben = await PersonPage.open(house, "ben")
    assert (await ben.call("rag.query", QUERY)).status_code == 200
    body = {"params": {}, "input": {"category": "offer", "title": "T", "body": "B"}}
    refused = await ben.call("market.post", body, "1.0")
    assert (refused.status_code, refused.json()["error"]) == (403, "token_scope_insufficient")
    clients = house.gateway.clients
    token = clients.token(clients.of(clients.book.find(ben.me["id"])))
    scope = house.bus.peer.tokens.claims(token).scope
    assert not any(scope.covers_name(one.name) for one in contracts() if one.side_effects)
    entry = HomePersons(house.mesh.home).present("ben")
    home_person.set_limits(house.mesh.home, entry, Limits(("rag.query",)))
    assert (await ben.call("rag.query", QUERY)).status_code == 200
    refused = await ben.call("llm.chat", QUESTION, "2.0")
    assert (refused.status_code, refused.json()["error"]) == (403, "token_scope_insufficient")


@pytest.mark.req("PERSON-74", "ATTACK-73")
async def test_a_child_asks_so_many_questions_a_day(family: Family) -> None:
    house = family.house
    await add_person(family.auth, house, "cleo", Limits(questions=2))
    cleo, tablet = [await PersonPage.open(house, "cleo") for _ in range(2)]
    for page in (cleo, tablet):
        assert (await page.call("llm.chat", QUESTION, "2.0")).status_code == 200
    for page in (cleo, tablet):
        refused = await page.call("llm.chat", QUESTION, "2.0")
        assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited")
        assert "2 questions a day" in refused.json()["message"]
        assert 0 < refused.json()["retry_after_ms"] <= 86_400_000
    # Nor by another door, or by a capability that calls the model.
    async with connected(house, cleo) as mcp:  # type: ignore[arg-type]
        refused_there = await mcp.call_tool("llm_complete", {"model": "echo", "prompt": "water"})
    assert refused_there.is_error
    assert "2 questions a day" in said(refused_there)
    wrapped = {"tool_call_id": "tc_1", "target_capability": "llm.chat@2.0", "target_body": QUESTION}
    passed_on = await cleo.call("llm.tools.call", {"params": {}, "input": wrapped})
    assert (passed_on.status_code, passed_on.json()["error"]) == (429, "rate_limited")
    # What is no question is not counted, and the next day has questions of its own.
    assert (await cleo.call("rag.query", QUERY)).status_code == 200
    tomorrow = now_ms() + refused.json()["retry_after_ms"]
    house.gateway.clients.book.persons.count_question(HomePersons(house.mesh.home).present("cleo"), tomorrow)


@pytest.mark.req("PERSON-74", "ATTACK-73")
async def test_a_child_asks_within_its_hours(family: Family) -> None:
    house, now = family.house, datetime.now()
    minute = now.hour * 60 + now.minute
    closed = (minute + 60, minute + 120) if minute < 1200 else (minute - 120, minute - 60)
    entry = await add_person(family.auth, house, "dora", Limits(hours=closed))
    dora = await PersonPage.open(house, "dora")
    assert dora.me["person"]["limits"]["closed"].startswith("this is open from ")
    refused = await dora.call("rag.query", QUERY)
    assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited")
    assert refused.json()["details"] == {"rule": "hours", "from": clock(closed[0]), "to": clock(closed[1])}
    opened = (max(0, minute - 5), min(1440, minute + 30))
    home_person.set_limits(house.mesh.home, entry, Limits(hours=opened))
    assert (await dora.call("rag.query", QUERY)).status_code == 200
    # The provider refuses the token after the hours, too.
    clients = house.gateway.clients
    claims = house.bus.peer.tokens.claims(clients.token(clients.of(clients.book.find(dora.me["id"]))))
    assert claims.exp <= now_ms() // 1000 + 31 * 60


@pytest.mark.req("PERSON-75")
async def test_a_removed_person_is_cut_off_and_its_name_stays_taken(family: Family) -> None:
    house, home = family.house, family.house.mesh.home
    entry = await add_person(family.auth, house, "emil")
    page = await PersonPage.open(house, "emil")
    conversation = {"base": "", "title": "Mine", "at": 1, "content": {}}
    path = f"/v1/conversations/{ids.new_ulid()}"
    assert (await page.ask("POST", path, json=conversation)).status_code == 200
    link = house.gateway.links.make("emil")
    await remove_person(family.auth, house, entry)
    assert (await page.call("rag.query", QUERY)).status_code == 401
    await wait_for(lambda: house.bus.peer.roster.is_removed_device(page.identity.node_id))
    async with house.http() as http:
        body = opening(Identity.generate(), link, house.bus.peer.node_id)
        assert (await http.post("/v1/session", json=body)).status_code == 401
    persons = HomePersons(home)
    assert not ConversationStore.of_guest(home, house.mesh.identity, "emil").folder.exists()
    assert not persons.recovery_key("emil").exists()
    assert not persons.person_key("emil").exists()
    with pytest.raises(HearthNetError, match="a name is used once"):
        home_person.create(home, "Emil", None)


@pytest.mark.req("PERSON-75")
async def test_the_keys_of_a_removed_person_go_where_the_auth_service_is_away(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, home = family.house, family.house.mesh.home
    entry = await add_person(family.auth, house, "frieda")
    await PersonPage.open(house, "frieda")

    def away(*_given: object) -> None:
        raise HearthNetError("partition", "the auth service is away")

    monkeypatch.setattr(home_person, "call_local_node", away)
    publish(house.mesh, house.gateway.bus.peer.roster)
    with pytest.raises(HearthNetError, match="is away"):
        await asyncio.to_thread(home_person.remove, home, entry)
    assert not HomePersons(home).person_key("frieda").exists()
    assert await auth_persons.carry_recovery(family.auth._chain, home, house.mesh.identity) is not None
    await wait_for(lambda: not house.bus.peer.roster.devices(entry.person))


@pytest.mark.req("PERSON-75")
async def test_keys_of_a_removed_person_go_where_the_log_refuses(family: Family) -> None:
    """Another command has left a statement that does not count, and the node's answer is that refusal."""
    house, home = family.house, family.house.mesh.home
    entry = await add_person(family.auth, house, "frida")
    page = await PersonPage.open(house, "frida")
    nobodys = device_removed(
        house.bus.peer.community, entry.person, Identity.generate(), page.identity.node_id, ()
    )
    queue_statements(home, (nobodys,))
    with pytest.raises(HearthNetError) as refused:
        await asyncio.to_thread(remove_at_running_node, house, entry)
    assert refused.value.code == "unauthorized"
    persons = HomePersons(home)
    assert not persons.recovery_key("frida").exists()
    assert not persons.person_key("frida").exists()
    await wait_for(lambda: house.bus.peer.roster.is_removed_device(page.identity.node_id))


class Killed(BaseException):
    """The end of the command, as by a signal."""


@pytest.mark.req("PERSON-81")
@pytest.mark.parametrize(
    ("module", "step"),
    [
        (home_person, "_queue"),
        (ConversationStore, "erase"),
        (home_person, "remove_overwritten"),
        (person_belongings, "remove"),
        (home_person, "_carry"),
    ],
)
async def test_a_removal_that_was_cut_off_is_completed_by_the_next(
    family: Family, monkeypatch: pytest.MonkeyPatch, module: Any, step: str
) -> None:
    house, home = family.house, family.house.mesh.home
    name = f"x{step.strip('_')}"
    entry = await add_person(family.auth, house, name)
    page = await PersonPage.open(house, name)
    run = (await asked(page, "Hidden saw"))["run"]
    publish(house.mesh, house.gateway.bus.peer.roster)
    monkeypatch.setattr(local_call, "_RETRY_SECONDS", 0.1)  # no supervisor writes the roster here

    def killed(*_given: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, step, killed)
        with pytest.raises(Killed):
            await asyncio.to_thread(home_person.remove, home, entry)
    persons = HomePersons(home)
    before = persons.find(name)
    assert before is not None
    assert before.removed_at
    done = await asyncio.to_thread(home_person.remove, home, before)
    assert persons.find(name) == before
    assert not persons.recovery_key(name).exists()
    assert not persons.person_key(name).exists()
    await wait_for(lambda: house.bus.peer.roster.is_removed_device(page.identity.node_id))
    assert "the service rag does not run here" in done["unfinished"]  # no rag service here
    async with run_commands.open_saved_runs(home) as saved:
        assert run not in [one.run for one in (await saved.listing()).runs]


@pytest.mark.req("PERSON-43", "ATTACK-71")
async def test_the_administrator_gets_in_by_no_token_and_no_client(family: Family) -> None:
    """By what the owner could make for a guest of the name of a person."""
    house = family.house
    peer = house.bus.peer
    token = mint(
        peer.identity,
        subject=peer.node_id,
        audience=peer.community,
        scope=Scope(("llm.chat",)),
        now_ms=now_ms(),
        ttl_seconds=60,
        principal="anna",
        issued_via="manual",
    )
    async with house.http(headers={"Authorization": f"Bearer {token}"}) as http:
        refused = await http.get("/v1/runs")
    assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
    assert "signs in at a page" in refused.json()["message"]
    spy = house.guest(principal="gustav")
    with pytest.raises(HearthNetError, match=f"the client {spy.entry.id} has the conversations"):
        home_person.create(house.mesh.home, "Gustav", None)
