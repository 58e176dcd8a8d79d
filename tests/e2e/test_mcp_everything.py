"""The reference server of MCP behind a node: added by a command, called by commands and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests.helpers.shell import Shell
from tests.services.mcp.houses import EVERYTHING, SERVERS, Plain, tool

pytestmark = pytest.mark.e2e
SETTINGS = """\
[server]
port = 0

[community]
port = 0

[gateway]
port = 0

[services]
enabled = ["auth", "mcp"]
"""
PREFIX = "experimental.mcp.everything."
WHOLE = f"{PREFIX}*"
TOOLS = (
    "echo",
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "gzip-file-as-resource",
    "simulate-research-query",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-long-running-operation",
)
MODES = ("auto", "legacy")
SUM = '{"params": {}, "input": {"a": 3, "b": 4}}'
TEXT = '{"params": {}, "input": {"text": "hello"}}'
MANY = [f"count-the-sheep-of-field-{number}" for number in range(38)]
"""Tools of which each can be granted, and all together have no room in a token."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A node with three servers: everything and other for all, mine for itself."""
    shell = Shell(tmp_path_factory.mktemp("everything") / "home")
    shell.home.mkdir()
    (shell.home / "hearthnet.toml").write_text(SETTINGS)
    with shell.node():
        added = shell.json(
            *("mcp", "add", "everything", "--share", "--trust-hints", "--json", "--", EVERYTHING)
        )
        assert [one["name"] for one in added["tools"]] == list(TOOLS), added
        for name, share in (("other", ["--share", "--read-only", "echo"]), ("mine", [])):
            plain = Plain(shell.home.parent / name)
            plain.lists(tool("echo", "Says it again."), *map(tool, MANY))
            command = [sys.executable, str(SERVERS / "plain.py"), str(plain.folder)]
            assert shell.json("mcp", "add", name, *share, "--json", "--", *command)["tools"]
        yield shell


def added(node: Shell, name: str, *scopes: str) -> tuple[str, dict[str, str]]:
    """A new client of the node: the gateway's address, and the header that it shows."""
    options = [part for scope in scopes for part in ("--scope", scope)]
    made = node.json("clients", "add", name, *options, "--json")
    return made["url"], {"Authorization": f"Bearer {made['secret']}"}


def called(node: Shell, name: str, **arguments: Any) -> tuple[list[Any], dict[str, Any]]:
    """The progress and the result of a call by the command."""
    body = json.dumps({"params": {}, "input": arguments})
    done = node.run("call", PREFIX + name, "--body", body, "--json")
    assert done.returncode == 0, done.stderr
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    found = {frame["event"]: frame["data"] for frame in frames}
    return [frame["data"] for frame in frames if frame["event"] == "progress"], found["result"]


@contextlib.asynccontextmanager
async def connected(url: str, header: dict[str, str], mode: str) -> AsyncIterator[Client]:
    """MCP's own client at the gateway; its person says yes."""

    async def yes(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"send": True})

    async with httpx2.AsyncClient(headers=header, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, cache=None, mode=mode, elicitation_callback=yes) as client:
            yield client


@pytest.mark.req("MCPADD-3", "MCPADD-6", "MCPADD-15")
def test_commands_call_the_reference_servers_tools(node: Shell) -> None:
    states = {one["name"]: one for one in node.json("mcp", "list", "--json")["servers"]}
    asked = [one["name"] for one in states["everything"]["tools"] if one["confirmed"]]
    assert asked == [
        "gzip-file-as-resource",
        "simulate-research-query",
        "toggle-simulated-logging",
        "toggle-subscriber-updates",
    ]
    assert called(node, "echo", message="hello")[1]["content"] == [{"type": "text", "text": "Echo: hello"}]
    assert called(node, "get-sum", a=3, b=4)[1]["content"][0]["text"] == "The sum of 3 and 4 is 7."
    picture = called(node, "get-tiny-image")[1]["content"][1]
    assert (picture["type"], picture["media_type"]) == ("image", "image/png")
    weather = called(node, "get-structured-content", location="Chicago")[1]
    assert weather["structured"].keys() == {"temperature", "conditions", "humidity"}
    resource = called(node, "get-resource-reference", resourceType="Blob", resourceId=2)[1]
    assert any(part["type"] == "document" and part["data"] for part in resource["content"])
    steps, done = called(node, "trigger-long-running-operation", duration=0.5, steps=4)
    assert [(step["current"], step["total"]) for step in steps] == [(n, 4) for n in (1, 2, 3, 4)]
    assert "Steps: 4." in done["content"][0]["text"]
    wrong = node.run("call", f"{PREFIX}get-sum", "--body", '{"params": {}, "input": {"a": "x", "b": 1}}')
    assert (wrong.returncode, "/input/a" in wrong.stderr) == (2, True)


@pytest.mark.req("MCPADD-14", "MCPADD-15", "MCP-4", "GATE-18")
@pytest.mark.parametrize("mode", MODES)
def test_a_key_for_the_whole_server_serves_an_mcp_client(node: Shell, mode: str) -> None:
    url, header = added(node, f"agent-{mode}", WHOLE)

    async def use() -> None:
        steps: list[tuple[float, float | None]] = []

        async def told(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total))

        async with connected(url, header, mode) as client:
            listed = {one.title: one for one in (await client.list_tools()).tools}
            assert listed.keys() == {PREFIX + name for name in TOOLS}

            async def call(tool: str, **arguments: Any) -> Any:
                result = await client.call_tool(listed[PREFIX + tool].name, arguments, progress_callback=told)
                assert not result.is_error, result
                return result

            assert (await call("echo", message="hello")).content[0].text == "Echo: hello"
            assert (await call("get-sum", a=3, b=4)).content[0].text == "The sum of 3 and 4 is 7."
            # The library checks it against the schema that was listed.
            promised = listed[f"{PREFIX}get-structured-content"].output_schema
            assert promised is not None
            weather = (await call("get-structured-content", location="New York")).structured_content
            assert weather.keys() == promised["properties"].keys()
            assert (await call("get-tiny-image")).content[1].type == "image"
            resource = await call("get-resource-reference", resourceType="Text", resourceId=1)
            assert "resource" in [part.type for part in resource.content]
            links = await call("get-resource-links", count=2)
            assert [part.type for part in links.content][1:] == ["resource_link", "resource_link"]
            await call("toggle-simulated-logging")  # has an effect, and the person said yes
            steps.clear()
            await call("trigger-long-running-operation", duration=0.5, steps=2)
            assert steps == [(1, 2), (2, 2)]

    asyncio.run(use())


@pytest.mark.req("GATE-18")
def test_a_key_for_the_whole_server_is_for_no_other(node: Shell) -> None:
    url, header = added(node, "narrow", WHOLE)
    body = {"params": {}, "input": {"text": "hello"}}
    with httpx2.Client(base_url=url, headers=header, trust_env=False, timeout=60) as http:
        assert http.get("/v1/me").json()["scope"]["capabilities"] == [WHOLE]
        page = http.get("/v1/capabilities")
        assert page.status_code == 200, page.text
        names = {one["name"] for one in page.json()["capabilities"]}
        assert names == {PREFIX + name for name in TOOLS}
        echo = {"capability": f"{PREFIX}echo", "body": {"params": {}, "input": {"message": "hello"}}}
        said = http.post("/v1/call", json=echo)
        assert (said.status_code, "Echo: hello" in said.text) == (200, True), said.text
        other = http.post("/v1/call", json={"capability": "experimental.mcp.other.echo", "body": body})
        assert other.json()["error"] == "token_scope_insufficient"


@pytest.mark.req("GATE-18")
@pytest.mark.parametrize(
    ("scopes", "code", "reason"),
    [
        ([f"experimental.mcp.other.{name}" for name in MANY], 2, "38 capabilities have no room in a token"),
        (["experimental.mcp.everything.ecko"], 5, "name experimental.mcp.everything.*"),
        (["experimental.mcp.nothing.*"], 5, "there is experimental.mcp.everything.*"),
        (["experimental.nothing"], 5, "nobody offers experimental.nothing now"),
        (["experimental.*"], 2, "a wildcard stands for all tools of one MCP server"),
        (["rag.*"], 2, "a wildcard stands for all tools of one MCP server"),
        (["*"], 2, "a wildcard stands for all tools of one MCP server"),
        (["experimental.mcp.mine.*"], 4, "share = true"),
        (["experimental.mcp.mine.echo"], 4, "share = true"),
        (["auth.token.issue"], 4, "no client can call it"),
        (["rag.quary"], 5, "did you mean rag.query"),
        (["Not a name"], 2, "is not a capability"),
    ],
    ids=lambda value: str(value[0])[:24] if isinstance(value, list) else None,
)
def test_a_scope_that_cannot_work_makes_no_client(
    node: Shell, scopes: list[str], code: int, reason: str
) -> None:
    options = [part for scope in scopes for part in ("--scope", scope)]
    refused = node.run("clients", "add", "never", *options)
    assert (refused.returncode, reason in refused.stderr) == (code, True), refused.stderr
    assert "hnk_" not in refused.stdout
    assert "never" not in {one["name"] for one in node.json("clients", "list", "--json")}


@pytest.mark.req("AUTH-5")
def test_token_covers_a_whole_server_and_no_other(node: Shell) -> None:
    own = node.json("status", "--json")
    issue = ("token", "issue", "--to", own["node_id"], "--cap")
    made = node.json(*issue, WHOLE, "--cap", f"{PREFIX}echo", "--json")
    file = node.home / "whole.token"
    file.write_text(made["token"])
    told = node.json("token", "show", f"@{file}", "--json")
    assert (told["active"], told["scope"]["capabilities"]) == (True, [WHOLE, f"{PREFIX}echo"])
    body = ("--body", '{"params": {}, "input": {"message": "hello"}}', "--token", f"@{file}")
    assert "Echo: hello" in node.run("call", f"{PREFIX}echo", *body).stdout
    summed = node.run("call", f"{PREFIX}get-sum", "--body", SUM, "--token", f"@{file}")
    assert "The sum of 3 and 4 is 7." in summed.stdout
    other = node.run("call", "experimental.mcp.other.echo", "--body", TEXT, "--token", f"@{file}")
    assert (other.returncode, "does not cover" in other.stderr) == (4, True), other.stderr
    for entry, code, reason in (
        ("experimental.mcp.nothing.*", 5, "nobody offers experimental.mcp.nothing.* now"),
        ("experimental.mcp.everything.ecko", 5, "nobody offers experimental.mcp.everything.ecko now"),
        ("experimental.*", 2, "a wildcard stands for all tools of one MCP server"),
        ("rag.*", 2, "a wildcard stands for all tools of one MCP server"),
        ("rag.quary", 5, "did you mean rag.query"),
    ):
        refused = node.run(*issue, entry)
        assert (refused.returncode, reason in refused.stderr) == (code, True), refused.stderr


@pytest.mark.req("GATE-18")
def test_single_tools_and_installed_capabilities_are_granted(node: Shell) -> None:
    names = [f"{PREFIX}echo", "experimental.mcp.other.echo", "market.list@1.0"]
    url, header = added(node, "several", *names)
    with httpx2.Client(base_url=url, headers=header, trust_env=False, timeout=60) as http:
        found = {one["name"] for one in http.get("/v1/capabilities").json()["capabilities"]}
    assert found == {name.partition("@")[0] for name in names}
