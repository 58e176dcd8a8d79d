"""Tools that the client runs itself (docs/tools.md, "The client's own tools")."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet.agent.loop.events import Abort, AskClient, ClientAnswered, Dispatch, Finish, Resume, Suspend
from hearthnet.agent.loop.state import Limits
from hearthnet.agent.runtime.client_tools import ClientResult, ClientTools
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import Approve, ClientCallRequest, Decision, PendingApproval, ToolCall
from hearthnet.core.errors import HearthNetError
from tests.agent.bench import EPOCH, LOOK, OPEN, QUERY, TOOLBOX, Bench, asked, of, only, paired
from tests.agent.runtime.test_executor import tools
from tests.agent.scripted import ScriptedBus, calls, done, gives, says
from tests.helpers.waiting import wait_for

BODY = {"params": {}, "input": {"messages": [{"role": "user", "content": "What do I see?"}]}}


@pytest.mark.req("TOOL-45")
def test_a_call_is_handed_to_the_client_beside_one_over_the_bus() -> None:
    bench = Bench()
    wanted = only(AskClient, bench.call("look_at_screen", {"part": "top"}, "a")).wanted
    assert (wanted.name, wanted.arguments, wanted.tool_call_id) == ("look_at_screen", {"part": "top"}, "a")
    assert bench.frames("tool_wanted")[0]["expires_at"] == EPOCH + Limits().confirmation_ttl_ms
    assert of(Dispatch, bench.call("search_corpus", QUERY, "b"))
    bench.model_done("tool_calls")
    bench.now += 40
    bench.answered("a", "a red page")
    assert bench.frames("tool_result")[0]["ms"] == 40
    bench.returned("b", {"chunks": []})
    paired(bench.asked_model().messages)
    assert [result["content"] for result in bench.results()] == ['"a red page"', '{"chunks":[]}']
    standings = [frame["status"] for frame in bench.frames("tool_status") if frame["tool_call_id"] == "a"]
    assert standings == ["pending", "wanted", "completed"]


@pytest.mark.req("TOOL-45")
def test_what_went_wrong_at_the_client_is_an_error_result() -> None:
    bench = Bench()
    bench.call("look_at_screen", {}, "a")
    bench.model_done("tool_calls")
    bench.answered("a", "no screen", is_error=True)
    (result,) = bench.results()
    assert (result["content"], result["is_error"]) == ('"no screen"', True)
    assert only(Finish, bench.model_done()).done["tools"][0]["status"] == "failed"


@pytest.mark.req("TOOL-45")
def test_a_call_the_client_must_not_run_is_judged_first() -> None:
    bench = Bench()
    assert not of(AskClient, bench.call("look_at_screen", {"part": 1}, "a"))
    assert bench.frames("tool_result")[0]["content"].startswith("invalid_arguments: /part")
    wrong = TOOLBOX["open_page"].prepare({"part": "\ud800"}, "")
    assert str(wrong).startswith("invalid_arguments: has no canonical JSON")


@pytest.mark.req("TOOL-45", "TOOL-5")
def test_an_effect_at_the_client_is_confirmed_first() -> None:
    bench = Bench()
    assert not of(AskClient, bench.call("open_page", {"part": "x"}, "a"))
    actions = bench.decided(asked(bench.actions).pending.confirmation_id, Approve())
    assert only(AskClient, actions).wanted.name == "open_page"


@pytest.mark.req("TOOL-45")
def test_a_run_without_its_client_is_suspended_with_what_is_wanted_and_goes_on_later() -> None:
    bench = Bench()
    bench.call("look_at_screen", {}, "a")
    bench.call("open_page", {}, "b")
    bench.unanswered("a")
    bench.model_done("tool_calls")
    suspended = only(Suspend, bench.undecided(asked(bench.actions).pending.confirmation_id))
    assert [one.tool_call_id for one in suspended.wanted] == ["a"]
    assert [one.tool_call_id for one in suspended.pending] == ["b"]
    assert bench.frames("suspended")[0]["wanted"][0]["name"] == "look_at_screen"
    bench.actions.clear()
    bench.now += 60_000
    again = bench.feed(Resume(now=bench.now))
    assert only(AskClient, again).wanted == suspended.wanted[0], "handed out again as it was"
    bench.answered("a", {"seen": 1})
    assert bench.frames("tool_result")[0]["content"] == {"seen": 1}


@pytest.mark.req("TOOL-45")
def test_answers_given_meanwhile_come_with_the_resuming() -> None:
    bench = Bench()
    bench.call("look_at_screen", {}, "a")
    bench.unanswered("a")
    bench.model_done("tool_calls")
    bench.feed(Resume(now=bench.now, answers=(ClientAnswered(now=bench.now, tool_call_id="a", content=1),)))
    assert bench.results()[0]["content"] == "1"


@pytest.mark.req("TOOL-46")
def test_an_answer_about_another_call_changes_nothing() -> None:
    bench = Bench()
    bench.call("look_at_screen", {}, "a")
    assert not bench.answered("b", 1)
    assert not bench.unanswered("b")
    bench.answered("a", 1)
    assert not bench.answered("a", 2)
    assert len(bench.frames("tool_result")) == 1


@pytest.mark.req("TOOL-45")
@pytest.mark.parametrize(
    ("name", "status", "said"),
    [("look_at_screen", "expired", "timeout: "), ("open_page", "outcome_unknown", "outcome_unknown: ")],
)
def test_a_client_that_never_answers(name: str, status: str, said: str) -> None:
    bench = Bench(Limits(confirmation_ttl_ms=1000, patience_ms=5000))
    bench.call(name, {}, "a")
    for question in bench.frames("confirmation_required"):
        bench.decided(question["confirmation_id"], Approve())
    assert bench.loop.next_deadline() == EPOCH + 1000
    bench.now += 1000
    assert of(Abort, bench.answered("a", "late"))
    result = bench.frames("tool_result")[0]
    assert (result["status"], result["content"].startswith(said)) == (status, True)


@pytest.mark.req("TOOL-45")
def test_when_patience_ends_the_run_waits_no_longer_for_the_client() -> None:
    bench = Bench(Limits(patience_ms=1000))
    bench.call("look_at_screen", {}, "a")
    bench.model_done("tool_calls")
    assert not of(Suspend, bench.later(999))
    assert [one.tool_call_id for one in only(Suspend, bench.later(1)).wanted] == ["a"]


@pytest.mark.req("TOOL-45", "TOOL-16")
def test_a_cancelled_run_says_of_an_effect_at_the_client_that_nobody_knows() -> None:
    bench = Bench()
    bench.call("open_page", {}, "a")
    bench.decided(asked(bench.actions).pending.confirmation_id, Approve())
    bench.cancel()
    assert bench.frames("tool_result")[0]["status"] == "outcome_unknown"


# --- driven


async def driven(
    client: Any, *lines: Any, decide: Any = None
) -> tuple[dict[str, Any], ScriptedBus, list[dict[str, Any]]]:
    bus = ScriptedBus(
        [*lines, done("tool_calls")], [says("Red."), done()], tools={"rag.query@1.0": gives({"chunks": []})}
    )
    frames: list[dict[str, Any]] = []

    async def listen(frame: dict[str, Any]) -> None:
        frames.append(frame)

    executor = ToolExecutor(bus, [*tools("search_corpus"), LOOK, OPEN])
    message = await executor.run_chat_with_tools(BODY, stream_to=listen, decide=decide, run_tool=client)
    return message, bus, frames


@pytest.mark.req("TOOL-45", "TOOL-46")
@pytest.mark.asyncio
async def test_a_client_answers_while_the_run_waits_and_what_is_wrong_is_refused() -> None:
    client = ClientTools()
    running = asyncio.create_task(
        driven(client, calls("look_at_screen", {}, "a"), calls("search_corpus", QUERY, "b"))
    )
    with pytest.raises(HearthNetError, match="tool_wanted") as unknown:
        client.give("nobody", 1)
    assert unknown.value.code == "not_found"
    await wait_for(lambda: "a" in client._waiting)
    client.give("a", {"colour": "red"})
    with pytest.raises(HearthNetError, match="its result already") as twice:
        client.give("a", {"colour": "green"})
    assert (twice.value.code, twice.value.details["rule"]) == ("bad_request", "repeated")
    message, bus, _ = await running
    assert message["content"] == "Red."
    assert '{"colour":"red"}' in [one.get("content") for one in bus.requests[1]["messages"]]
    with pytest.raises(HearthNetError, match="its result already"):
        client.give("a", 1)


@pytest.mark.req("TOOL-46")
@pytest.mark.asyncio
async def test_an_answer_that_nobody_waits_for_any_more_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthnet.agent.runtime.client_tools._MOST_ENDED", 1)
    client = ClientTools()
    for name in ("first", "second"):
        wanted = ClientCallRequest(run="r", tool_call_id=name, name="look", arguments={}, expires_at=0)
        waiting = asyncio.ensure_future(client(wanted))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    with pytest.raises(HearthNetError, match="no longer") as late:
        client.give("second", 1)
    assert late.value.code == "expired"
    with pytest.raises(HearthNetError, match="no call 'first' waits for this client") as forgotten:
        client.give("first", 1)
    assert forgotten.value.code == "not_found", "what is remembered of old calls is bounded"


@pytest.mark.req("TOOL-45")
@pytest.mark.asyncio
async def test_without_a_client_the_answer_says_what_is_wanted() -> None:
    message, _, frames = await driven(None, says("Let me look."), calls("look_at_screen", {}, "a"))
    assert (message["requires_follow_up"], message["content"]) == (True, "Let me look.")
    assert message["wanted"][0]["tool_call_id"] == "a"
    assert message["pending"] == []
    assert frames[-1]["event"] == "suspended"


@pytest.mark.req("TOOL-45")
@pytest.mark.asyncio
async def test_a_client_that_breaks_is_not_there() -> None:
    async def broken(_wanted: ClientCallRequest) -> ClientResult | None:
        raise RuntimeError("gone")

    message, _, _ = await driven(broken, calls("look_at_screen", {}, "a"))
    assert message["requires_follow_up"] is True
    assert [one["tool_call_id"] for one in message["wanted"]] == ["a"]


@pytest.mark.req("TOOL-45")
@pytest.mark.asyncio
async def test_a_confirmed_effect_goes_to_the_client_and_not_over_the_bus() -> None:
    async def yes(_pending: PendingApproval) -> Decision:
        return Approve()

    handed: list[ClientCallRequest] = []

    async def run(wanted: ClientCallRequest) -> ClientResult | None:
        handed.append(wanted)
        return ClientResult({"opened": wanted.arguments})

    message, bus, _ = await driven(run, calls("open_page", {"part": "x"}, "a"), decide=yes)
    assert message["content"] == "Red."
    assert [(one.name, one.arguments) for one in handed] == [("open_page", {"part": "x"})]
    assert bus.requests[1]["messages"][-1]["content"] == '{"opened":{"part":"x"}}'
    assert bus.calls == []


@pytest.mark.req("TOOL-45")
@pytest.mark.asyncio
async def test_the_executor_cannot_run_what_only_the_client_can() -> None:
    executor = ToolExecutor(ScriptedBus(), [LOOK])
    result = await executor.dispatch(ToolCall("a", "look_at_screen", {}))
    assert (result.is_error, result.content) == (True, "bad_request: only the client can run its own tool")
    with pytest.raises(HearthNetError, match="the client runs it"):
        TOOLBOX.bound("look_at_screen")
