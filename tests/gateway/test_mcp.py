"""The mesh as an MCP server, with the official client in both protocols, and the inspector."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from hearthnet.gateway.mcp import server
from hearthnet_auth import AuthService
from hearthnet_mcp import McpService
from tests.helpers.gateway import SLOW, Guest, House
from tests.helpers.probe import POST, QUERY
from tests.helpers.waiting import wait_for
from tests.services.mcp.houses import Plain, configure, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")
INSPECTOR = Path(__file__).parents[1] / "clients" / "node_modules" / ".bin" / "mcp-inspector"
SECONDS = 30.0
BEES = {"query": "bees", "corpus": "probe"}
ARTICLE = {"category": "offer", "title": "Ladder", "body": "4 m\u202e long"}
MODES = ("auto", "legacy")


class Person:
    """Who sits at the MCP client."""

    def __init__(self, action: str = "accept", *, send: bool = True) -> None:
        self.shown: list[str] = []
        self.action = action
        self.send = send

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.shown.append(params.message)
        content = {"send": self.send} if self.action == "accept" else None
        return ElicitResult.model_validate({"action": self.action, "content": content})


@contextlib.asynccontextmanager
async def connected(house: House, guest: Guest, **options: Any) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=guest.bearer, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{house.url}/mcp", http_client=http)
        async with Client(transport, cache=None, **options) as client:
            yield client


def said(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.req("MCP-1", "MCP-2")
@pytest.mark.parametrize("mode", MODES)
async def test_capabilities_are_tools_with_schemas_and_hints(shared: House, mode: str) -> None:
    guest = shared.guest(QUERY, POST, "market.list", SLOW)
    async with connected(shared, guest, mode=mode) as client:
        listed = {one.name: one for one in (await client.list_tools()).tools}
        assert sorted(listed) == ["llm_complete", "market_post", "rag_query"], "market.list nobody offers"
        query, post = listed["rag_query"], listed["market_post"]
        assert query.annotations is not None
        assert query.annotations.read_only_hint
        assert sorted(query.input_schema["required"]) == ["corpus", "query"]
        assert query.input_schema["additionalProperties"] is False
        assert query.output_schema == {
            "type": "object",
            "properties": {"chunks": {"type": "array"}},
            "required": ["chunks"],
        }
        assert post.annotations is not None
        assert (post.annotations.read_only_hint, post.annotations.destructive_hint) == (False, False)
        assert post.annotations.idempotent_hint is False
        assert "client_id" not in post.input_schema["properties"]
        found = await client.call_tool("rag_query", BEES)
        assert found.structured_content["chunks"][0]["text"] == "about bees"
        assert json.loads(said(found)) == found.structured_content
        same = await client.call_tool("rag.query", BEES)
        assert not same.is_error


@pytest.mark.req("MCP-3")
@pytest.mark.parametrize("mode", MODES)
async def test_an_effect_happens_with_a_yes_to_exactly_what_was_shown(shared: House, mode: str) -> None:
    person, before = Person(), len(shared.workshop.posts)
    async with connected(shared, shared.guest(POST), mode=mode, elicitation_callback=person) as client:
        done = await client.call_tool("market_post", ARTICLE)
        assert not done.is_error, said(done)
        (post,) = shared.workshop.posts[before:]
        (shown,) = person.shown
        assert post.body["input"]["client_id"] in shown
        assert '"title": "Ladder"' in shown
        assert "\\u202e" in shown
        assert "\u202e" not in shown
        assert post.approval is not None
        assert post.approval.via == "gateway"
        for person.action, person.send in (("decline", True), ("cancel", True), ("accept", False)):
            refused = await client.call_tool("market_post", ARTICLE)
            assert refused.is_error
            assert said(refused).startswith("unauthorized: the person ")
            assert "nothing was sent" in said(refused)
        assert len(shared.workshop.posts) == before + 1
        wrong = await client.call_tool("market_post", {**ARTICLE, "ttl_seconds": 1})
        assert said(wrong).startswith("bad_request: market.post@1.0: /input/ttl_seconds")
        assert len(person.shown) == 4, "nobody is asked about what is not valid"


@pytest.mark.req("MCP-3")
async def test_who_signs_itself_is_told_where_to_say_yes(shared: House) -> None:
    before, person = len(shared.workshop.posts), Person()
    async with connected(shared, shared.guest(POST, key=True), elicitation_callback=person) as client:
        refused = await client.call_tool("market_post", ARTICLE)
    assert refused.is_error
    assert said(refused) == (
        "unauthorized: this client approves with a key of its own, which MCP cannot use: "
        "add one without a key for it, with hearthnet clients add"
    )
    assert (person.shown, len(shared.workshop.posts)) == ([], before)


@pytest.mark.req("MCP-3", "SESS-21")
async def test_a_seal_is_for_one_call_of_one_client(shared: House) -> None:
    before, guest = len(shared.workshop.posts), shared.guest(POST)

    async def never(context: Any, params: Any) -> ElicitResult:
        raise AssertionError("asked")

    async with (
        connected(shared, guest, elicitation_callback=never) as client,
        connected(shared, shared.guest(POST), elicitation_callback=never) as other,
    ):

        async def call(who: Client, arguments: dict[str, Any], **more: Any) -> Any:
            return await who.session.call_tool("market_post", arguments, allow_input_required=True, **more)

        yes = {"confirm": ElicitResult(action="accept", content={"send": True})}
        asked = await call(client, ARTICLE)
        seal = asked.request_state
        forged = seal[:-4] + ("0000" if not seal.endswith("0000") else "1111")
        for who, arguments, state, code in (
            (other, ARTICLE, seal, "unauthorized"),
            (client, ARTICLE, forged, "unauthorized"),
            (client, ARTICLE, "no seal", "unauthorized"),
            (client, ARTICLE, "é.é", "unauthorized"),
        ):
            answer = await call(who, arguments, request_state=state, input_responses=yes)
            assert said(answer).startswith(code)
        changed = await call(client, {**ARTICLE, "title": "Car"}, request_state=seal, input_responses=yes)
        assert said(changed).startswith("bad_request: this is not the call that was shown")
        spent = await call(client, ARTICLE, request_state=seal, input_responses=yes)
        assert said(spent).startswith("expired")
        seal = (await call(client, ARTICLE)).request_state
        no = {"confirm": ElicitResult(action="decline")}
        denied = await call(client, {"title": "Car"}, request_state=seal, input_responses=no)
        assert said(denied) == "unauthorized: the person said no; nothing was sent"
        spent = await call(client, ARTICLE, request_state=seal, input_responses=yes)
        assert said(spent).startswith("expired"), "a no ends the question"
        fresh = (await call(client, ARTICLE)).request_state
        assert len(shared.workshop.posts) == before
        done = await call(client, ARTICLE, request_state=fresh, input_responses=yes)
        assert not done.is_error
        twice = await call(client, ARTICLE, request_state=fresh, input_responses=yes)
        assert said(twice).startswith("expired")
        assert len(shared.workshop.posts) == before + 1


@pytest.mark.req("MCP-4")
@pytest.mark.parametrize("mode", MODES)
async def test_progress_is_told_and_cancellation_reaches_the_provider(shared: House, mode: str) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    workshop, stopped = shared.workshop, len(shared.workshop.stopped)
    async with connected(shared, shared.guest(SLOW), mode=mode) as client:
        result = await client.call_tool(
            "llm_complete", {"prompt": "slow 3", "model": "echo"}, progress_callback=told
        )
        assert not result.is_error, said(result)
        assert result.structured_content["final"]["model"] == "echo"
        await wait_for(lambda: len(steps) == 3, SECONDS)
        assert steps == [(number, 3, "working") for number in (1, 2, 3)]
        workshop.go.clear()
        begun = len(workshop.calls)
        try:
            call = asyncio.create_task(
                client.call_tool("llm_complete", {"prompt": "slow 2", "model": "echo"})
            )
            await wait_for(lambda: len(workshop.calls) > begun, SECONDS)
            call.cancel()
            await asyncio.wait({call})
            await wait_for(lambda: len(workshop.stopped) > stopped, SECONDS)
        finally:
            workshop.go.set()


@pytest.mark.req("MCP-5")
async def test_errors_are_results_with_code_and_help(shared: House) -> None:
    async with connected(shared, shared.guest(QUERY, "market.list")) as client:
        for name, arguments, text in (
            ("rag_query", {}, "bad_request: rag.query@1.0: /params"),
            ("rag_query", {**BEES, "client_id": "y"}, "bad_request: rag.query@1.0 has no field"),
            ("market_list", {}, "not_found: nobody"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert said(result).startswith(text), said(result)
            assert result.meta is not None
            assert result.meta["hearthnet/error"]["error"] == text.partition(":")[0]


@pytest.mark.req("MCP-6")
async def test_strangers_and_others_sessions_are_refused(shared: House) -> None:
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accept = {"Accept": "application/json, text/event-stream"}
    mine, other = shared.guest(QUERY), shared.guest(QUERY)
    async with shared.http(headers=accept) as nobody, shared.http(mine, headers=accept) as http:
        assert (await nobody.post("/mcp", json=begin)).status_code == 401
        answer = await http.post("/mcp", json=begin)
        assert answer.status_code == 200
        session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        own = await http.post("/mcp", json=listing, headers=session)
        assert (own.status_code, "rag_query" in own.text) == (200, True)
        async with shared.http(other, headers=accept) as theirs:
            assert (await theirs.post("/mcp", json=listing, headers=session)).status_code == 404
        evil = {**session, "Origin": "https://evil.example"}
        foreign = await http.post("/mcp", json=listing, headers=evil)
        assert (foreign.status_code, "may not ask here" in foreign.text) == (401, True)
        shared.gateway.clients.book.remove(mine.entry.id)
        assert (await http.post("/mcp", json=listing, headers=session)).status_code == 401


@pytest.mark.req("GATE-12")
async def test_mcp_request_counts_once(shared: House, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []
    monkeypatch.setattr(shared.gateway.limits, "request", counted.append)
    guest = shared.guest(QUERY)
    async with shared.http(guest) as http:
        await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert counted == [guest.entry.id]


@pytest.mark.req("MCP-7")
@pytest.mark.parametrize("mode", MODES)
async def test_clients_hear_that_offers_come_and_go(
    shared: House, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WATCH_SECONDS", 0.1)
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("echo", f"Says it again. {mode}"))
    heard = asyncio.Event()

    async def message(one: Any) -> None:
        if getattr(one, "method", "") == "notifications/tools/list_changed":
            heard.set()

    settings = shared.mesh.home.config_file.read_text()
    name = "experimental_mcp_plain_echo"
    guest, person = shared.guest(QUERY, "experimental.mcp.plain.echo"), Person()
    options: dict[str, Any] = {"mode": mode, "message_handler": message, "elicitation_callback": person}
    service = McpService()
    async with connected(shared, guest, **options) as client, contextlib.AsyncExitStack() as stack:

        async def names() -> list[str]:
            return [one.name for one in (await client.list_tools()).tools]

        assert await names() == ["rag_query"]
        if mode == "auto":
            await stack.enter_async_context(client.listen(tools_list_changed=True))
        configure(shared.mesh.home, settings, plain.toml(share=True))
        try:
            async with shared.mesh.hosting(service) as host:
                await wait_for(service.offers, SECONDS)
                await host.refresh()
                await asyncio.wait_for(heard.wait(), SECONDS)
                listed = {one.name: one for one in (await client.list_tools()).tools}
                assert listed[name].description == f"Says it again. {mode}"
                done = await client.call_tool(name, {"text": "hello"})
                assert said(done) == '{"text": "hello"}'
                assert '"text": "hello"' in person.shown[0]
                heard.clear()
        finally:
            configure(shared.mesh.home, settings)
        await asyncio.wait_for(heard.wait(), SECONDS)
        assert await names() == ["rag_query"]


@pytest.mark.req("MCP-8")
async def test_the_owner_is_served_over_stdio(shared: House) -> None:
    person, before = Person(), len(shared.workshop.posts)
    program = str(Path(sys.executable).with_name("hearthnet"))
    arguments = ["mcp", "serve", "--home", str(shared.mesh.home.path)]
    command = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with (
        shared.mesh.hosting(AuthService()),
        Client(command, elicitation_callback=person, cache=None) as client,
    ):
        names = {one.name for one in (await client.list_tools()).tools}
        assert {"rag_query", "market_post"} <= names
        assert not any(name.startswith("auth_") for name in names)
        found = await client.call_tool("rag_query", BEES)
        assert found.structured_content["chunks"][0]["text"] == "about bees"
        done = await client.call_tool("market_post", ARTICLE)
        assert not done.is_error, said(done)
        (post,) = shared.workshop.posts[before:]
        assert post.principal == shared.mesh.identity.node_id
        assert post.approval is not None
        assert (post.approval.approver, post.approval.via or "") == (shared.mesh.identity.node_id, "")
        (shown,) = person.shown
        assert '"title": "Ladder"' in shown


@pytest.mark.req("MCP-9")
async def test_the_inspector_lists_and_calls(shared: House) -> None:
    guest = shared.guest(QUERY, POST)
    header = f"Authorization: {guest.bearer['Authorization']}"
    start = [str(INSPECTOR), "--cli", f"{shared.url}/mcp", "--transport", "http", "--header", header]

    async def inspected(*arguments: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            *start, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, err.decode()
        return json.loads(out)

    listed = await inspected("--method", "tools/list")
    assert [one["name"] for one in listed["tools"]] == ["market_post", "rag_query"]
    arguments = [
        "--method",
        "tools/call",
        "--tool-name",
        "rag_query",
        "--tool-arg",
        "query=bees",
        "corpus=probe",
    ]
    found = await inspected(*arguments)
    assert found["structuredContent"]["chunks"][0]["text"] == "about bees"
