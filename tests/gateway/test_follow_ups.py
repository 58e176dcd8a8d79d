"""Runs of clients without a socket: each turn returns at once, and nothing is lost or repeated in between."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from hearthnet.core import ids
from hearthnet.gateway.context import Gateway
from hearthnet.gateway.runs.runs import GatewayRuns
from hearthnet.gateway.server import serving
from hearthnet_llm.responses import retry_truncated_call
from tests.gateway.api.test_call_routes import sign
from tests.gateway.events import all_events, events_of
from tests.helpers.gateway import House
from tests.helpers.memory_runs import MemoryRuns
from tests.helpers.scripted_model import Say
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

POST = {"category": "offer", "title": "Jam", "body": "Plum."}
POSTS = Say("I will.", calls=(("market_post", POST),))
LOOK = {
    "name": "look",
    "description": "Looks",
    "parameters_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}
EVENTS = {"Accept": "text/event-stream"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def runs(shared: House) -> MemoryRuns:
    """Where the runs of the house are kept."""
    store = MemoryRuns()
    shared.gateway.runs = GatewayRuns(shared.bus, shared.gateway.clients, store)
    return store


def ask(house: House, *turns: Say, tools: tuple[Any, ...] = ("market.post",)) -> dict[str, Any]:
    """A question of its own, which the model answers with `turns`."""
    question = f"question {ids.new_ulid()}"
    house.model.turns[question] = list(turns)
    messages = [{"role": "user", "content": question}]
    return {
        "capability": "llm.chat",
        "version": "2.0",
        "body": {"params": {"model": "scripted"}, "input": {"messages": messages, "tools": list(tools)}},
    }


async def call(http: httpx2.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post("/v1/call", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def yes(waits: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The follow-up that approves all that waits."""
    said = {
        one["tool_call_id"]: {"decision": "approve", "shown": one["arguments_digest"], **more}
        for one in waits["pending"]
    }
    return {"run": waits["run"], "decisions": said}


def effects(house: House, client: Any) -> list[str]:
    """The keys of the posts of one client, as often as its provider was asked."""
    principal = house.client(client).principal
    return [post.body["input"]["client_id"] for post in house.workshop.posts if post.principal == principal]


@pytest.mark.req("HTTP-30")
async def test_a_turn_that_acts_returns_at_once_and_goes_on_when_it_was_approved(
    shared: House, runs: MemoryRuns
) -> None:
    guest = shared.guest("llm.chat", "market.post")
    async with shared.http(guest) as http:
        waits = await call(http, ask(shared, POSTS, Say("Posted.")))
        assert waits["requires_follow_up"]
        assert waits["output"]["message"]["content"].strip() == "I will."
        assert waits["pending"][0]["body"]["input"]["title"] == "Jam"
        assert effects(shared, guest) == []
        done = await call(http, yes(waits))
        assert len(effects(shared, guest)) == 1
        assert not done["requires_follow_up"]
        assert done["output"]["message"]["content"].strip() == "Posted."
        assert done["meta"]["stop_reason"] == "end"
        again = await call(http, yes(waits))
    assert again["output"]["message"]["content"].strip() == "Posted."
    assert again["meta"]["repeated"]
    assert len(effects(shared, guest)) == 1


@pytest.mark.req("HTTP-30", "SESS-21")
async def test_a_chain_of_effects_is_a_chain_of_follow_ups(shared: House, runs: MemoryRuns) -> None:
    guest = shared.guest("llm.chat", "market.post")
    other = Say(calls=(("market_post", {**POST, "title": "Bread"}),))
    async with shared.http(guest) as http:
        first = await call(http, ask(shared, POSTS, other, POSTS, Say("All done.")))
        second = await call(http, yes(first))
        repeated = await call(http, yes(first))
        assert repeated["pending"] == second["pending"]
        assert len(effects(shared, guest)) == 1
        denied = {call: {"decision": "deny", "reason": "no"} for call in yes(second)["decisions"]}
        third = await call(http, {"run": second["run"], "decisions": denied})
        (one,) = third["pending"]
        edited = {
            "decision": "edit",
            "arguments": {**POST, "title": "Jelly"},
            "shown": one["arguments_digest"],
        }
        done = await call(http, {"run": third["run"], "decisions": {one["tool_call_id"]: edited}})
    assert done["output"]["message"]["content"].strip() == "All done."
    titles = [post.body["input"]["title"] for post in shared.workshop.posts[-2:]]
    assert titles == ["Jam", "Jelly"]
    statuses = [tool["status"] for tool in done["meta"]["tools"]]
    assert statuses == ["completed", "denied", "completed"]


@pytest.mark.req("HTTP-30")
async def test_the_same_follow_up_twice_at_once_is_done_once(shared: House, runs: MemoryRuns) -> None:
    guest = shared.guest("llm.chat", "market.post")
    async with shared.http(guest) as http:
        waits = await call(http, ask(shared, POSTS, Say("Posted.")))
        before = len(shared.model.requests)
        told = await asyncio.gather(*(call(http, yes(waits)) for _ in range(4)))
    assert {one["output"]["message"]["content"].strip() for one in told} == {"Posted."}
    assert len(effects(shared, guest)) == 1
    after = [one for one in shared.model.requests[before:] if len(one["messages"]) > 1]
    assert len(after) == 1, "the model is told of the effect once"


@pytest.mark.req("HTTP-30")
async def test_another_gateway_goes_on_where_the_first_one_ended(shared: House, runs: MemoryRuns) -> None:
    guest = shared.guest("llm.chat", "market.post")
    async with shared.http(guest) as http:
        waits = await call(http, ask(shared, POSTS, Say("Posted.")))
    other = Gateway.on(shared.bus, shared.mesh.home, shared.gateway.config)
    other.runs = GatewayRuns(shared.bus, other.clients, runs)
    async with serving(other), shared.http(guest, base_url=other.url) as http:
        done = await call(http, yes(waits))
    assert done["output"]["message"]["content"].strip() == "Posted."
    assert len(effects(shared, guest)) == 1


@pytest.mark.req("HTTP-31")
async def test_a_clients_own_tools_are_handed_to_it_and_their_results_taken(
    shared: House, runs: MemoryRuns
) -> None:
    guest = shared.guest("llm.chat", "market.post")
    both = Say(calls=(("look", {"at": "sky"}), ("market_post", POST)))
    async with shared.http(guest) as http:
        waits = await call(http, ask(shared, both, Say("It is blue."), tools=(LOOK, "market.post")))
        (wanted,), (pending,) = waits["wanted"], waits["pending"]
        assert (wanted["name"], wanted["arguments"]) == ("look", {"at": "sky"})
        answers = {wanted["tool_call_id"]: {"content": {"colour": "blue"}}}
        half = await call(http, {"run": waits["run"], "answers": answers})
        assert half["requires_follow_up"]
        assert half["wanted"] == []
        assert half["pending"][0]["tool_call_id"] == pending["tool_call_id"]
        done = await call(http, yes(waits) | {"answers": {wanted["tool_call_id"]: {"content": "red"}}})
    assert done["output"]["message"]["content"].strip() == "It is blue."
    told = [message for message in shared.model.requests[-1]["messages"] if message["role"] == "tool"]
    assert "blue" in told[0]["content"]
    assert len(effects(shared, guest)) == 1


@pytest.mark.req("HTTP-31")
async def test_answers_that_come_while_another_request_drives_the_run_are_not_lost(
    shared: House, runs: MemoryRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest, begun, go = shared.guest("llm.chat", "market.post"), asyncio.Event(), asyncio.Event()
    log = shared.workshop.events
    assert log is not None
    append = log.append

    async def held(*given: Any) -> Any:
        begun.set()
        await go.wait()
        return await append(*given)

    monkeypatch.setattr(log, "append", held)
    both = Say(calls=(("look", {"at": "sky"}), ("market_post", POST)))
    async with shared.http(guest) as http:
        waits = await call(http, ask(shared, both, Say("Both."), tools=(LOOK, "market.post")))
        answers = {waits["wanted"][0]["tool_call_id"]: {"content": "blue"}}
        first = asyncio.create_task(call(http, yes(waits)))
        await begun.wait()
        second = asyncio.create_task(call(http, {"run": waits["run"], "answers": answers}))
        await wait_for(lambda: shared.gateway.limits._open.total() == 2, 30, "both requests to be answered")
        go.set()
        still, last = await first, await second
    assert [one["name"] for one in still["wanted"]] == ["look"]
    assert not last["requires_follow_up"]
    assert last["output"]["message"]["content"].strip() == "Both."
    assert len(effects(shared, guest)) == 1


@pytest.mark.req("HTTP-32")
async def test_a_client_with_a_key_signs_what_it_approves(shared: House, runs: MemoryRuns) -> None:
    guest = shared.guest("llm.chat", "market.post", key=True)
    asked = ask(shared, POSTS, Say("Posted."))
    async with shared.http(guest) as http:
        waits = await call(http, shared.envelope("llm.chat", asked["body"], "2.0", guest))
        (pending,) = waits["pending"]
        refused = await http.post("/v1/call", json=yes(waits))
        assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
        assert refused.json()["details"]["rule"] == "approval"
        assert effects(shared, guest) == []
        approval = sign(guest.identity, pending["approval"])
        body = yes(waits, approval=approval)
        done = await call(http, shared.envelope("llm.chat", body, "2.0", guest))
    assert done["output"]["message"]["content"].strip() == "Posted."
    assert len(effects(shared, guest)) == 1


@pytest.mark.req("HTTP-32")
async def test_nobody_else_can_go_on_with_a_run_or_decide_wrongly(shared: House, runs: MemoryRuns) -> None:
    guest, stranger = shared.guest("llm.chat", "market.post"), shared.guest("llm.chat", "market.post")
    async with shared.http(guest) as http, shared.http(stranger) as other:
        waits = await call(http, ask(shared, POSTS, Say("Posted.")))
        call_id = waits["pending"][0]["tool_call_id"]
        at = {"run": waits["run"]}
        for wrong, status, why in (
            ({**at, "decisions": {call_id: {"decision": "perhaps"}}}, 400, "'perhaps'"),
            ({**at, "decisions": {call_id: {"decision": "edit"}}}, 400, "which arguments"),
            ({**at, "decisions": {call_id: {"decision": "approve", "shown": "other"}}}, 401, "shown"),
            ({**at, "decisions": {"none": {"decision": "deny"}}}, 404, "'none'"),
            ({"run": ids.new_ulid()}, 404, "there is no run"),
            ({"run": 7}, 400, "`$.run`"),
            ({**at, "more": 1}, 400, "`more`"),
        ):
            for headers in ({}, EVENTS):
                answer = await http.post("/v1/call", json=wrong, headers=headers)
                assert (answer.status_code, why in answer.json()["message"]) == (status, True), answer.text
        for asked, headers in ((yes(waits), {}), (at, {}), (at, EVENTS)):
            answer = await other.post("/v1/call", json=asked, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
        assert effects(shared, guest) == effects(shared, stranger) == []
        await call(http, yes(waits))
    assert len(effects(shared, guest)) == 1


@pytest.mark.req("HTTP-33")
async def test_a_run_comes_as_events_and_so_do_its_follow_ups(shared: House, runs: MemoryRuns) -> None:
    guest = shared.guest("llm.chat", "market.post")
    async with shared.http(guest) as http:
        told = await all_events(http, ask(shared, POSTS, Say("Posted.")))
        names = [event.event for event in told]
        assert names[0] == "iteration"
        assert "confirmation_required" in names
        assert names[-1] == "suspended"
        assert [event.seq for event in told] == list(range(1, len(told) + 1))
        waits = told[-1].data
        done = await all_events(http, yes(waits))
        assert done[-1].event == "done"
        assert "".join(event.data["text"] for event in done if event.event == "token").strip() == "Posted."
        again = await all_events(http, yes(waits))
    assert [event.event for event in again] == ["token", "done"]
    assert again[0].data["text"].strip() == "Posted."
    assert len(effects(shared, guest)) == 1


@pytest.mark.req("HTTP-33")
async def test_what_breaks_a_run_before_its_first_word_has_a_status_and_later_is_an_event(
    shared: House, runs: MemoryRuns
) -> None:
    guest = shared.guest("llm.chat", "market.post")
    nowhere = ask(shared)
    nowhere["body"]["params"]["model"] = "nobody-has-it"
    async with shared.http(guest) as http:
        for headers in ({}, EVENTS):
            answer = await http.post("/v1/call", json=nowhere, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (404, "not_found"), answer.text
        waits = await call(http, ask(shared, POSTS, Say("Posted.")))
        shared.model.hangs_up = True
        try:
            events = await all_events(http, yes(waits))
        finally:
            shared.model.hangs_up = False
        assert (events[-1].event, events[-1].data["error"]) == ("error", "partition")
        assert "hung up" in events[-1].data["message"]
        assert len(effects(shared, guest)) == 1


@pytest.mark.req("HTTP-34")
async def test_progress_of_a_remote_tool_comes_before_its_result_and_the_model_sees_the_result(
    shared: House, runs: MemoryRuns
) -> None:
    guest = shared.guest("llm.chat", "llm.complete")
    slow = Say(calls=(("llm_complete", {"prompt": "slow 10"}),))
    tool = {"use": "llm.complete", "params": {"model": "echo"}}
    async with shared.http(guest) as http:
        told = await all_events(http, ask(shared, slow, Say("Done."), tools=(tool,)))
    progress = [event for event in told if event.event == "tool_progress"]
    assert [event.data["current"] for event in progress] == list(range(1, 11))
    result = next(event for event in told if event.event == "tool_result")
    assert result.seq > progress[-1].seq
    last = shared.model.requests[-1]["messages"]
    assert sum(message["role"] == "tool" for message in last) == 1
    assert last[-1]["role"] == "tool"
    seen = json.loads(last[-1]["content"])
    assert [frame["data"] for frame in seen["frames"]] == [{"text": "slow "}, {"text": "10 "}]
    assert "working" not in str(last)


@pytest.mark.req("HTTP-35")
@pytest.mark.parametrize("headers", [EVENTS, {}], ids=["events", "json"])
async def test_hanging_up_reaches_the_remote_tool_and_the_model_is_not_asked_again(
    shared: House, runs: MemoryRuns, headers: dict[str, str]
) -> None:
    workshop, guest = shared.workshop, shared.guest("llm.chat", "llm.complete")
    slow = Say(calls=(("llm_complete", {"prompt": "slow 60"}),))
    tool = {"use": "llm.complete", "params": {"model": "echo"}}
    asked = ask(shared, slow, Say("Never."), tools=(tool,))
    workshop.go.clear()
    before, began = len(workshop.stopped), len(workshop.calls)
    async with shared.http(guest, headers=headers) as http:
        asking = asyncio.create_task(http.post("/v1/call", json=asked))
        await wait_for(lambda: len(workshop.calls) > began, 30)
        requests = len(shared.model.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await wait_for(lambda: len(workshop.stopped) > before, 30, "the tool to stop")
    workshop.go.set()
    await wait_for(lambda: shared.gateway.limits._open.total() == 0, 30, "the answer to be given up")
    assert len(shared.model.requests) == requests


@pytest.mark.req("HTTP-35")
async def test_a_model_that_talks_on_is_stopped_when_nobody_reads(shared: House, runs: MemoryRuns) -> None:
    shared.model.stopped_at = 0.0
    async with (
        shared.http(shared.guest("llm.chat", "market.post"), headers=EVENTS) as http,
        http.stream("POST", "/v1/call", json=ask(shared, Say(forever=True))) as answer,
    ):
        async for event in events_of(answer):
            if event.event == "token":
                break
    await wait_for(lambda: shared.model.stopped_at, 30, "the model to be stopped")


@pytest.mark.req("LLM-99")
async def test_a_call_that_breaks_off_is_asked_for_again_and_the_run_goes_on(
    shared: House, runs: MemoryRuns
) -> None:
    guest = shared.guest("llm.chat", "rag.query")
    broken, last = Say("I look.", (("search_corpus", '{"query": "wa'),)), Say("There is one.")
    asked = ask(shared, broken, last, tools=({"use": "search_corpus", "params": {"corpus": "probe"}},))
    shared.model.turns[retry_truncated_call.RETRY_NOTICE] = [
        Say("I look.", (("search_corpus", {"query": "water"}),))
    ]
    async with shared.http(guest) as http:
        events = await all_events(http, asked)
    notices = [event.data["code"] for event in events if event.event == "notice"]
    assert notices == ["tool_call_incomplete", "tool_call_again"]
    assert (
        "".join(event.data["text"] for event in events if event.event == "token") == "I look. There is one. "
    )
    assert [event.data["status"] for event in events if event.event == "tool_result"] == ["completed"]
    assert events[-1].event == "done"
    said = [message["content"] for message in shared.model.requests[-1]["messages"]]
    assert retry_truncated_call.RETRY_NOTICE not in said
