"""Threads: only what is new is sent, and the whole again where it was forgotten (docs/tools.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.selection import MAX_TOOLS
from hearthnet.bus.routing.session_affinity import LONGEST_NAME
from hearthnet.core.errors import HearthNetError
from tests.agent.bench import QUERY
from tests.agent.runtime.test_executor import tools
from tests.agent.scripted import Line, ScriptedBus, calls, gives, says

pytestmark = pytest.mark.asyncio
ASKED = {"role": "user", "content": "How?"}
TOLD = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]


def done(kept: int | None = None) -> Line:
    more = {} if kept is None else {"thread_length": kept}
    return ("done", {"tokens_in": 1, "tokens_out": 1, "stop_reason": "end", "ms": 1, "model": "m", **more})


def missing() -> HearthNetError:
    return HearthNetError("thread_missing", "not kept")


async def sent(*turns: list[Line], **given: Any) -> list[dict[str, Any]]:
    bus = ScriptedBus(*turns, tools={"rag.query@1.0": gives({"chunks": []})})
    body = {"params": {}, "input": {"messages": [ASKED], "thread_id": "t", **given}}
    message = await ToolExecutor(bus, tools("search_corpus")).run_chat_with_tools(body)
    assert message["content"] == "Boil it."
    return bus.requests


CALL = calls("search_corpus", QUERY, "a")


@pytest.mark.req("TOOL-55")
async def test_a_turn_in_a_thread_sends_what_is_new() -> None:
    first, second = await sent([CALL, done(2)], [says("Boil it."), done(4)])
    assert (first["thread_length"], first["messages"]) == (0, [ASKED])
    assert second["thread_length"] == 2
    assert [message["role"] for message in second["messages"]] == ["tool"]


@pytest.mark.req("TOOL-55")
async def test_a_conversation_is_continued_where_the_caller_left_it() -> None:
    (only,) = await sent([says("Boil it."), done(4)], messages=[*TOLD, ASKED], thread_length=2)
    assert (only["thread_length"], only["messages"]) == (2, [ASKED])


@pytest.mark.req("TOOL-55")
@pytest.mark.parametrize("said", [missing(), ("error", missing().to_body())], ids=["raised", "frame"])
async def test_a_thread_that_is_missing_is_sent_whole_and_nobody_notices(said: Line) -> None:
    first, second = await sent([said], [says("Boil it."), done(4)], messages=[*TOLD, ASKED], thread_length=2)
    assert (first["thread_length"], len(first["messages"])) == (2, 1)
    assert (second["thread_length"], second["messages"]) == (0, [*TOLD, ASKED])


@pytest.mark.req("TOOL-55")
@pytest.mark.parametrize("kept", [None, 1, 9])
async def test_where_another_length_is_kept_the_whole_is_sent(kept: int | None) -> None:
    _, second = await sent([CALL, done(kept)], [says("Boil it."), done()])
    assert second["thread_length"] == 0
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool"]


@pytest.mark.req("TOOL-55")
async def test_a_thread_missing_twice_is_the_models_error() -> None:
    with pytest.raises(HearthNetError, match="not kept"):
        await sent([missing()], [missing()], messages=[*TOLD, ASKED], thread_length=2)
    with pytest.raises(HearthNetError, match="not kept"):
        await sent([missing()])


@pytest.mark.req("TOOL-55")
@pytest.mark.parametrize("given", [{"thread_length": 1}, {"thread_length": -1}, {"thread_length": "2"}])
async def test_a_length_that_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(HearthNetError, match="thread_length") as raised:
        await sent([], **given)
    assert raised.value.code == "bad_request"


@pytest.mark.req("TOOL-55")
async def test_a_length_without_a_thread_is_refused() -> None:
    body = {"params": {}, "input": {"messages": [*TOLD, ASKED], "thread_length": 2}}
    with pytest.raises(HearthNetError, match="thread_id"):
        ToolExecutor(ScriptedBus(), []).open_run(body)


@pytest.mark.req("TOOL-60")
async def test_the_turns_of_a_thread_go_to_the_process_that_holds_it() -> None:
    async def sessions(thread: str) -> list[str]:
        bus = ScriptedBus([says("Yes."), done()], [says("Yes."), done()])
        given: dict[str, Any] = {"messages": [ASKED], **({"thread_id": thread} if thread else {})}
        for _ in range(2):
            await ToolExecutor(bus, []).run_chat_with_tools({"params": {}, "input": given})
        return bus.sessions

    assert await sessions("") == ["", ""]
    assert await sessions("t-1") == ["t-1", "t-1"]
    # One that is too long for a header is stood for by its hash, the same in each turn.
    (first, again), (other, _) = await sessions("t" * 128), await sessions("t" * 127 + "u")
    assert (first, len(first)) == (again, LONGEST_NAME)
    assert other != first


@pytest.mark.req("TOOL-60")
async def test_the_model_is_made_ready_with_the_tools_that_it_will_be_given() -> None:
    failing: Line = ("error", {"error": "timeout", "message": "m"})
    bus = ScriptedBus([done()], [done()], [failing])
    executor = ToolExecutor(bus, tools("list_corpora"))
    await executor.prewarm({"params": {"model": "m"}})
    (request,) = bus.requests
    assert bus.params == [{"model": "m"}]
    assert (request["max_tokens"], request["tool_choice"]) == (0, "auto")
    assert [tool["name"] for tool in request["tools"]] == ["list_corpora"]
    assert request["messages"] == [{"role": "user", "content": ""}]
    thread = {"messages": [*TOLD, ASKED], "thread_id": "t", "thread_length": 2}
    await ToolExecutor(bus, []).prewarm({"input": thread})
    assert bus.requests[1] == {**thread, "messages": [ASKED], "max_tokens": 0, "stream": True}
    assert bus.sessions == ["", "t"]
    with pytest.raises(HearthNetError) as failed:
        await ToolExecutor(bus, []).prewarm({})
    assert failed.value.code == "timeout"


@pytest.mark.req("TOOL-60")
async def test_of_many_tools_the_model_is_made_ready_with_those_chosen() -> None:
    (tool,) = tools("list_corpora")
    many = [
        msgspec.structs.replace(tool, name=f"number_{number}", description="")
        for number in range(MAX_TOOLS + 1)
    ]
    executor = ToolExecutor(bus := ScriptedBus([done()], [says("Hi."), done()]), many)
    asked: dict[str, Any] = {
        "params": {},
        "input": {"messages": [{"role": "user", "content": f"{MAX_TOOLS}?"}]},
    }
    await executor.prewarm(asked)
    await executor.run_chat_with_tools(asked)
    ready, run = ([tool["name"] for tool in request["tools"]] for request in bus.requests)
    assert ready == run
    assert ready == [f"number_{number}" for number in range(MAX_TOOLS + 1) if number != MAX_TOOLS - 1]
