"""Plain HTTP over a real server, bus and socket: what may be called, answers, events, effects."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.sse import MEDIA_TYPE
from hearthnet.trust.keys import Identity
from hearthnet_auth import AuthService
from tests.gateway.events import all_events, events_of
from tests.helpers.gateway import House
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUERY = {"capability": "rag.query", "body": {"params": {"corpus": "probe"}, "input": {"query": "water"}}}
ECHO = {"model": "echo"}
POST = {"category": "offer", "title": "Jam", "body": "Plum."}


def slow(times: int) -> dict[str, Any]:
    return {"capability": "llm.complete", "body": {"params": ECHO, "input": {"prompt": f"slow {times}"}}}


def post(**given: Any) -> dict[str, Any]:
    return {"capability": "market.post", "version": "1.0", "body": {"params": {}, "input": {**POST, **given}}}


@pytest.mark.req("HTTP-1")
async def test_a_client_sees_what_it_may_call_and_who_offers_it(shared: House) -> None:
    async with shared.http(shared.guest("rag.query", "auth.token.issue", "llm.complete")) as http:
        pages = (await http.get("/v1/capabilities")).json()["capabilities"]
        one = (await http.get("/v1/capabilities", params={"name": "rag.query"})).json()["capabilities"]
    assert [page["name"] for page in pages] == ["llm.complete", "rag.query"]
    (query,) = one
    assert query["capability"] == "rag.query@1.0"
    assert not query["side_effects"]
    assert query["request_schema"]["properties"]["params"]["required"] == ["corpus"]
    assert [offer["params"] for offer in query["offers"]] == [{"corpus": "probe"}]
    assert pages[0]["streams"]
    async with shared.http() as http:
        assert (await http.get("/v1/capabilities")).status_code == 401


@pytest.mark.req("HTTP-2")
async def test_a_call_is_answered_in_json(shared: House) -> None:
    guest = shared.guest("rag.query")
    async with shared.http(guest) as http:
        answer = await http.post("/v1/call", json=QUERY)
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"]["chunks"][0]["text"] == "about water"
    assert answer.json()["provider"] == shared.bus.peer.node_id
    assert shared.workshop.calls[-1].principal == shared.client(guest).principal


@pytest.mark.req("HTTP-2")
async def test_what_streams_is_collected_for_those_who_ask_for_json(shared: House) -> None:
    async with shared.http(shared.guest("llm.complete")) as http:
        body = {"params": ECHO, "input": {"prompt": "one two"}}
        answer = await http.post("/v1/call", json={"capability": "llm.complete@1.0", "body": body})
    assert answer.json()["output"] == {"text": "one two"}


@pytest.mark.req("HTTP-2")
async def test_frames_that_make_no_one_answer_are_collected(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet.gateway.api.call_routes.may_answer_whole", lambda _contract: False)
    async with shared.http(shared.guest("llm.complete")) as http:
        body = {"params": ECHO, "input": {"prompt": "one two"}}
        answer = await http.post("/v1/call", json={"capability": "llm.complete", "body": body})
    told = answer.json()["output"]
    assert [frame["data"]["text"] for frame in told["frames"]] == ["one ", "two "]
    assert told["final"]["tokens_out"] == 2


@pytest.mark.req("HTTP-2")
@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        ({**QUERY, "capability": "rag.qery"}, 404, "not_found"),
        ({**QUERY, "version": "9.0"}, 400, "schema_mismatch"),
        ({**QUERY, "capability": "not a name"}, 400, "bad_request"),
        ({**QUERY, "body": {"params": {"corpus": "probe"}, "input": {}}}, 400, "bad_request"),
        ({**QUERY, "body": {"params": {"corpus": "none"}, "input": {"query": "x"}}}, 404, "not_found"),
        ({**QUERY, "body": []}, 400, "bad_request"),
        ({**QUERY, "timeout_ms": 0}, 400, "bad_request"),
        ({"capability": "rag.query"}, 400, "bad_request"),
        ({**slow(1), "capability": "llm.complete"}, 403, "token_scope_insufficient"),
    ],
    ids=[
        "no such name",
        "no such version",
        "no name",
        "no query",
        "not offered",
        "no object",
        "no time",
        "no body",
        "not covered",
    ],
)
async def test_every_refusal_has_its_status_and_code(
    shared: House, sent: dict[str, Any], status: int, code: str
) -> None:
    async with shared.http(shared.guest("rag.query")) as http:
        plain = await http.post("/v1/call", json=sent)
        events = await http.post("/v1/call", json=sent, headers={"Accept": MEDIA_TYPE})
    for answer in (plain, events):
        assert (answer.status_code, answer.json()["error"]) == (status, code), answer.text
        assert answer.json()["message"]


@pytest.mark.req("HTTP-2")
async def test_what_is_for_the_own_node_alone_is_refused_to_its_guests(shared: House) -> None:
    inspect = {"params": {}, "input": {"token": "hntoken://v1/a.b.c"}}
    call = {"capability": "auth.token.introspect", "body": inspect}
    async with shared.mesh.hosting(AuthService()):
        async with shared.http(shared.guest("auth.token.introspect")) as http:
            answer = await http.post("/v1/call", json=call)
        with pytest.raises(HearthNetError, match="the token's header"):  # the node itself is answered
            await shared.bus.call("auth.token.introspect", inspect)
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized"), answer.text


@pytest.mark.req("HTTP-3")
async def test_a_stream_comes_as_events_in_order(shared: House) -> None:
    async with shared.http(shared.guest("llm.complete", "rag.query")) as http:
        body = {"params": ECHO, "input": {"prompt": "one two three"}}
        streamed = await all_events(http, {"capability": "llm.complete", "body": body})
        single = await all_events(http, QUERY)
    assert [event.data["text"] for event in streamed[:-1]] == ["one ", "two ", "three "]
    assert [event.seq for event in streamed] == list(range(1, 5))
    assert streamed[-1].event == "done"
    assert [event.event for event in single] == ["result", "done"]
    assert single[0].data["output"]["chunks"][0]["text"] == "about water"


@pytest.mark.req("HTTP-3")
async def test_progress_reaches_the_client_while_the_work_goes_on(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthnet.gateway.http.sse.FIRST_SECONDS", 0.01)
    steps = Steps()
    monkeypatch.setattr(shared.workshop, "go", steps)
    async with (
        shared.http(shared.guest("llm.complete"), headers={"Accept": MEDIA_TYPE}) as http,
        http.stream("POST", "/v1/call", json=slow(3)) as answer,
    ):
        assert answer.status_code == 200
        events = events_of(answer)
        for number in range(1, 4):
            # The provider takes this step, and waits before the next one.
            steps.release()
            event = await asyncio.wait_for(anext(events), 30)
            assert (event.event, event.data["current"]) == ("progress", number)
        assert [event.event async for event in events] == ["token", "token", "done"]


class Steps(asyncio.Semaphore):
    """In place of the workshop's `go`: one step for each release."""

    def __init__(self) -> None:
        super().__init__(0)

    async def wait(self) -> None:
        """Takes a step."""
        await self.acquire()


@pytest.mark.req("HTTP-5")
@pytest.mark.parametrize("accept", [MEDIA_TYPE, "application/json"])
async def test_work_stops_at_the_provider_when_the_client_hangs_up(shared: House, accept: str) -> None:
    workshop = shared.workshop
    workshop.go.clear()
    before, began = len(workshop.stopped), len(workshop.calls)
    async with shared.http(shared.guest("llm.complete"), headers={"Accept": accept}) as http:
        asking = asyncio.create_task(http.post("/v1/call", json=slow(1)))
        await wait_for(lambda: len(workshop.calls) > began, 30)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await wait_for(lambda: len(workshop.stopped) > before, 30, "the provider to stop")
    workshop.go.set()
    await wait_for(lambda: shared.gateway.limits._open.total() == 0, 30, "the answer to be given up")


@pytest.mark.req("HTTP-7")
async def test_asking_for_an_effect_approves_it_for_a_client_without_a_key(shared: House) -> None:
    guest, request_id = shared.guest("market.post"), ids.new_ulid()
    async with shared.http(guest) as http:
        first = await http.post("/v1/call", json=post() | {"request_id": request_id})
        again = await http.post("/v1/call", json=post() | {"request_id": request_id})
    assert first.status_code == 200, first.text
    assert first.json()["output"] == again.json()["output"]
    assert (first.json()["meta"]["repeated"], again.json()["meta"]["repeated"]) == (False, True)
    sent = shared.workshop.posts[-1]
    assert sent.principal == shared.client(guest).principal
    assert sent.body["input"]["client_id"] == request_id
    assert sent.approval is not None
    assert (sent.approval.via, sent.approval.approver) == ("gateway", shared.bus.peer.node_id)


@pytest.mark.req("HTTP-7")
async def test_a_client_with_a_key_signs_exactly_what_is_sent(shared: House) -> None:
    guest = shared.guest("market.post", key=True)
    before = len(shared.workshop.posts)
    asked = post(client_id=ids.new_ulid())

    def signed(**more: Any) -> dict[str, Any]:
        return shared.envelope("market.post", asked["body"], "1.0", guest, **more)

    async with shared.http(guest) as http:
        unsigned_call = await http.post("/v1/call", json=asked)
        first = (await http.post("/v1/call", json=signed())).json()
        (pending,) = first["pending"]
        approval = sign(guest.identity, pending["approval"])
        forged = sign(Identity.generate(), pending["approval"])
        other = sign(guest.identity, {**pending["approval"], "arguments_digest": "blake3:" + "0" * 64})
        wrongs: list[Any] = [forged, other, {}, []]
        refused = [await http.post("/v1/call", json=signed(approval=wrong)) for wrong in wrongs]
        events = await all_events(http, signed())
        assert len(shared.workshop.posts) == before
        done = await http.post("/v1/call", json=signed(approval=approval))
    assert (unsigned_call.status_code, unsigned_call.json()["error"]) == (401, "invalid_signature")
    assert first["requires_follow_up"]
    assert pending["tool_call_id"] == "call"
    assert pending["body"] == asked["body"]
    assert [(answer.status_code, answer.json()["error"]) for answer in refused] == [
        (401, "invalid_signature"),
        (401, "unauthorized"),
        (400, "bad_request"),
        (400, "bad_request"),
    ]
    assert [event.event for event in events] == ["suspended"]
    assert done.status_code == 200, done.text
    (post_made,) = shared.workshop.posts[before:]
    assert post_made.approval is not None
    assert post_made.approval.as_json() == approval


def sign(identity: Identity | None, unsigned: dict[str, Any]) -> dict[str, Any]:
    import msgspec

    from hearthnet.trust import signed_document as signed
    from hearthnet.trust.authorization.approval import PURPOSE, Approval

    assert identity is not None
    approval = msgspec.convert({**unsigned, "signature": ""}, Approval)
    return signed.sign(approval, identity, PURPOSE).as_json()


@pytest.mark.req("HTTP-40")
async def test_client_with_a_key_signs_no_bare_body(shared: House) -> None:
    async with shared.http(shared.guest("rag.query", key=True)) as http:
        refused = await http.post("/v1/call/rag.query", json=QUERY["body"])
    assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
    assert "/v1/call" in refused.json()["message"]
    async with shared.http(shared.guest("rag.query")) as http:
        events = await http.post("/v1/call/rag.query", json=QUERY["body"], headers={"Accept": MEDIA_TYPE})
    assert "event: result" in events.text


@pytest.mark.req("HTTP-7")
async def test_what_takes_input_while_it_answers_is_not_for_http(shared: House) -> None:
    body = {"params": {}, "input": {"name": "a.txt", "size_bytes": 1}}
    async with shared.http(shared.guest("file.put")) as http:
        answer = await http.post("/v1/call", json={"capability": "file.put", "body": body})
    assert (answer.status_code, answer.json()["error"]) == (501, "not_implemented")
    assert "has an effect and streams" in answer.json()["message"]


@pytest.mark.req("HTTP-8")
async def test_so_many_answers_at_once_and_no_more(shared: House) -> None:
    guest = shared.guest("rag.query")
    client, before = shared.client(guest).id, len(shared.workshop.calls)
    for _ in range(127):
        shared.gateway.limits.opened(client, 1000)
    try:
        async with shared.http(guest) as http:
            for accept in (MEDIA_TYPE, "application/json"):
                answer = await http.post("/v1/call", json=QUERY, headers={"Accept": accept})
                assert answer.status_code == 200, answer.text
            shared.gateway.limits.opened(client, 1000)
            for accept in (MEDIA_TYPE, "application/json"):
                answer = await http.post("/v1/call", json=QUERY, headers={"Accept": accept})
                assert (answer.status_code, answer.json()["error"]) == (503, "capacity_exceeded")
            shared.gateway.limits.closed(client)
    finally:
        for _ in range(127):
            shared.gateway.limits.closed(client)
    assert len(shared.workshop.calls) == before + 2


@pytest.mark.req("HTTP-9")
async def test_the_description_needs_no_key(shared: House) -> None:
    async with shared.http() as http:
        answer = await http.get("/openapi.json")
    assert isinstance(answer, httpx2.Response)
    assert answer.json()["openapi"].startswith("3.1")
