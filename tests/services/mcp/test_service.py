"""The mcp service on a real node, in front of real MCP servers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.main import load
from hearthnet.supervisor.services.specs import installed
from hearthnet_mcp import McpService
from tests.helpers.mesh import Mesh
from tests.helpers.waiting import wait_for
from tests.services.mcp.houses import (
    EVERYTHING,
    SCHEMA,
    SECONDS,
    SERVERS,
    Plain,
    configure,
    entry,
    gone,
    offered,
    running,
    tool,
)

pytestmark = pytest.mark.asyncio
PREFIX = "experimental.mcp."


async def ask(bus: Bus, name: str, /, *, node: str = "", **given: Any) -> Any:
    body = {"params": {}, "input": given}
    return (await bus.call(PREFIX + name, body, node=node, timeout_seconds=SECONDS)).output


async def refused(work: Awaitable[Any]) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await work
    return caught.value


def text_of(output: dict[str, Any]) -> str:
    return str(output["content"][0]["text"])


def note(service: McpService) -> str:
    """What a person reads of it now."""
    return service.note or ""


def sdk(folder: Path, **settings: Any) -> str:
    folder.mkdir(exist_ok=True)
    return entry("odd", [sys.executable, str(SERVERS / "sdk.py"), str(folder)], **settings)


async def test_it_is_installed_as_every_service() -> None:
    assert "mcp" in installed()
    assert isinstance(load("mcp"), McpService)


@pytest.mark.req("MCPADD-3")
async def test_the_tools_of_a_server_of_others_are_called_over_the_bus(mesh: Mesh) -> None:
    async with running(mesh, entry("all", [str(EVERYTHING)])), await mesh.bus() as bus:
        there = await offered(bus, "echo", "get-sum", "get-tiny-image", "get-structured-content")
        assert there["echo"].params == {"server": "all", "tool": "echo"}
        assert text_of(await ask(bus, "all.echo", message="hello")) == "Echo: hello"
        assert "7" in text_of(await ask(bus, "all.get-sum", a=3, b=4))
        picture = (await ask(bus, "all.get-tiny-image"))["content"][1]
        assert (picture["type"], picture["media_type"]) == ("image", "image/png")
        weather = await ask(bus, "all.get-structured-content", location="New York")
        assert {"temperature", "conditions"} <= weather["structured"].keys()
        resource = await ask(bus, "all.get-resource-reference", resourceType="Text", resourceId=1)
        assert any(part["type"] == "document" and "text" in part for part in resource["content"])
        wrong = await refused(ask(bus, "all.get-sum", a="three", b=4))
        assert (wrong.code, wrong.details["path"]) == ("bad_request", "/input/a")


@pytest.mark.req("MCPADD-3", "CONTRACT-11")
async def test_a_tool_with_boolean_schemas_is_called(mesh: Mesh, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    # As the Go SDK of MCP writes a field of the type `any`.
    plain.lists(tool("echo", schema={"type": "object", "properties": {"value": True}, "required": ["value"]}))
    async with running(mesh, plain.toml()), await mesh.bus() as bus:
        await offered(bus, "echo")
        for value in (7, "seven", None, {"seven": [7]}):
            assert json.loads(text_of(await ask(bus, "plain.echo", value=value))) == {"value": value}
        assert (await refused(ask(bus, "plain.echo"))).code == "bad_request"


@pytest.mark.req("MCPADD-3", "MCPADD-6", "MCPADD-10")
async def test_progress_failures_and_a_list_that_grows(mesh: Mesh, tmp_path: Path) -> None:
    async with running(mesh, sdk(tmp_path / "odd", trust_hints=True)), await mesh.bus() as bus:
        there = await offered(bus, "count", "fail")
        assert not (await bus.fetch_contract(PREFIX + "odd.count")).side_effects
        assert (await bus.fetch_contract(PREFIX + "odd.fail")).side_effects
        body = {"params": {}, "input": {"to": 3}}
        async with bus.stream(str(there["count"].capability), body) as stream:
            frames = [(frame.event, frame.data) async for frame in stream]
        steps = [data for event, data in frames if event == "progress"]
        assert [(step["current"], step["total"], step["stage"]) for step in steps] == [
            (number, 3, f"step {number}") for number in (1, 2, 3)
        ]
        assert frames[-2][0] == "result"
        assert text_of(frames[-2][1]) == "counted to 3"
        failed = await ask(bus, "odd.fail", why="no milk")
        assert failed["is_error"]
        grow = next(name for name in there if name.startswith("growlist-"))
        assert text_of(await ask(bus, f"odd.{grow}")) == "grown"
        await offered(bus, "late")
        assert text_of(await ask(bus, "odd.late", text="here")) == "here"
        assert "count" in await offered(bus)


@pytest.mark.req("MCPADD-6")
async def test_a_cancelled_call_is_cancelled_at_the_server(mesh: Mesh, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("endless"))
    odd = sdk(tmp_path / "odd")
    async with running(mesh, odd, plain.toml()), await mesh.bus() as bus:
        await offered(bus, "wait", "endless")
        calls = [
            asyncio.create_task(ask(bus, "odd.wait")),
            asyncio.create_task(ask(bus, "plain.endless", text="")),
        ]
        await wait_for((tmp_path / "odd" / "waiting").exists, SECONDS)
        await wait_for(lambda: plain.heard("tools/call"), SECONDS)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        await wait_for((tmp_path / "odd" / "cancelled").exists, SECONDS)
        told = await wait_for(lambda: plain.heard("notifications/cancelled"), SECONDS)
        assert told[0]["params"]["requestId"] == plain.heard("tools/call")[0]["id"]


@pytest.mark.req("MCPADD-7")
async def test_a_server_that_ends_is_withdrawn_and_started_again(mesh: Mesh, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("exit"), tool("look"), tool("echo"))
    hold = plain.folder / "hold"
    async with running(mesh, plain.toml(read_only=["look"])) as service, await mesh.bus() as bus:
        await offered(bus, "exit", "look")
        # What reads was merely lost; of what may have had an effect nobody can say, and nobody repeats it.
        look = asyncio.create_task(ask(bus, "plain.look", text=""))
        await wait_for(lambda: plain.heard("tools/call"), SECONDS)
        hold.touch()
        unsure = await refused(ask(bus, "plain.exit", text=""))
        assert unsure.code == "outcome_unknown"
        assert (await refused(look)).code == "partition"
        await gone(bus, "exit")
        assert "ended" in note(service)
        missing = await refused(ask(bus, "plain.exit", text=""))
        assert missing.code == "not_found"
        hold.unlink()
        await offered(bus, "exit")
        assert not note(service)
        assert json.loads(text_of(await ask(bus, "plain.echo", text="again"))) == {"text": "again"}
        assert [call["params"]["name"] for call in plain.heard("tools/call")] == ["look", "exit", "echo"]


@pytest.mark.req("MCPADD-7")
async def test_an_answer_that_does_not_come_or_is_none(mesh: Mesh, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("mute"), tool("slow"), tool("odd"), tool("picky"), tool("gone"))
    plain.answers(
        odd={"result": {"content": "no list"}},
        picky={"error": {"code": -32602, "message": "not\nlike this"}},
        gone={"error": {"code": -32601, "message": "no such tool"}},
    )
    settings = {"timeout_seconds": 4, "read_only": ["slow", "picky", "gone"]}
    async with running(mesh, plain.toml(**settings)), await mesh.bus() as bus:
        there = await offered(bus, "mute", "slow", "odd", "picky", "gone")

        async def code(name: str) -> str:
            capability = str(there[name].capability)
            await bus.fetch_contract(capability)
            return (await refused(bus.call(capability, {"params": {}, "input": {"text": ""}}))).code

        assert list(await asyncio.gather(code("mute"), code("slow"))) == ["outcome_unknown", "timeout"]
        assert await code("odd") == "outcome_unknown"
        picky = await refused(ask(bus, "plain.picky", text=""))
        assert (picky.code, picky.message) == ("bad_request", "the MCP server says: not like this")
        assert await code("gone") == "not_implemented"


@pytest.mark.req("MCPADD-5", "MCPADD-8", "MCPADD-10")
async def test_the_list_and_the_settings_are_followed(mesh: Mesh, tmp_path: Path) -> None:
    plain, other = Plain(tmp_path / "plain"), Plain(tmp_path / "other", "other")
    broken = {"name": "broken", "inputSchema": "none"}
    plain.lists(
        tool("echo"), broken, tool("bad", schema={"type": "object", "properties": {"a": {"type": 7}}})
    )
    other.lists(tool("second"))
    async with running(mesh, plain.toml()) as service, await mesh.bus() as bus:
        first = (await offered(bus, "echo"))["echo"]
        assert "'broken' is left out" in note(service)
        assert "'bad' is left out" in note(service)
        plain.lists(tool("echo", "Another description."))
        await ask(bus, "plain.echo", text="")  # after which it says that its list has changed

        async def changed() -> bool:
            return (await offered(bus))["echo"].capability != first.capability

        await wait_for(changed, SECONDS)
        assert not note(service)
        old = await refused(bus.call(str(first.capability), {"params": {}, "input": {"text": ""}}))
        assert old.code == "not_found", "what was said of the old one is said of nothing any more"
        # Settings: another server comes, the first one stays, then goes.
        configure(mesh.home, plain.toml(), other.toml())
        await offered(bus, "echo", "second")
        assert len(plain.heard("initialize")) == 1
        configure(mesh.home, "[[mcp.servers]]\nname = 7")
        await wait_for(lambda: "stay as they were" in note(service), SECONDS)
        assert {"echo", "second"} <= (await offered(bus)).keys()
        configure(mesh.home, other.toml())
        await gone(bus, "echo")


@pytest.mark.req("MCPADD-9")
async def test_a_server_gets_the_variables_that_are_named_for_it_and_no_other(
    mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HN_GIVEN", "for you")
    monkeypatch.setenv("HN_KEPT", "not for you")
    monkeypatch.setenv("HN_FOLDER", str(tmp_path))
    command = [sys.executable, str(SERVERS / "sdk.py"), "${HN_FOLDER}"]
    named = entry("odd", command, env=["HN_GIVEN"])
    lost = entry("lost", [sys.executable, "${HN_ABSENT}"])
    absent = entry("absent", ["/nowhere/no-such-program"])
    async with running(mesh, named, lost, absent) as service, await mesh.bus() as bus:
        await offered(bus, "environment")
        assert text_of(await ask(bus, "odd.environment", name="HN_GIVEN")) == "for you"
        assert text_of(await ask(bus, "odd.environment", name="HN_KEPT")) == "(not set)"
        await wait_for(lambda: "lost: HN_ABSENT is not set" in note(service), SECONDS)
        await wait_for(lambda: "absent: the command cannot be run" in note(service), SECONDS)


@pytest.mark.req("MCPADD-2", "MCPADD-12")
async def test_others_see_what_is_shared_and_learn_its_contract_from_its_provider(
    mesh: Mesh, tmp_path: Path
) -> None:
    mine, ours = Plain(tmp_path / "mine", "mine"), Plain(tmp_path / "ours", "ours")
    mine.lists(tool("private", "Only for this node."))
    ours.lists(tool("echo", "For everybody.", {**SCHEMA, "title": str(tmp_path)}))
    async with (
        running(mesh, mine.toml(), ours.toml(share=True)),
        await mesh.guest_bus() as guest,
        await mesh.bus() as bus,
    ):
        there = await offered(bus, "private", "echo")
        seen = await offered(guest, "echo")
        assert seen["echo"].capability == there["echo"].capability
        assert "private" not in seen
        missing = await refused(guest.fetch_contract(str(there["private"].capability)))
        assert missing.code == "not_found"
        learned = await guest.fetch_contract(PREFIX + "ours.echo")
        assert contracts().get(learned.id) is learned
        assert learned.request_schema["description"] == "For everybody."
        assert await guest.fetch_contract(learned.id) is learned
        assert json.loads(text_of(await ask(guest, "ours.echo", node=mesh.identity.node_id, text="hi"))) == {
            "text": "hi"
        }
        unknown = await refused(
            guest.call("node.contract@1.0", {"params": {}, "input": {"capability": PREFIX + "no.tool@1.0"}})
        )
        assert unknown.code == "not_found"
        nobody = await refused(guest.fetch_contract(PREFIX + "no.tool"))
        assert (nobody.code, "nobody offers" in nobody.message) == ("not_found", True)


@pytest.mark.req("MCPADD-12")
async def test_the_mesh_describes_a_tool_as_everything_else(mesh: Mesh, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("echo", "Described."))
    async with running(mesh, plain.toml()), mesh.hosting(load("mesh")), await mesh.bus() as bus:
        there = await offered(bus, "echo")
        body = {"params": {}, "input": {"name": PREFIX + "plain.echo"}}
        found = (await bus.call("mesh.describe", body)).output
        assert found["contract"]["id"] == str(there["echo"].capability)
        assert found["contract"]["request_schema"]["description"] == "Described."
        assert found["allowed"]
