"""Decisions that are none, and several people who decide, on a scripted bus."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit
from hearthnet.core.errors import HearthNetError
from hearthnet.service.effects.refusal_audit import SINGLE
from hearthnet.trust.audit_chain import AuditEntry
from tests.agent.scripted import calls, done
from tests.gateway.running import ENDS, POST, Ear, Guest, House, ask, driving
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.asyncio
NAMES = ["a", "b", "c", "d", "e"]
FIVE = [*(calls("market_post", {**POST, "title": name}, name) for name in NAMES), done("tool_calls")]


async def waiting(house: House, guest: Guest) -> tuple[str, dict[str, dict[str, Any]]]:
    """A suspended run and what waits in it, by tool call id."""
    run = await house.open(guest.client, ask(), Ear(), waits=False)
    await run.drive()
    (listed,) = [one for one in await house.runs.listing(guest.client) if one["run"] == run.run]
    return run.run, {one["tool_call_id"]: one for one in listed["pending"]}


async def refused(house: House) -> list[AuditEntry]:
    """What is on record of decisions that were none."""
    log = house.store
    assert isinstance(log, MemoryRuns)
    return [entry for entry in log._log if entry.kind == "refused"]


Forgery = tuple[dict[str, Any] | None, str, str]


def forgeries(anna: Guest, eve: Guest, asked: dict[str, Any], other: dict[str, Any]) -> dict[str, Forgery]:
    wanted = asked["approval"]
    good = anna.sign(wanted)
    return {
        "no approval": (None, "unauthorized", "approval"),
        "unsigned": ({**wanted, "signature": ""}, "invalid_signature", "invalid_signature"),
        "altered after signing": ({**good, "expires": good["expires"] - 1}, "invalid_signature", ""),
        "of another client": (eve.sign({**wanted, "approver": eve.client.key}), "unauthorized", "approver"),
        "for another call": (anna.sign(other["approval"]), "unauthorized", "arguments"),
        "for another run": (anna.sign({**wanted, "run": other["client_id"]}), "unauthorized", "run"),
        "expired": (anna.sign({**wanted, "time": 1, "expires": 2}), "expired", "expired"),
    }


@pytest.mark.req("SESS-10", "SESS-11")
@pytest.mark.parametrize(
    "how",
    [
        "no approval",
        "unsigned",
        "altered after signing",
        "of another client",
        "for another call",
        "for another run",
        "expired",
    ],
)
async def test_a_forged_yes_is_refused_and_on_record_once(how: str) -> None:
    house = House(MemoryRuns(), FIVE, ENDS)
    anna, eve = house.guest(), house.guest("eve")
    run, asked = await waiting(house, anna)
    approval, code, rule = forgeries(anna, eve, asked["a"], asked["b"])[how]
    shown = asked["a"]["arguments_digest"]
    with pytest.raises(HearthNetError) as caught:
        await house.decide(anna.client, run, "a", Approve(), shown=shown, approval=approval, via="test")
    assert caught.value.code == code
    (entry,) = await refused(house)
    assert (entry.principal, entry.run, entry.call, entry.code, entry.via) == (
        anna.client.principal,
        run,
        "a",
        code,
        "test",
    )
    assert entry.rule == (rule or code)
    assert house.bus.calls == []
    assert len((await house.runs.listing(anna.client))[0]["pending"]) == 5, "nothing was written"
    good = anna.sign(asked["a"]["approval"])
    taken = await house.decide(anna.client, run, "a", Approve(), shown=shown, approval=good)
    assert (taken["word"], taken["repeated"]) == ("approved", False)


@pytest.mark.req("SESS-10", "SESS-11")
async def test_a_yes_to_what_was_not_shown_or_never_asked_is_none() -> None:
    house = House(MemoryRuns())
    anna = house.guest()
    run, asked = await waiting(house, anna)
    good = anna.sign(asked["p"]["approval"])
    edited = await house.runs.preview(anna.client, run, "p", {**POST, "title": "Other"})
    tried: list[tuple[str, str, Decision, str, str]] = [
        (run, "p", Approve(), "blake3:" + "0" * 64, "unauthorized"),
        (run, "never asked", Approve(), good["arguments_digest"], "not_found"),
        ("01JZZZZZZZZZZZZZZZZZZZZZ09", "p", Approve(), good["arguments_digest"], "not_found"),
        (run, "p", Edit({**POST, "title": "Other"}), good["arguments_digest"], "unauthorized"),
    ]
    for at, call, decision, shown, code in tried:
        with pytest.raises(HearthNetError) as caught:
            await house.decide(anna.client, at, call, decision, shown=shown, approval=good)
        assert caught.value.code == code
    assert [entry.code for entry in await refused(house)] == [code for *_rest, code in tried]
    with pytest.raises(HearthNetError, match="malformed"):
        await house.decide(anna.client, run, "p", Approve(), shown="", approval={"id": 1})
    with pytest.raises(HearthNetError, match="invalid_arguments"):
        await house.runs.preview(anna.client, run, "p", {"title": 1})
    assert edited["approval"]["arguments_digest"] != good["arguments_digest"]


@pytest.mark.req("SESS-11")
async def test_a_flood_of_them_is_counted() -> None:
    house = House(MemoryRuns())
    anna = house.guest()
    run, asked = await waiting(house, anna)
    for _ in range(SINGLE + 20):
        with pytest.raises(HearthNetError, match="approval"):
            await house.decide(anna.client, run, "p", Approve(), shown=asked["p"]["arguments_digest"])
    assert len(await refused(house)) == SINGLE
    await house.runs.close()
    entries = await refused(house)
    assert [(entry.call, entry.count) for entry in entries[SINGLE:]] == [("", 20)]


@pytest.mark.req("SESS-11", "SESS-21")
@pytest.mark.parametrize("more", [{}, {"shown": "blake3:" + "0" * 64}, {"approval": {"id": 1}}])
async def test_no_needs_id_alone_and_has_no_entry(more: dict[str, Any]) -> None:
    house = House(MemoryRuns())
    anna = house.guest()
    run, _asked = await waiting(house, anna)
    with pytest.raises(HearthNetError) as caught:
        await house.decide(anna.client, run, "never asked", Deny())
    assert caught.value.code == "not_found"
    assert await refused(house) == []
    taken = await house.decide(anna.client, run, "p", Deny("not now"), **more)
    assert (taken["word"], taken["approval"]) == ("denied", "")
    again = await house.resume(anna.client, run)
    await again.drive()
    assert house.bus.calls == []
    assert "not now" in house.bus.requests[-1]["messages"][-1]["content"]


# --- several clients


@pytest.mark.req("PAIN-8", "SESS-9")
async def test_two_clients_of_one_principal_get_exactly_five_decisions() -> None:
    house = House(MemoryRuns(), FIVE, ENDS)
    first, second = house.guest(), house.guest()
    assert first.client.principal == second.client.principal
    assert first.client.key != second.client.key
    ear = Ear()
    run = await house.open(first.client, ask(), ear)
    driven = driving(run)
    await ear.heard("confirmation_required", 5)
    other = house.gateway()

    async def approve(who: Guest, name: str) -> dict[str, Any]:
        gateway = random.choice([house.runs, other])
        (listed,) = await gateway.listing(who.client)
        asked = {one["tool_call_id"]: one for one in listed["pending"]}.get(name)
        shown = ear.all("confirmation_required")[NAMES.index(name)]
        signed = who.sign((asked or shown)["approval"] | {"approver": who.client.key})
        digest = shown["arguments_digest"]
        return await house.decide(
            who.client, run.run, name, Approve(), shown=digest, approval=signed, at=gateway
        )

    twice = random.choice(NAMES)
    who = {name: random.choice([first, second]) for name in NAMES}
    answers = [approve(who[name], name) for name in random.sample(NAMES, 5)]
    taken = await asyncio.gather(*answers, approve(second if who[twice] is first else first, twice))
    await driven
    assert sum(not one["repeated"] for one in taken) == 5
    (told,) = [one for one in taken if one["repeated"]]
    assert told["tool_call_id"] == twice
    assert sorted(sent.body["input"]["title"] for sent in house.bus.calls) == NAMES
    for sent in house.bus.calls:
        assert sent.approval is not None
        assert sent.claims.cnf is not None
        assert sent.approval.approver == sent.claims.cnf.key


@pytest.mark.req("SESS-9")
async def test_after_a_restart_the_approver_is_found_in_the_book_or_the_call_is_not_sent() -> None:
    for known in (True, False):
        house = House(MemoryRuns())
        first, second = house.guest(), house.guest()
        run, asked = await waiting(house, first)
        signed = second.sign({**asked["p"]["approval"], "approver": second.client.key})
        shown = asked["p"]["arguments_digest"]
        await house.decide(second.client, run, "p", Approve(), shown=shown, approval=signed)
        if not known:
            house.tokens.known.clear()
        again = await house.resume(first.client, run, at=house.gateway())
        await again.drive()
        assert len(house.bus.calls) == int(known)
        if not known:
            assert "another client of yours approved" in house.bus.requests[-1]["messages"][-1]["content"]


@pytest.mark.req("SESS-10")
async def test_a_client_without_a_key_says_no_yes_for_one_that_has_one() -> None:
    house = House(MemoryRuns())
    anna, plain = house.guest(), house.guest(own_key=False)
    run, asked = await waiting(house, anna)
    shown = asked["p"]["arguments_digest"]
    for approval in (None, anna.sign(asked["p"]["approval"])):
        with pytest.raises(HearthNetError) as caught:
            await house.decide(plain.client, run, "p", Approve(), shown=shown, approval=approval)
        assert (caught.value.code, caught.value.details["rule"]) == ("unauthorized", "own_key")
    with pytest.raises(HearthNetError, match="begun by a client with a key"):
        await house.resume(plain.client, run)
    mine, waits = await waiting(House(house.store), plain)
    assert mine != run
    assert "approval" not in waits["p"]


@pytest.mark.req("SESS-10")
async def test_an_approval_of_somebody_without_a_key_is_none() -> None:
    house = House(MemoryRuns())
    anna, plain = house.guest(), house.guest("ben", own_key=False)
    run, asked = await waiting(house, plain)
    unsigned = {"approver": anna.client.key, "id": run, "community": "c", "actor": "a", "provider": "*"}
    forged = msgspec.to_builtins(
        {**unsigned, "capability": "market.post@1.0", "arguments_digest": "d", "idempotency_key": "k"}
        | {"run": run, "tool_call_id": "p", "time": 1, "expires": 2}
    )
    with pytest.raises(HearthNetError, match="has no key that signs"):
        await house.decide(
            plain.client,
            run,
            "p",
            Approve(),
            shown=asked["p"]["arguments_digest"],
            approval=anna.sign(forged),
        )
    assert [one["tool_call_id"] for one in (await house.runs.listing(plain.client))[0]["pending"]] == ["p"]
    assert house.bus.calls == []


# --- the owner


@pytest.mark.req("SESS-12")
async def test_the_owner_sees_all_runs_and_says_no_but_not_yes() -> None:
    house = House(MemoryRuns(), FIVE, FIVE, ENDS)
    anna, eve = house.guest(), house.guest("eve")
    run, _asked = await waiting(house, anna)
    other, _asked = await waiting(house, eve)
    peer = house.bus.peer
    desk = SavedRuns(house.store, peer.identity, peer.community)
    assert {(record.run, record.principal) for record in (await desk.listing()).runs} == {
        (run, anna.client.principal),
        (other, eve.client.principal),
    }
    for decision in (Approve(), Edit({**POST, "title": "Mine"})):
        with pytest.raises(HearthNetError) as caught:
            await desk.decide(run, "a", decision, via="hearthnet runs")
        assert (caught.value.code, caught.value.details["rule"]) == ("unauthorized", "own_key")
    taken = await desk.decide(run, "a", Deny("no ladders"), via="hearthnet runs")
    assert (taken.signed.word, taken.signed.by) == ("denied", peer.identity.node_id)
    kept = await desk.decisions((await desk.load(run)).record)
    assert list(kept.values()) == [taken.signed], "the no is kept, and nothing that was refused"
    with pytest.raises(HearthNetError, match="goes on where that one asks") as caught:
        await ToolExecutor(house.bus, [], store=house.store).resume(run)
    assert caught.value.code == "unauthorized"
    assert (await desk.cancel(run)).ended
    assert house.bus.calls == []


@pytest.mark.req("SESS-12")
async def test_for_a_guest_without_a_key_the_owner_may_say_yes() -> None:
    house = House(MemoryRuns())
    ben = house.guest("ben", own_key=False)
    run, _asked = await waiting(house, ben)
    peer = house.bus.peer
    taken = await SavedRuns(house.store, peer.identity, peer.community).decide(run, "p", Approve(), via="cli")
    assert (taken.signed.word, taken.signed.by) == ("approved", peer.identity.node_id)
    again = await house.resume(ben.client, run)
    await again.drive()
    (sent,) = house.bus.calls
    assert sent.approval is not None
    assert sent.approval.via == "gateway"
    assert house.bus.principals == [ben.client.principal]
