"""Pains 8, 12, 18 and 19 for clients of a gateway, on a real server: 4 is in a file of its own.

See: docs/protocol/failures.md.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.tools.types import Approve, Decision, Deny
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.client_store import ClientStore
from hearthnet.gateway.auth.clients import Clients
from hearthnet.gateway.runs.runs import GatewayRuns
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust.authorization.token import SCHEME
from hearthnet.trust.keys import Identity
from hearthnet_market import MarketService
from tests.gateway.running import Ear, Guest, RunsOfClients, ask, driving
from tests.helpers.mesh import Mesh
from tests.helpers.probe import MODEL
from tests.pains.acting import POST, Scene, acting, says, wants
from tests.pains.test_pain_12_a_confused_deputy import NOT_ITS_OWN, Tap, _Model
from tests.pains.test_pain_12_a_confused_deputy import tap as tap
from tests.service.workers import audited
from tests.services.llm.responses.test_tool_calls import wait_for_offers

pytestmark = pytest.mark.asyncio
CALLS = ["a", "b", "c", "d", "e"]
AN_HOUR = Limits(confirmation_ttl_ms=3_600_000)
TWO_HOURS_MS = 7_200_000


class Gateway(RunsOfClients):
    """A gateway of the scene's node, and its clients."""

    def __init__(self, scene: Scene, **options: Any) -> None:
        self.clients = Clients(scene.bus.peer, ClientStore(scene.mesh.home))
        self.runs = GatewayRuns(scene.bus, self.clients, scene.runs, **options)

    def guest(self, name: str, *, own_key: bool = True) -> Guest:
        """A new client of that principal."""
        identity = Identity.generate() if own_key else None
        entry, _secret = self.clients.book.add(name, name, key=identity.node_id if identity else "")
        return Guest(self.clients.of(entry), identity)

    async def asked(self, guest: Guest, *tools: str) -> tuple[str, dict[str, Any]]:
        """A suspended run of the guest's, and what waits in it by tool call id."""
        run = await self.open(guest.client, question(*tools), Ear(), waits=False)
        await run.drive()
        page = await self.runs.page(guest.client, run.run)
        return run.run, {one["tool_call_id"]: one for one in page["pending"]}

    async def say(self, guest: Guest, run: str, asked: dict[str, Any], decision: Decision) -> dict[str, Any]:
        """The guest's decision, signed where it takes that."""
        yes = guest.identity is not None and not isinstance(decision, Deny)
        return await self.decide(
            guest.client,
            run,
            asked["tool_call_id"],
            decision,
            shown=asked["arguments_digest"],
            approval=guest.sign(asked["approval"]) if yes else None,
            via="page",
        )

    async def stands(self, guest: Guest, run: str) -> str:
        """How the only call of the run stands."""
        (call,) = (await self.runs.page(guest.client, run))["calls"]
        return str(call["status"])


def question(*tools: str) -> dict[str, Any]:
    body = ask(*tools or ["market_post"])
    return {**body, "params": {"model": MODEL["model"]}}


@pytest.mark.req("PAIN-8", "SESS-9")
async def test_8_two_clients_of_one_principal_on_two_gateways_get_five_decisions(mesh: Mesh) -> None:
    turn = [wants("market_post", {**POST, "title": name}, name) for name in CALLS]
    async with acting(mesh, turn, [says("Done.")]) as scene, await mesh.store() as store:
        first, other = Gateway(scene), Gateway(scene)
        other.runs = GatewayRuns(scene.bus, other.clients, StoredRuns(store, mesh.identity))
        page, phone = first.guest("anna"), other.guest("anna", own_key=False)
        assert page.client.principal == phone.client.principal
        phone = other.guest("anna")
        ear = Ear()
        run = await first.open(page.client, question(), ear)
        driven = driving(run)
        await ear.heard("confirmation_required", len(CALLS))
        shown = {one["tool_call_id"]: one for one in ear.all("confirmation_required")}

        async def say(gateway: Gateway, guest: Guest, name: str, decision: Decision) -> dict[str, Any]:
            unsigned = {**shown[name]["approval"], "approver": guest.client.key, "id": ids.new_ulid()}
            return await gateway.say(guest, run.run, {**shown[name], "approval": unsigned}, decision)

        twice = random.choice(CALLS)
        said = [
            say(*random.choice([(first, page), (other, phone)]), name, Approve())
            for name in random.sample(CALLS, len(CALLS))
        ]
        taken = await asyncio.gather(*said, say(other, phone, twice, Deny()))
        assert sum(not one["repeated"] for one in taken) == len(CALLS)
        stands = {one["tool_call_id"]: one for one in taken if not one["repeated"]}
        (told,) = [one for one in taken if one["repeated"]]
        assert {**told, "repeated": False} == stands[twice]
        await driven
        yes = sorted(name for name, one in stands.items() if one["word"] == "approved")
        assert sorted(await scene.effects()) == yes
        log = (await scene.saved.page(run.run)).log
        assert len([entry for entry in log if entry.kind == "decided"]) == len(CALLS)


@pytest.mark.req("PAIN-12", "SESS-16")
async def test_12_a_guests_call_that_names_anothers_post_is_judged_by_the_guests_rights(mesh: Mesh) -> None:
    arguments = {"event_id": "", "reason": "withdrawn"}
    turn = [("tool_call", {"id": "e", "name": "market_expire", "arguments": arguments})]
    model = _Model(turn, [says("Well.")], turn, [says("Gone.")])
    async with (
        mesh.hosting(MarketService()),
        mesh.hosting(model),
        await mesh.bus() as bus,
        await mesh.store() as store,
    ):
        await wait_for_offers(bus, "market.expire@1.0", "llm.chat@2.0")
        gateway = Gateway(Scene(mesh, model, bus, StoredRuns(store, mesh.identity)))  # type: ignore[arg-type]
        anna, eve = gateway.guest("anna"), gateway.guest("eve", own_key=False)
        given = {"client_id": ids.new_ulid(), "category": "offer", "title": "Eve's", "body": "To lend."}
        token, body = gateway.clients.token(eve.client), {"params": {}, "input": given}
        with pytest.raises(HearthNetError, match="needs the person's approval"):
            await bus.call("market.post@1.0", body, token=token)
        own = await bus.call("market.post@1.0", {"params": {}, "input": {**given, "title": "The owner's"}})
        arguments["event_id"] = own.output["event_id"]
        for guest in (anna, eve):
            run, asked = await gateway.asked(guest, "market_expire")
            await gateway.say(guest, run, asked["e"], Approve())
            again = await gateway.resume(guest.client, run)
            told = (await again.drive()).messages
            (result,) = [message for message in told if message["role"] == "tool"]
            # The owner's node made the call.
            assert result["content"].startswith(f"unauthorized: {NOT_ITS_OWN}")
        listed = await bus.call("market.list@1.0", {"params": {}, "input": {}})
        assert [post["title"] for post in listed.output["posts"]] == ["The owner's"]


@pytest.mark.req("PAIN-12", "SESS-16")
async def test_12_a_clients_token_is_in_its_calls_and_nowhere_else(
    mesh: Mesh, tap: Tap, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    minted, made = [], Clients.token

    def token(clients: Clients, client: Any) -> str:
        minted.append(made(clients, client))
        return minted[-1]

    monkeypatch.setattr(Clients, "token", token)
    async with acting(mesh, [wants("market_post", POST, "p")], [says("Posted.")]) as scene:
        gateway, ear = Gateway(scene), Ear()
        anna = gateway.guest("anna")
        run = await gateway.open(anna.client, question(), ear)
        driven = driving(run)
        asked = await ear.heard("confirmation_required")
        await gateway.say(anna, run.run, asked, Approve())
        outcome = await driven
        told = [await gateway.runs.page(anna.client, run.run), await gateway.runs.listing(anna.client)]
        kept = await scene.runs.load(run.run)
        said = await scene.runs.load_decision(run.run, asked["confirmation_id"])
        traces = [repr(one) for _, one in scene.bus.peer.traces.after(0)]
        async with await mesh.store() as store:
            log, finding = await audited(mesh, AuditLog(store, mesh.identity))
    assert finding is None
    assert kept is not None
    (only,) = set(minted)
    carrying = [frame for frame in tap.frames(scene.bus.peer.node_id) if SCHEME in repr(frame)]
    assert sorted(frame.header.capability for frame in carrying) == [
        "llm.chat@2.0",
        "llm.chat@2.0",
        "market.post@1.0",
    ]
    assert {frame.header.token for frame in carrying} == {only}
    assert not any(SCHEME.encode() in frame.body for frame in carrying)
    elsewhere = [ear.frames, outcome, told, said, traces, scene.service.requests, anna.client]
    elsewhere += [entry.token for entry in log]
    for place in (bytes(tap.raw), kept.data, caplog.text.encode(), repr(elsewhere).encode()):
        assert SCHEME.encode() not in place
        assert only.encode() not in place


@pytest.mark.req("PAIN-18", "SESS-17")
@pytest.mark.parametrize("own_key", [True, False])
async def test_18_one_query_says_who_said_what_how_and_when(mesh: Mesh, own_key: bool) -> None:
    async with acting(mesh, [wants("market_post", POST, "p")], [says("Posted.")]) as scene:
        gateway = Gateway(scene)
        anna = gateway.guest("anna", own_key=own_key)
        run, asked = await gateway.asked(anna)
        before = now_ms()
        await gateway.say(anna, run, asked["p"], Approve())
        await (await gateway.resume(anna.client, run)).drive()
        (call,) = (await gateway.runs.page(anna.client, run))["calls"]
        owner = await scene.saved.page(run)
        decided, began, ended = owner.log
        async with await mesh.store() as store:
            _log, finding = await audited(mesh, AuditLog(store, mesh.identity))
    assert finding is None
    said = call["decided"]
    assert (said["word"], said["by"], said["via"]) == ("approved", anna.client.principal, "page")
    assert before <= said["time"] <= call["claimed_at"] <= call["ended_at"]
    assert (decided.kind, decided.principal, decided.via) == ("decided", anna.client.principal, "page")
    assert (began.principal, began.digest) == (anna.client.principal, asked["p"]["arguments_digest"])
    assert call["executed"] == {"entry": began.sequence, "digest": said["digest"]}
    assert call["outcome"]["entry"] == ended.sequence
    if own_key:
        assert decided.approval == began.approval == said["approval"]
    else:
        assert (decided.approval, said["approval"]) == ("", "")
        assert began.approval, "the gateway's"


@pytest.mark.req("PAIN-19", "SESS-17")
async def test_19_pending_expired_and_denied_are_three_for_clients_too(mesh: Mesh) -> None:
    async with acting(mesh, [wants("market_post", POST, "p")], [says("Well.")]) as scene:
        now = Gateway(scene, limits=AN_HOUR)
        later = Gateway(scene, clock=lambda: now_ms() + TWO_HOURS_MS)
        anna = now.guest("anna")
        runs = {name: await now.asked(anna) for name in ("waits", "denied", "late yes", "late no")}
        run, asked = runs["denied"]
        await now.say(anna, run, asked["p"], Deny("no ladders"))
        assert {name: await now.stands(anna, run) for name, (run, _) in runs.items()} == {
            "waits": "pending",
            "denied": "denied",
            "late yes": "pending",
            "late no": "pending",
        }
        assert await later.stands(anna, runs["waits"][0]) == "expired"
        run, asked = runs["late yes"]
        with pytest.raises(HearthNetError) as caught:
            await later.say(anna, run, asked["p"], Approve())
        assert caught.value.code == "expired"
        run, asked = runs["late no"]
        assert (await later.say(anna, run, asked["p"], Deny("no, never")))["word"] == "denied"
        assert await later.stands(anna, run) == "denied"
        again = await now.resume(anna.client, run)
        await again.drive()
        assert "no, never" in scene.service.requests[-1][-1]["content"]
        assert await scene.effects() == []
