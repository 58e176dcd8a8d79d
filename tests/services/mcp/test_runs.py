"""Tools of MCP servers in runs: what is asked, what a yes covers, what is said of a lost outcome."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.grant_store import GrantBook, new_entry
from hearthnet.agent.tools.dynamic import dynamic_tools
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import Approve, Decision, PendingApproval, ToolCall, ToolError, ToolResult
from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.discovery import Discovery
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from tests.agent.test_over_the_bus import speaking, wants
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT_BODY
from tests.helpers.waiting import wait_for
from tests.services.mcp.houses import SECONDS, Plain, offered, running, tool

pytestmark = pytest.mark.asyncio
PREFIX = "experimental.mcp.plain."


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"tc_{name}", PREFIX + name, {"text": "hello", **arguments})


async def executor(bus: Bus, *names: str) -> ToolExecutor:
    return ToolExecutor(bus, await dynamic_tools(bus, [PREFIX + name for name in names]))


def called(plain: Plain) -> list[str]:
    return [message["params"]["name"] for message in plain.heard("tools/call")]


async def unsure(tools: ToolExecutor, name: str) -> ToolResult:
    with pytest.raises(ToolError):
        await tools.dispatch(call(name))
    return await tools.dispatch_confirmed(call(name))


@pytest.mark.req("MCPADD-4", "MCPADD-6", "MCPADD-7", "MCPADD-13")
async def test_a_person_is_asked_and_a_yes_is_for_exactly_what_was_shown(mesh: Mesh, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("echo"), tool("read"), tool("sad"), tool("exit"))
    sad = {"content": [{"type": "text", "text": "no milk"}], "isError": True}
    plain.answers(read={"result": {"content": []}}, sad={"result": sad})
    async with running(mesh, plain.toml(read_only=["read"])), await mesh.bus() as bus:
        await offered(bus, "echo", "read", "sad", "exit")
        tools = await executor(bus, "echo", "read", "sad", "exit")
        read = await tools.dispatch(call("read"))
        assert read == ToolResult("tc_read", PREFIX + "read", {"content": [], "is_error": False}, False)
        with pytest.raises(ToolError) as asked:
            await tools.dispatch(call("echo"))
        assert called(plain) == ["read"]
        assert asked.value.pending.body == {"params": {}, "input": {"text": "hello"}}
        done = await tools.dispatch_confirmed(call("echo"))
        assert done.content == {
            "content": [{"type": "text", "text": '{"text": "hello"}'}],
            "is_error": False,
        }
        failed = await unsure(tools, "sad")
        assert failed.is_error
        assert "no milk" in str(failed.content)
        # Its answer is lost: nobody runs it again.
        lost = await unsure(tools, "exit")
        assert lost.is_error
        assert str(lost.content).startswith("outcome_unknown: it may or may not have happened")
        await offered(bus, "echo")
        assert called(plain) == ["read", "echo", "sad", "exit"]


@pytest.mark.req("MCPADD-16")
async def test_any_number_of_tools_is_found_by_one_list(
    mesh: Mesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had two lists of its own before: 81 tools took 18 s for each question."""
    plain, names = Plain(tmp_path / "plain"), [f"job{number}" for number in range(20)]
    plain.lists(*map(tool, names))
    listed, lists = Discovery.listed, list[str]()

    async def counted(discovery: Discovery, wanted: str, *more: Any, **options: Any) -> Any:
        lists.append(wanted)
        return await listed(discovery, wanted, *more, **options)

    async with running(mesh, plain.toml()), await mesh.bus() as bus:
        await offered(bus, *names)
        monkeypatch.setattr(Discovery, "listed", counted)
        tools = await dynamic_tools(bus, [PREFIX + name for name in names])
    assert [one.name for one in tools] == [PREFIX + name for name in names]
    assert len(lists) == 1


@pytest.mark.req("MCPADD-4")
async def test_a_model_cannot_have_an_effect_that_nobody_confirmed(mesh: Mesh, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("echo"))
    async with running(mesh, plain.toml()), await mesh.bus() as bus:
        await offered(bus, "echo")
        tools = await executor(bus, "echo")
        bound = Toolbox(await dynamic_tools(bus, [PREFIX + "echo"])).bound(PREFIX + "echo")
        token = tools._dispatcher._authority.token(bound)
        body = {"params": {}, "input": {"text": "unasked"}}
        needs = "has side effects and needs the person's approval"
        with pytest.raises(HearthNetError, match=needs) as caught:
            await bus.call(bound.capability, body, token=token, run=tools._run)
        assert caught.value.code == "unauthorized"
        stream = bus.stream(bound.capability, body, token=token, run=tools._run)
        with pytest.raises(HearthNetError, match=needs) as caught:
            async with stream:
                await anext(stream)
        assert caught.value.code == "unauthorized"
        assert called(plain) == []


@pytest.mark.req("MCPADD-5")
async def test_a_changed_tool_is_another_one_for_every_yes_that_was_given(mesh: Mesh, tmp_path: Path) -> None:
    plain, book = Plain(tmp_path / "plain"), GrantBook(tmp_path / "grants")
    plain.lists(tool("echo", "Says it again."))
    async with running(mesh, plain.toml()), await mesh.bus() as bus:
        old = (await offered(bus, "echo"))["echo"].capability
        before = await executor(bus, "echo")
        bound = Toolbox(await dynamic_tools(bus, [PREFIX + "echo"])).bound(PREFIX + "echo")
        peer, now = bus.peer, now_ms()
        until = now + 600_000
        granted = new_entry(
            peer.identity, peer.community, bound, peer.node_id, {}, uses=5, now_ms=now, until_ms=until
        )
        book.add(granted, now)
        with pytest.raises(ToolError) as asked:
            await before.dispatch(call("echo"))
        pending = asked.value.pending
        use = book.claim_use(pending, bound, now)
        assert use is not None
        body = {"params": {}, "input": {"text": "granted"}}
        await bus.call(
            str(old), body, grant=use.grant, use=use.number, token=_token(before, bound), run=before._run
        )

        plain.lists(tool("echo", "Says it again, and to everybody."))
        await bus.call(str(old), {"params": {}, "input": {"text": "tell"}})

        async def changed() -> bool:
            return (await offered(bus))["echo"].capability != old

        await wait_for(changed, SECONDS)
        count = len(called(plain))
        fresh = Toolbox(await dynamic_tools(bus, [PREFIX + "echo"])).bound(PREFIX + "echo")
        assert book.claim_use(pending, fresh, now) is None
        # A yes to the old one, given before or after the change, reaches nothing.
        late = await before.dispatch_confirmed(call("echo"))
        assert late.is_error
        assert str(late.content).startswith("not_found")
        after = await executor(bus, "echo")
        for tools, of, code in ((before, bound, "token_scope_insufficient"), (after, fresh, "unauthorized")):
            given: dict[str, Any] = {
                "grant": use.grant,
                "use": 2,
                "token": _token(tools, of),
                "run": tools._run,
            }
            with pytest.raises(HearthNetError) as caught:
                await bus.call(fresh.capability, body, **given)
            assert caught.value.code == code
        assert "grant" in caught.value.message
        assert len(called(plain)) == count


def _token(tools: ToolExecutor, bound: Any) -> str:
    return tools._dispatcher._authority.token(bound)


@pytest.mark.req("MCPADD-4", "MCPADD-12")
async def test_what_another_node_calls_harmless_is_asked_about_all_the_same(
    mesh: Mesh, tmp_path: Path
) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("read", str(tmp_path)))
    plain.answers(read={"result": {"content": []}})
    async with (
        running(mesh, plain.toml(read_only=["read"], share=True)),
        await mesh.bus() as bus,
        await mesh.guest_bus() as guest,
    ):
        await offered(guest, "read")
        own, others = await executor(bus, "read"), await executor(guest, "read")
        assert not (await own.dispatch(call("read"))).is_error
        with pytest.raises(ToolError) as asked:
            await others.dispatch(call("read"))
        assert asked.value.pending.body == {"params": {}, "input": {"text": "hello"}}
        assert called(plain) == ["read"]
        assert not (await others.dispatch_confirmed(call("read"))).is_error
        assert called(plain) == ["read", "read"]


@pytest.mark.req("MCPADD-6")
async def test_progress_and_cancellation_pass_through_a_run(mesh: Mesh, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("endless"))
    plain.progresses(endless=[{"progress": 1, "total": 3, "message": "sieving"}])
    model = speaking([wants(PREFIX.replace(".", "_") + "endless", {"text": "hello"}, "e")])
    frames: list[dict[str, Any]] = []

    async def listen(frame: dict[str, Any]) -> None:
        frames.append(frame)

    async def decide(_pending: PendingApproval) -> Decision:
        return Approve()

    def told(event: str) -> list[dict[str, Any]]:
        return [frame["data"] for frame in frames if frame["event"] == event]

    async with running(mesh, plain.toml()), mesh.hosting(model), await mesh.bus() as bus:
        await offered(bus, "endless")
        tools = await executor(bus, "endless")
        run = tools.open_run(CHAT_BODY, stream_to=listen, decide=decide)
        driving = asyncio.create_task(run.drive())
        (step,) = await wait_for(lambda: told("tool_progress"), SECONDS, f"progress; came {frames}")
        assert (step["tool_call_id"], step["current"], step["total"], step["stage"]) == ("e", 1, 3, "sieving")
        run.cancel()
        outcome = await driving
        await wait_for(lambda: plain.heard("notifications/cancelled"), SECONDS)
    assert outcome.done is not None
    assert outcome.done["stop_reason"] == "cancelled"
