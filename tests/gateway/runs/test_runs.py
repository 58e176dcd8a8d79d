"""Runs for clients of the gateway, on a scripted bus that checks tokens and approvals as a provider does."""

from __future__ import annotations

import asyncio

import pytest

from hearthnet.agent.tools.types import Approve, Deny, Edit
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.runs.runs import MOST_AT_ONCE
from hearthnet.trust.authorization.token import Scope
from tests.gateway.running import ENDS, POST, Ear, House, ask, driving
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.asyncio


@pytest.mark.req("SESS-1")
async def test_every_call_of_a_clients_run_goes_out_under_its_token() -> None:
    house = House(MemoryRuns())
    anna, ear = house.guest(), Ear()
    run = await house.open(anna.client, ask(), ear)
    driven = driving(run)
    asked = await ear.heard("confirmation_required")
    taken = await house.decide(
        anna.client,
        run.run,
        asked["tool_call_id"],
        Approve(),
        shown=asked["arguments_digest"],
        approval=anna.sign(asked["approval"]),
        via="test",
    )
    assert (taken["word"], taken["by"], taken["repeated"]) == ("approved", anna.client.principal, False)
    outcome = await driven
    assert outcome.message["content"] == "Posted."
    assert [claims.principal for claims in house.bus.asked_under] == ["anna", "anna"]
    assert house.bus.principals == [anna.client.principal]
    (sent,) = house.bus.calls
    assert sent.approval is not None
    assert (sent.approval.approver, sent.approval.id) == (anna.client.key, asked["approval"]["id"])
    assert ear.all("done")


@pytest.mark.req("SESS-2")
async def test_for_a_client_without_a_key_the_gateway_approves_and_says_so() -> None:
    house = House(MemoryRuns())
    ben, ear = house.guest("ben", own_key=False), Ear()
    run = await house.open(ben.client, ask(), ear)
    driven = driving(run)
    asked = await ear.heard("confirmation_required")
    assert "approval" not in asked
    await house.decide(ben.client, run.run, "p", Approve(), shown=asked["arguments_digest"])
    await driven
    (sent,) = house.bus.calls
    assert sent.approval is not None
    assert (sent.approval.via, sent.approval.approver) == ("gateway", house.bus.peer.identity.node_id)


@pytest.mark.req("SESS-3")
async def test_an_edit_is_two_steps() -> None:
    house = House(MemoryRuns())
    anna, ear = house.guest(), Ear()
    run = await house.open(anna.client, ask(), ear)
    driven = driving(run)
    asked = await ear.heard("confirmation_required")
    changed = {**POST, "title": "Ladder"}
    with pytest.raises(HearthNetError) as caught:
        await house.decide(anna.client, run.run, "p", Edit(changed), shown=asked["arguments_digest"])
    assert (caught.value.code, caught.value.details["rule"]) == ("unauthorized", "approval")
    edited = await house.runs.preview(anna.client, run.run, "p", changed)
    assert edited["body"]["input"]["title"] == "Ladder"
    assert edited["approval"]["arguments_digest"] == edited["arguments_digest"]
    await house.decide(
        anna.client,
        run.run,
        "p",
        Edit(changed),
        shown=asked["arguments_digest"],
        approval=anna.sign(edited["approval"]),
    )
    await driven
    assert [sent.body["input"]["title"] for sent in house.bus.calls] == ["Ladder"]


@pytest.mark.req("SESS-4")
async def test_a_run_is_its_principals_alone() -> None:
    house = House(MemoryRuns())
    anna, eve, ear = house.guest(), house.guest("eve"), Ear()
    run = await house.open(anna.client, ask(), ear, waits=False)
    outcome = await run.drive()
    (asked,) = outcome.pending
    (listed,) = await house.runs.listing(anna.client)
    assert listed["pending"][0]["approval"]["arguments_digest"] == asked.arguments_digest
    assert await house.runs.listing(eve.client) == []
    for tried in (
        house.runs.page(eve.client, run.run),
        house.runs.preview(eve.client, run.run, "p", POST),
        house.decide(eve.client, run.run, "p", Deny(), shown=asked.arguments_digest),
        house.runs.cancel(eve.client, run.run),
        house.resume(eve.client, run.run),
    ):
        with pytest.raises(HearthNetError, match="there is no run") as caught:
            await tried
        assert caught.value.code == "not_found"


@pytest.mark.req("SESS-5")
async def test_the_approval_outlives_gateway_and_client() -> None:
    house = House(MemoryRuns())
    anna = house.guest()
    run = await house.open(anna.client, ask(), Ear(), waits=False)
    outcome = await run.drive()
    later = house.gateway()
    (listed,) = await later.listing(anna.client)
    (asked,) = listed["pending"]
    signed = anna.sign(asked["approval"])
    shown = asked["arguments_digest"]
    await house.decide(anna.client, run.run, "p", Approve(), shown=shown, approval=signed, at=later)
    again = await house.resume(anna.client, run.run, at=house.gateway())
    assert (await again.drive()).message["content"] == "Posted."
    (sent,) = house.bus.calls
    assert sent.approval is not None
    assert sent.approval.id == signed["id"]
    assert outcome.pending[0].arguments_digest == sent.approval.arguments_digest


@pytest.mark.req("SESS-6")
async def test_only_tools_that_the_scope_covers_are_shown() -> None:
    narrow = Scope(("llm.chat", "market.post"))
    house = House(MemoryRuns())
    anna, ear = house.guest(scope=narrow), Ear()
    run = await house.open(anna.client, ask("market_post", "market_expire", "rag.query"), ear, waits=False)
    await run.drive()
    assert [tool["name"] for tool in house.bus.requests[0]["tools"]] == ["market_post"]
    assert ear.frames[0]["event"] == "notice"
    assert ear.frames[0]["data"]["text"].endswith(" cover: market_expire, rag.query")
    assert [frame["seq"] for frame in ear.frames] == list(range(1, len(ear.frames) + 1))
    for scope, tools in ((narrow, ask("rag.query")), (Scope(("market.post",)), ask())):
        with pytest.raises(HearthNetError) as caught:
            await house.open(house.guest(scope=scope).client, tools, Ear())
        assert caught.value.code == "token_scope_insufficient"


@pytest.mark.req("SESS-7")
async def test_a_question_waits_while_its_client_listens_and_a_while_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, ahead = asyncio.get_running_loop(), [0.0]
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])

    async def still_waits(seconds: float) -> bool:
        """Whether the run waits when the loop's clock is ahead by that much more."""
        ahead[0] += seconds
        for _ in range(50):
            await asyncio.sleep(0)
        return not driven.done()

    house = House(MemoryRuns(), away_seconds=600)
    anna, ear = house.guest(), Ear()
    run = await house.open(anna.client, ask(), ear)
    driven = driving(run)
    await ear.heard("confirmation_required")
    assert await still_waits(3_600)
    run.presence.leave()
    assert await still_waits(0)
    assert await still_waits(300)
    run.presence.come_back()
    assert await still_waits(3_600)
    run.presence.leave()
    assert await still_waits(0)
    assert await still_waits(300)
    ahead[0] += 301
    outcome = await driven
    assert [pending.tool_call_id for pending in outcome.pending] == ["p"]
    (listed,) = await house.runs.listing(anna.client)
    assert listed["state"] == "suspended"


@pytest.mark.req("SESS-14")
async def test_run_cancelled_before_its_first_step_is_not_counted() -> None:
    house = House(MemoryRuns(), *([ENDS] * (MOST_AT_ONCE + 1)))
    anna = house.guest()
    for _ in range(MOST_AT_ONCE + 1):
        run = await house.open(anna.client, ask(), Ear())
        driven = run.drive()
        driven.cancel()
        await asyncio.wait({driven})
        await asyncio.wait_for(run.over(), 30)
    assert driven.cancelled()
    with pytest.raises(HearthNetError, match="there is no run"):
        await house.runs.cancel(anna.client, run.run)
