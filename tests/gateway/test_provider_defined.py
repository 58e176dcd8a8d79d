"""Capabilities that came with no installation, over plain HTTP: tools of an MCP server behind the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

import hearthnet
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.api.capabilities import check_installed, check_offered
from hearthnet.nats.client import NatsClient
from tests.gateway.test_mcp import connected
from tests.helpers.gateway import House
from tests.helpers.socket_client import line
from tests.helpers.waiting import wait_for
from tests.services.mcp.houses import Plain, configure, running, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECONDS = 30.0
EVENTS = {"Accept": "text/event-stream"}
READ, EFFECT = "experimental.mcp.plain.echo", "experimental.mcp.plain.write"


def asked(capability: str, **more: Any) -> dict[str, Any]:
    return {"capability": capability, "body": {"params": {}, "input": {"text": "hello"}}, **more}


@pytest.mark.req("HTTP-36")
async def test_tools_of_an_mcp_server_are_listed_and_called(shared: House, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("echo", "Says it again."), tool("write", "Writes."))
    settings = shared.mesh.home.config_file.read_text()
    try:
        async with running(shared.mesh, settings, plain.toml(share=True, read_only=["echo"])):
            async with shared.http(shared.guest(READ, EFFECT, "experimental.mcp.plain.none")) as http:

                async def listed() -> list[Any]:
                    found: list[Any] = (await http.get("/v1/capabilities")).json()["capabilities"]
                    return found if len(found) > 1 else []

                pages = await wait_for(listed, SECONDS)
                read = await http.post("/v1/call", json=asked(READ))
                effect = await http.post("/v1/call", json=asked(EFFECT))
                other = await http.post("/v1/call", json=asked(READ, version="1.0"))
                nobody = await http.post("/v1/call", json=asked("experimental.mcp.plain.none"))
            async with shared.http(shared.guest("rag.query")) as http:
                hidden = (await http.get("/v1/capabilities")).json()["capabilities"]
                refused = await http.post("/v1/call", json=asked(READ))
    finally:
        configure(shared.mesh.home, settings)
    assert [(page["name"], page["side_effects"]) for page in pages] == [(READ, False), (EFFECT, True)]
    assert [offer["node"] for page in pages for offer in page["offers"]] == [shared.bus.peer.node_id] * 2
    assert read.status_code == 200, read.text
    said = {"content": [{"type": "text", "text": '{"text": "hello"}'}], "is_error": False}
    assert read.json()["output"]["frames"] == [{"event": "result", "data": said}]
    assert (effect.status_code, effect.json()["error"]) == (501, "not_implemented")
    assert (other.status_code, other.json()["error"]) == (404, "not_found")
    assert (nobody.status_code, nobody.json()["error"]) == (404, "not_found")
    assert [page["name"] for page in hidden] == ["rag.query"]
    assert (refused.status_code, refused.json()["error"]) == (403, "token_scope_insufficient")
    (call,) = plain.heard("tools/call")
    assert (call["params"]["name"], call["params"]["arguments"]) == ("echo", {"text": "hello"})


@pytest.mark.req("HTTP-36")
async def test_tool_with_an_argument_called_stream_gets_it(shared: House, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "stream": {"type": "string"}}}
    plain.lists(tool("echo", schema=schema), tool("write", schema=schema))
    settings = shared.mesh.home.config_file.read_text()
    body = {"params": {}, "input": {"text": "hello", "stream": "Isar"}}
    try:
        async with (
            running(shared.mesh, settings, plain.toml(share=True, read_only=["echo"])),
            shared.http(shared.guest(READ, EFFECT)) as http,
        ):

            async def offered() -> bool:
                return len((await http.get("/v1/capabilities")).json()["capabilities"]) == 2

            await wait_for(offered, SECONDS)
            read = await http.post(f"/v1/call/{READ}", json=body)
            effect = await http.post(f"/v1/call/{EFFECT}", json=body)
    finally:
        configure(shared.mesh.home, settings)
    assert read.status_code == 200, read.text
    (call,) = plain.heard("tools/call")
    assert call["params"]["arguments"] == body["input"]
    assert (effect.status_code, effect.json()["error"]) == (501, "not_implemented")


@pytest.mark.req("HTTP-36", "SOCK-1")
async def test_tool_of_an_mcp_server_is_called_by_socket(shared: House, tmp_path: Path) -> None:
    """No list of capabilities was read before, so the gateway has to fetch the contract itself."""
    plain, name = Plain(tmp_path / "other", "other"), "experimental.mcp.other.echo"
    plain.lists(tool("echo", "Says it again."))
    settings, body = shared.mesh.home.config_file.read_text(), asked(name)["body"]
    guest, own = shared.guest(name), "hello.greet"
    try:
        async with running(shared.mesh, settings, plain.toml(share=True, read_only=["echo"])):

            async def answered() -> list[dict[str, Any]]:
                async with line(shared, guest) as one:
                    await one.call(shared, guest, name, body, version="")
                    frames = await one.rest()
                return frames if frames[-1]["data"].get("error") != "not_found" else []

            frames = await wait_for(answered, SECONDS)
            async with line(shared, guest) as one:
                await one.call(shared, guest, name, body, version="", timeout_ms=600_001)
                (late,) = await one.rest()
            async with line(shared, guest) as one:
                await one.call(shared, guest, own, body, version="")
                (private,) = await one.rest()
    finally:
        configure(shared.mesh.home, settings)
    assert [frame["event"] for frame in frames] == ["opened", "result", "done"]
    (call,) = plain.heard("tools/call")
    assert call["params"]["arguments"] == body["input"]
    assert (late["data"]["error"], late["data"]["details"]["path"]) == ("bad_request", "/timeout_ms")
    assert private["data"]["error"] == "unauthorized"
    assert "called at its own home only" in private["data"]["message"]


@pytest.mark.req("AUTHOR-3")
async def test_capability_of_another_namespace_is_not_for_clients(shared: House) -> None:
    service = hearthnet.Service("hello")

    @service.capability("hello.greet@1.0", trust="member")
    async def greet(text: str) -> str:
        """Greet a person by name."""
        return f"Hello {text}"

    async with shared.mesh.hosting(service), await shared.mesh.bus() as bus:
        async with shared.http(shared.guest("hello.greet", "rag.query")) as http:
            called = await http.post("/v1/call", json=asked("hello.greet"))
            pages = (await http.get("/v1/capabilities")).json()["capabilities"]
        views = await bus.offers("hello.greet")
        assert check_installed(["hello.greet"]) == ["hello.greet"]
        with pytest.raises(HearthNetError, match="it is for this node alone, not for clients"):
            check_offered(["hello.greet"], views, [])
        with pytest.raises(HearthNetError, match=r"nobody offers hello\.great now"):
            check_offered(["hello.great"], views, [])
    assert called.status_code == 401, called.text
    assert (called.json()["error"], "called at its own home only" in called.text) == ("unauthorized", True)
    assert [page["name"] for page in pages] == ["rag.query"]


@pytest.mark.req("GATE-4", "HTTP-36", "SESS-6")
async def test_uncovered_name_is_refused_before_anything_is_sent(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every door; nobody offers the name, so that a question about it would be answered `not_found`."""
    link, send = shared.bus.peer.link, NatsClient.send
    sent: list[str] = []

    def noted(self: NatsClient, subject: str, data: bytes, reply: str = "") -> None:
        if self is link:
            sent.append(subject)
        send(self, subject, data, reply)

    name, other, chat = (
        "experimental.mcp.other.echo",
        shared.guest("rag.query", READ),
        shared.guest("llm.chat"),
    )
    body = {"model": "mesh", "messages": [{"role": "user", "content": "Hello."}]}
    of_mesh = {**body, "hearthnet": {"tools": [name, {"use": f"{name}@1.0"}]}}
    run = {"messages": body["messages"], "tools": [name]}
    async with (
        connected(shared, other, mode="legacy") as mcp,
        shared.http(other) as http,
        shared.http(chat) as own,
    ):
        monkeypatch.setattr(NatsClient, "send", noted)
        answers = [
            await http.post("/v1/call", json=asked(name)),
            await http.post("/v1/call", json=asked("market.list")),
            await http.post("/v1/call", json=asked(name, version="9.0")),
            await http.post(f"/v1/call/{name}", json=asked(name)["body"], headers=EVENTS),
            await own.post("/v1/call", json={"capability": "llm.chat", "body": {"params": {}, "input": run}}),
            await http.post("/v1/chat/completions", json=body),
            await http.post("/v1/chat/completions", json={**body, "model": "mesh+tools"}),
            await own.post("/v1/chat/completions", json=of_mesh),
        ]
        async with line(shared, other) as socket:
            await socket.call(shared, other, name, asked(name)["body"], version="")
            (frame,) = await socket.rest()
        for shown in (name, name.replace(".", "_"), "experimental_mcp_plain_echoes"):
            with pytest.raises(MCPError, match="there is no tool"):
                await mcp.call_tool(shown, {"text": "hello"})
        assert sent == []
        assert (await http.post("/v1/call", json=asked(READ))).json()["error"] == "not_found"
        assert sent != []
    assert [answer.status_code for answer in answers] == [403] * len(answers), [one.text for one in answers]
    assert frame["data"]["error"] == "token_scope_insufficient"
