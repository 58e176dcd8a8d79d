"""What one client's runs leave behind serves no other client, and nothing of the owner's serves a guest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.persistence.run_store import StoredDocument
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.client_authority import ClientApprover
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.grant_store import GrantBook, new_entry
from hearthnet.agent.tools.builtin import builtin_tools, capability_tool
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import Approve, Deny, PendingApproval, ToolCall
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.runs.principals import ApprovalCache, ApprovalPresenter, RunPrincipals
from hearthnet.gateway.runs.run_list import FRESH_MS
from hearthnet.trust.authorization.token import Scope
from tests.agent.scripted import PROVIDER, calls, done, gives, says
from tests.agent.test_large_results import Kept
from tests.gateway.running import ENDS, POST, WANTS, Ear, House, ask, driving
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.asyncio
ROW = {"text": "x" * 3000, "doc_cid": "blake3:" + "0" * 64, "chunk_index": 0, "score": 1.0}
SEARCH = {"use": "search_corpus", "params": {"corpus": "system"}}
LOOKS = [calls("search_corpus", {"query": "water"}, "s"), done("tool_calls")]


@pytest.mark.req("SESS-13")
async def test_a_standing_grant_of_the_owner_serves_no_guest(tmp_path: Path) -> None:
    house = House(MemoryRuns(), WANTS, WANTS, ENDS)
    peer, now = house.bus.peer, now_ms()
    tools = builtin_tools(["market_post"])
    tool = Toolbox(tools).bound("market_post")
    book = GrantBook(tmp_path / "grants.json")
    entry = new_entry(
        peer.identity, peer.community, tool, PROVIDER, {}, uses=5, now_ms=now, until_ms=now + 60_000
    )
    book.add(entry, now)
    anna = house.guest()
    acting = RunPrincipals(house.bus, house.tokens).acting(anna.client)
    executor = ToolExecutor(house.bus, tools, store=house.store, grants=book, acting_for=acting)
    body = ask()
    del body["input"]["tools"]
    answer = await executor.run_chat_with_tools(body)
    assert answer["requires_follow_up"] is True
    assert house.bus.calls == []
    assert book.entries()[0].used == 0
    own = ToolExecutor(house.bus, tools, store=house.store, grants=book)
    assert (await own.run_chat_with_tools(body))["content"] == "Posted."
    assert (len(house.bus.calls), book.entries()[0].used) == (1, 1), "it serves the owner"


@pytest.mark.req("SESS-13")
async def test_a_large_result_is_read_by_its_own_run_alone() -> None:
    kept = Kept()

    def reading(cid: str) -> list[Any]:
        return [calls("read_result", {"cid": cid, "offset": 0}, "r"), done("tool_calls")]

    limits = Limits(max_result_bytes=500)
    house = House(MemoryRuns(), LOOKS, [says("Much."), done()], results=kept, limits=limits)
    house.bus.tools["rag.query@1.0"] = gives({"chunks": [ROW]})
    anna, eve = house.guest(), house.guest("eve")
    await (await house.open(anna.client, ask(SEARCH), Ear())).drive()
    (cid,) = kept.blobs
    assert cid in str(house.bus.requests[-1]["messages"])
    again = House(house.store, LOOKS, reading(cid), [says("Much."), done()], results=kept, limits=limits)
    again.bus.tools["rag.query@1.0"] = gives({"chunks": [ROW]})
    await (await again.open(again.guest().client, ask(SEARCH), Ear())).drive()
    assert "xxx" in again.bus.requests[-1]["messages"][-1]["content"]
    theirs = House(house.store, reading(cid), [says("Nothing."), done()], results=kept, limits=limits)
    await (await theirs.open(eve.client, ask(SEARCH), Ear())).drive()
    told = theirs.bus.requests[-1]["messages"][-1]["content"]
    assert "no result of this conversation has that cid" in told
    assert "xxx" not in told


@pytest.mark.req("SESS-13")
async def test_equal_reads_of_two_principals_are_two_calls() -> None:
    house = House(MemoryRuns(), LOOKS, ENDS, LOOKS, ENDS)
    house.bus.tools["rag.query@1.0"] = gives({"chunks": [ROW]})
    who = [house.guest(), house.guest("eve")]
    for guest in who:
        await (await house.open(guest.client, ask(SEARCH), Ear())).drive()
    assert house.bus.principals == [guest.client.principal for guest in who]


@pytest.mark.req("SESS-1")
async def test_a_client_that_was_removed_calls_nothing_more() -> None:
    house = House(MemoryRuns())
    anna, ear = house.guest(), Ear()
    run = await house.open(anna.client, ask(), ear)
    driven = driving(run)
    asked = await ear.heard("confirmation_required")
    signed = anna.sign(asked["approval"])

    def gone(client: Client) -> str:
        raise HearthNetError("unauthorized", "this client is not known here")

    house.tokens.token = gone  # type: ignore[method-assign]
    await house.decide(anna.client, run.run, "p", Approve(), shown=asked["arguments_digest"], approval=signed)
    with pytest.raises(HearthNetError, match="not known here"):
        await driven
    assert house.bus.calls == []


@pytest.mark.req("SESS-1")
async def test_one_call_is_made_under_the_clients_token_too() -> None:
    house = House(MemoryRuns())
    house.bus.tools["rag.query@1.0"] = gives({"chunks": []})
    anna = house.guest()
    acting = RunPrincipals(house.bus, house.tokens).acting(anna.client)
    tools = builtin_tools(["search_corpus", "market_post"], {"search_corpus": {"corpus": "system"}})
    executor = ToolExecutor(house.bus, tools, acting_for=acting)
    found = await executor.dispatch(ToolCall("s", "search_corpus", {"query": "water"}))
    assert not found.is_error
    assert house.bus.principals == [anna.client.principal]
    refused = await executor.dispatch_confirmed(ToolCall("p", "market_post", POST))
    assert refused.is_error
    assert "own signed approval" in str(refused.content)


@pytest.mark.req("SESS-14")
async def test_a_principal_drives_so_many_runs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.gateway.runs.runs.MOST_AT_ONCE", 1)
    house = House(MemoryRuns(), WANTS, ENDS)
    anna, eve = house.guest(), house.guest("eve")
    run = await house.open(anna.client, ask(), Ear(), waits=False)
    with pytest.raises(HearthNetError) as caught:
        await house.open(anna.client, ask(), Ear())
    assert caught.value.code == "capacity_exceeded"
    await house.open(eve.client, ask(), Ear())
    await run.drive()
    with pytest.raises(HearthNetError, match="no messages"):
        await house.open(anna.client, {"input": {}}, Ear())
    again = await house.resume(anna.client, run.run, waits=False)
    await again.drive()
    with pytest.raises(HearthNetError, match="there is no run"):
        await house.resume(anna.client, "x")
    await house.open(anna.client, ask(), Ear())


@pytest.mark.req("SESS-14")
async def test_a_run_that_is_driven_here_is_cancelled_in_order() -> None:
    house = House(MemoryRuns(), WANTS, ENDS)
    anna, ear = house.guest(), Ear()
    run = await house.open(anna.client, ask(), ear)
    driven = driving(run)
    await ear.heard("confirmation_required")
    ended = await house.runs.cancel(anna.client, run.run)
    assert (ended["state"], ended["pending"]) == ("ended", [])
    outcome = await driven
    assert outcome.done is not None
    assert outcome.done["stop_reason"] == "cancelled"
    assert house.bus.calls == []


@pytest.mark.req("SESS-14")
async def test_a_run_that_called_nothing_is_cancelled_too() -> None:
    house = House(MemoryRuns(), [says("Well"), asyncio.Event()])
    anna, ear = house.guest(), Ear()
    run = await house.open(anna.client, ask(), ear)
    driven = driving(run)
    await ear.heard("token")
    assert await house.runs.cancel(anna.client, run.run) == {"run": run.run, "state": "ended"}
    assert (await driven).message["content"] == "Well"
    with pytest.raises(HearthNetError, match="there is no run"):
        await house.runs.cancel(anna.client, run.run)


@pytest.mark.req("SESS-10", "TOOL-90")
async def test_an_effect_that_no_home_offers_is_refused_unasked() -> None:
    arguments = {"corpus": "mine", "doc_cid": ROW["doc_cid"]}
    ingest = [calls("rag.ingest", arguments, "i"), calls("look", {}, "k"), done("tool_calls")]
    house = House(MemoryRuns(), ingest, [says("Well."), done()])
    house.bus.offered = []
    anna = house.guest(scope=Scope(("llm.chat", "rag.ingest")))
    own = {"name": "look", "description": "", "parameters_schema": {"type": "object"}, "side_effects": True}
    ear = Ear()
    run = await house.open(anna.client, ask("rag.ingest", own), ear, waits=False)
    await run.drive()
    (refused,) = ear.all("tool_result")
    assert (refused["tool_call_id"], refused["status"]) == ("i", "refused")
    assert refused["content"].startswith("not_found: nobody offers rag.ingest@1.0")
    (listed,) = await house.runs.listing(anna.client)
    (looking,) = listed["pending"]
    assert looking["approval"] is None
    assert "approval_problem" not in looking
    shown = looking["arguments_digest"]
    said = await house.decide(anna.client, run.run, "k", Approve(), shown=shown)
    assert (said["word"], said["approval"]) == ("approved", "")


@pytest.mark.req("SESS-10")
async def test_where_no_approval_can_be_made_the_question_says_why() -> None:
    """As for a run that was saved before it was settled which home was meant."""
    house = House(MemoryRuns())
    house.bus.offered = []
    anna = house.guest()
    voter = ClientApprover(
        "p", anna.client.key, house.bus.peer.identity.node_id, house.bus.peer.community, house.bus
    )
    signing = ApprovalPresenter(voter, Toolbox([capability_tool("rag.ingest@1.0", {})]), ApprovalCache())
    pending = PendingApproval(
        confirmation_id="c",
        run="r",
        tool_call_id="i",
        name="rag.ingest",
        capability="rag.ingest@1.0",
        arguments={},
        body={},
        arguments_digest="blake3:" + "0" * 64,
        client_id="",
        expires_at=1,
    )
    shown = await signing.with_template(msgspec.to_builtins(pending))
    assert shown["approval"] is None
    assert "nobody offers rag.ingest@1.0" in shown["approval_problem"]


@pytest.mark.req("SESS-5")
async def test_a_kept_approval_that_was_altered_is_not_used() -> None:
    store = MemoryRuns()
    house = House(store)
    anna = house.guest()
    run = await house.open(anna.client, ask(), Ear(), waits=False)
    await run.drive()
    ballot = SavedRuns(store, house.bus.peer.identity, house.bus.peer.community).decision_log
    (listed,) = await house.runs.listing(anna.client)
    (asked,) = listed["pending"]
    about = asked["confirmation_id"]
    assert await ballot.decided(run.run, about) is None
    signed, shown = anna.sign(asked["approval"]), asked["arguments_digest"]
    await house.decide(anna.client, run.run, "p", Approve(), shown=shown, approval=signed)
    kept = await ballot.decided(run.run, about)
    assert kept is not None
    assert kept.signed_approval is not None
    assert kept.signed_approval.id == signed["id"]
    data = store._said[run.run, about]
    store._said["other", about] = data
    for name, stored in ((("other", about), data), ((run.run, about), data.replace(b"market", b"mrrket"))):
        store._said[name] = stored
        with pytest.raises(HearthNetError, match="was altered"):
            await ballot.decided(*name)
    again = await house.resume(anna.client, run.run)
    with pytest.raises(HearthNetError, match="was altered"):
        await again.drive()
    assert house.bus.calls == []


@pytest.mark.req("SESS-9")
async def test_of_very_many_keys_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.gateway.runs.principals._MOST_SEEN", 1)
    house = House(MemoryRuns())
    voters = RunPrincipals(house.bus, house.tokens)
    first, second = house.guest(), house.guest()
    acting = voters.acting(first.client)
    voters.remember(second.client)
    voters.remember(house.guest(own_key=False).client)
    house.tokens.known.clear()
    assert acting.token(second.client.key).startswith("hntoken://")
    with pytest.raises(HearthNetError, match="another client of yours"):
        acting.token(first.client.key)


class Counting(MemoryRuns):
    """Counts how often a run is read."""

    reads = 0

    async def load(self, run: str) -> StoredDocument | None:
        self.reads += 1
        return await super().load(run)


@pytest.mark.req("SESS-18")
async def test_who_looks_again_is_shown_the_same_and_nothing_is_read_for_it() -> None:
    store, ahead = Counting(), [0]
    house = House(store, clock=lambda: now_ms() + ahead[0])
    anna, eve = house.guest(), house.guest("eve")
    run = await house.open(anna.client, ask(), Ear(), waits=False)
    await run.drive()
    (first,) = await house.runs.listing(anna.client)
    reads = store.reads
    assert await house.runs.listing(anna.client) == [first]
    assert store.reads == reads
    assert await house.runs.listing(eve.client) == []
    page = await house.runs.page(anna.client, run.run)
    assert page["pending"] == first["pending"], "the same approval is proposed"
    ahead[0] = FRESH_MS
    assert await house.runs.listing(anna.client) == [first]
    ahead[0] = first["pending"][0]["expires_at"] - now_ms()
    (expired,) = await house.runs.listing(anna.client)
    assert expired["pending"] == []
    ahead[0] = 0
    shown = first["pending"][0]["arguments_digest"]
    await house.decide(anna.client, run.run, "p", Deny(), shown=shown)
    (decided,) = await house.runs.listing(anna.client)
    assert decided["pending"] == []


@pytest.mark.req("SESS-18")
async def test_of_very_many_lists_and_proposals_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hearthnet.gateway.runs.run_list._MOST", 1)
    monkeypatch.setattr("hearthnet.gateway.runs.principals._MOST_PROPOSED", 1)
    store = Counting()
    house = House(store, WANTS, WANTS)
    anna, eve = house.guest(), house.guest("eve")
    await (await house.open(anna.client, ask(), Ear(), waits=False)).drive()
    await (await house.open(eve.client, ask(), Ear(), waits=False)).drive()
    first = await house.runs.listing(anna.client)
    await house.runs.listing(eve.client)
    reads = store.reads
    again = await house.runs.listing(anna.client)
    assert store.reads > reads
    assert again[0]["pending"][0]["approval"]["id"] != first[0]["pending"][0]["approval"]["id"]
