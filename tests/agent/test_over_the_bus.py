"""Runs over a real server, with providers that check tokens and approvals themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.agent.runtime.authority import RunAuthority, Scopes
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.toolbox import Prepared
from hearthnet.agent.tools.types import Approve, Decision, Deny, PendingApproval, ToolCall
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from tests.agent.bench import POST, QUERY, RUN, TOOLBOX, paired
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT_BODY, ProbeService
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
Frames = list[tuple[str, dict[str, Any]]]


def speaking(*turns: Frames) -> ProbeService:
    """A provider whose model says these frames, turn by turn."""
    service = ProbeService()
    left = list(turns)

    async def talk(_call: Call[Any, Any], stream: Stream) -> None:
        for event, data in left.pop(0):
            await stream.send(event, data)

    service.talk = talk
    return service


def wants(name: str, arguments: dict[str, Any], call_id: str) -> tuple[str, dict[str, Any]]:
    return ("tool_call", {"id": call_id, "name": name, "arguments": arguments})


def text(words: str) -> tuple[str, dict[str, Any]]:
    return ("token", {"text": words})


@contextlib.asynccontextmanager
async def at_work(mesh: Mesh, service: ProbeService) -> AsyncIterator[tuple[Bus, ToolExecutor]]:
    tools = builtin_tools(["search_corpus", "market_post"], {"search_corpus": {"corpus": "probe"}})
    async with mesh.hosting(service), await mesh.bus() as bus:
        yield bus, ToolExecutor(bus, tools)


def posts(service: ProbeService) -> list[Call[Any, Any]]:
    return [call for call in service.calls if call.contract.name == "market.post"]


@pytest.mark.req("TOOL-2", "TOOL-5", "TOOL-21")
async def test_a_read_and_a_confirmed_post_in_one_turn(mesh: Mesh) -> None:
    service = speaking(
        [text("A moment. "), wants("search_corpus", QUERY, "a"), wants("market_post", POST, "b")],
        [text("Found, and posted.")],
    )
    asked: list[PendingApproval] = []

    async def decide(pending: PendingApproval) -> Decision:
        asked.append(pending)
        return Approve()

    async with at_work(mesh, service) as (_, executor):
        outcome = await executor.open_run(CHAT_BODY, decide=decide).drive()
    assert outcome.message["content"] == "Found, and posted."
    paired(outcome.messages)
    read, posted = [message for message in outcome.messages if message["role"] == "tool"]
    assert '"chunks"' in read["content"]
    assert '"event_id"' in posted["content"]
    (post,) = posts(service)
    assert post.body == asked[0].body
    assert post.principal == mesh.identity.node_id
    assert post.approval is not None
    assert post.approval.arguments_digest == asked[0].arguments_digest


@pytest.mark.req("TOOL-7")
async def test_the_provider_never_sees_what_was_refused(mesh: Mesh) -> None:
    service = speaking([wants("market_post", POST, "b")], [text("Not posted.")])

    async def decide(_pending: PendingApproval) -> Decision:
        return Deny("not today")

    async with at_work(mesh, service) as (_, executor):
        message = await executor.run_chat_with_tools(CHAT_BODY, decide=decide)
    assert message["content"] == "Not posted."
    assert posts(service) == []


@pytest.mark.req("TOOL-15")
async def test_the_same_call_dispatched_again_has_its_first_outcome(mesh: Mesh) -> None:
    service = speaking()
    call = ToolCall("b", "market_post", POST)
    async with at_work(mesh, service) as (_, executor):
        first = await executor.dispatch_confirmed(call)
        again = await executor.dispatch_confirmed(call)
    assert first.is_error is False
    assert first.content == again.content


@pytest.mark.req("TOOL-21")
async def test_under_a_run_token_the_provider_wants_the_approval(mesh: Mesh) -> None:
    """What a loop that skips the question would run into."""
    service = speaking()
    async with at_work(mesh, service) as (bus, _):
        tool = TOOLBOX.bound("market_post")
        ready = tool.prepare(POST, RUN)
        assert isinstance(ready, Prepared)
        token = RunAuthority(bus.peer.identity, bus.peer.community, RUN, Scopes([tool])).token(tool)
        with pytest.raises(HearthNetError, match="approval") as raised:
            await bus.call(tool.capability, ready.body, token=token, run=RUN)
    assert raised.value.code == "unauthorized"
    assert posts(service) == []


@pytest.mark.req("TOOL-16")
async def test_cancel_reaches_the_model(mesh: Mesh) -> None:
    service = ProbeService()
    talking = asyncio.Event()

    async def talk(_call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "Well"})
        talking.set()
        await asyncio.Event().wait()

    service.talk = talk
    heard: list[str] = []

    async def listen(frame: dict[str, Any]) -> None:
        heard.append(frame["event"])

    async with at_work(mesh, service) as (_, executor):
        run = executor.open_run(CHAT_BODY, stream_to=listen)
        driving = asyncio.create_task(run.drive())
        await wait_for(lambda: "token" in heard)
        run.cancel()
        outcome = await driving
        assert outcome.message["content"] == "Well"
        await wait_for(lambda: service.stopped, what="the model's end")


@pytest.mark.req("TOOL-14")
async def test_a_tool_that_nobody_offers_is_an_error_result(mesh: Mesh) -> None:
    service = speaking([wants("search_corpus", QUERY, "a")], [text("I could not look.")])
    tools = builtin_tools(["search_corpus"], {"search_corpus": {"corpus": "nowhere"}})
    async with at_work(mesh, service) as (bus, _):
        outcome = await ToolExecutor(bus, tools).open_run(CHAT_BODY).drive()
    (result,) = [message for message in outcome.messages if message["role"] == "tool"]
    assert result["content"].startswith("not_found: ")
    assert outcome.message["content"] == "I could not look."


@pytest.mark.req("TOOL-16")
async def test_a_model_that_nobody_offers_is_an_error(mesh: Mesh) -> None:
    body = {"params": {"model": "nobody-has-this"}, "input": CHAT_BODY["input"]}
    async with at_work(mesh, speaking()) as (_, executor):
        with pytest.raises(HearthNetError, match="nobody-has-this") as raised:
            await executor.run_chat_with_tools(body)
    assert raised.value.code == "not_found"
