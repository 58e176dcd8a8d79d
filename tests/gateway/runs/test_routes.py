"""Runs over HTTP: a real server, a real bus, the model behind the real llm service."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.gateway.runs.run import Follower, GatewayRun, NewRun
from hearthnet.trust.authorization.approval import Approval, sign_approval
from tests.gateway.running import POST, Ear, ask, driving
from tests.helpers.gateway import Guest, House
from tests.helpers.scripted_model import Say

pytestmark = pytest.mark.asyncio(loop_scope="module")


def signed(guest: Guest, unsigned: dict[str, Any]) -> dict[str, Any]:
    assert guest.identity is not None
    return sign_approval(guest.identity, msgspec.convert(unsigned, Approval)).as_json()


def question(text: str) -> dict[str, Any]:
    body = ask("market.post")
    body["input"]["messages"] = [{"role": "user", "content": text}]
    return body


async def opened(shared: House, guest: Guest, text: str, ear: Ear, *, waits: bool = True) -> GatewayRun:
    """A run whose model wants to post, and then says that it did."""
    shared.model.turns[text] = [Say(calls=(("market_post", POST),)), Say("It is posted.")]
    follower = Follower(ear, waits=waits)
    return await shared.gateway.runs.open(shared.client(guest), NewRun(question(text)), follower)


@pytest.mark.req("SESS-8")
async def test_a_run_is_listed_shown_edited_and_approved_over_http(shared: House) -> None:
    guest, ear = shared.guest(key=True), Ear()
    run = await opened(shared, guest, "over http", ear)
    driven = driving(run)
    await ear.heard("confirmation_required")
    before = len(shared.workshop.posts)
    async with shared.http(guest) as http:
        (listed,) = (await http.get("/v1/runs")).json()["runs"]
        (asked,) = listed["pending"]
        changed = {**POST, "title": "Ladder"}
        call = {"call": asked["tool_call_id"]}
        at = f"/v1/runs/{run.run}"
        edited = (await http.post(f"{at}/preview", json={**call, "arguments": changed})).json()
        said = {**call, "decision": "edit", "arguments": changed, "shown": asked["arguments_digest"]}
        refused = await http.post(f"{at}/decisions", json=said)
        assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
        said["approval"] = signed(guest, edited["approval"])
        first = (await http.post(f"{at}/decisions", json=said)).json()
        again = (await http.post(f"{at}/decisions", json=said)).json()
        assert (first["word"], first["repeated"], again["repeated"]) == ("edited", False, True)
        outcome = await driven
        page = (await http.get(at)).json()
        cancelled = await http.post(f"{at}/cancel")
        assert (cancelled.status_code, cancelled.json()["error"]) == (400, "bad_request")
    assert outcome.message["content"].strip() == "It is posted."
    (post,) = shared.workshop.posts[before:]
    assert post.body["input"]["title"] == "Ladder"
    assert post.principal == shared.client(guest).principal
    (done,) = page["calls"]
    assert (done["status"], done["decided"]["via"]) == ("completed", "http")
    assert done["decided"]["approval"] == said["approval"]["id"]
    assert page["messages"][-1]["content"].strip() == "It is posted."


@pytest.mark.req("SESS-8")
async def test_a_run_is_cancelled_over_http(shared: House) -> None:
    guest, ear = shared.guest(), Ear()
    run = await opened(shared, guest, "cancelled over http", ear)
    driven = driving(run)
    await ear.heard("confirmation_required")
    async with shared.http(guest) as http:
        ended = (await http.post(f"/v1/runs/{run.run}/cancel")).json()
    assert ended["state"] == "ended"
    outcome = await driven
    assert outcome.done is not None
    assert outcome.done["stop_reason"] == "cancelled"


@pytest.mark.req("SESS-21")
async def test_no_over_http_needs_id_alone_and_yes_more(shared: House) -> None:
    guest, ear = shared.guest(), Ear()
    run = await opened(shared, guest, "denied over http", ear)
    driven = driving(run)
    asked = await ear.heard("confirmation_required")
    before = len(shared.workshop.posts)
    async with shared.http(guest) as http:
        at, call = f"/v1/runs/{run.run}/decisions", {"call": asked["tool_call_id"]}
        refused = await http.post(at, json={**call, "decision": "approve"})
        assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
        denied = await http.post(at, json={**call, "decision": "deny"})
        assert (denied.status_code, denied.json()["word"]) == (200, "denied")
    await driven
    assert len(shared.workshop.posts) == before


@pytest.mark.req("SESS-4", "SESS-8")
async def test_over_http_others_find_no_such_run(shared: House) -> None:
    anna, eve = shared.guest(key=True), shared.guest(key=True)
    run = await opened(shared, anna, "mine alone", Ear(), waits=False)
    await run.drive()
    async with shared.http(eve) as http:
        assert (await http.get("/v1/runs")).json() == {"runs": []}
        at = f"/v1/runs/{run.run}"
        said = {"call": "x", "decision": "deny"}
        tried = [
            await http.get(at),
            await http.post(f"{at}/decisions", json=said),
            await http.post(f"{at}/preview", json={"call": "x", "arguments": {}}),
            await http.post(f"{at}/cancel"),
        ]
        assert [(one.status_code, one.json()["error"]) for one in tried] == [(404, "not_found")] * 4
    async with shared.http() as http:
        assert (await http.get("/v1/runs")).status_code == 401


@pytest.mark.req("SESS-8")
@pytest.mark.parametrize(
    "said",
    [{"call": "x", "decision": "edit", "shown": ""}, {"call": "x", "decision": "maybe", "shown": ""}, {}, []],
)
async def test_what_is_no_decision_is_refused(shared: House, said: Any) -> None:
    async with shared.http(shared.guest()) as http:
        answer = await http.post("/v1/runs/01JZZZZZZZZZZZZZZZZZZZZZ02/decisions", json=said)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
