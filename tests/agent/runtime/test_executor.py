"""The executor and the run it drives, over a scripted bus that checks tokens and approvals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.runtime import dispatch
from hearthnet.agent.runtime.event_queue import MOST_WAITING
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.ports import Decide
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.toolbox import natives
from hearthnet.agent.tools.types import (
    Approve,
    Decision,
    Deny,
    Edit,
    PendingApproval,
    ToolCall,
    ToolDefinition,
    ToolError,
)
from hearthnet.bus.calls.unary import EffectInDoubt
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core.canonical_json import digest
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.offer import OfferRecord
from hearthnet.trust.keys import Identity
from tests.agent.bench import POST, QUERY, paired
from tests.agent.scripted import PROVIDER, Line, ScriptedBus, calls, done, gives, raises, says
from tests.helpers.waiting import wait_for

BODY: dict[str, Any] = {
    "params": {"model": "m"},
    "input": {"messages": [{"role": "user", "content": "How?"}], "max_tokens": 50},
}
LOST = HearthNetError("partition", "the reply is lost")


def tools(*names: str) -> list[ToolDefinition]:
    return builtin_tools(names, {"search_corpus": {"corpus": "system"}})


def deciding(decision: Decision | None) -> Decide:
    async def decide(_pending: PendingApproval) -> Decision | None:
        return decision

    return decide


class Listener:
    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []

    async def __call__(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)

    def data(self, event: str) -> list[dict[str, Any]]:
        return [frame["data"] for frame in self.frames if frame["event"] == event]


# --- one call


@pytest.mark.req("TOOL-22")
@pytest.mark.asyncio
async def test_dispatch_runs_a_read_and_puts_every_failure_into_the_result() -> None:
    bus = ScriptedBus(
        tools={"rag.query@1.0": raises(HearthNetError("not_found", "no such corpus"), then={"chunks": []})}
    )
    executor = ToolExecutor(bus, tools("search_corpus"))
    assert natives(executor.toolbox)[0]["name"] == "search_corpus"
    refused = await executor.dispatch(ToolCall("a", "search_corpus", QUERY))
    assert (refused.content, refused.is_error) == ("not_found: no such corpus", True)
    fine = await executor.dispatch(ToolCall("b", "search_corpus", QUERY))
    assert (fine.content, fine.is_error, fine.tool_call_id) == ({"chunks": []}, False, "b")
    wrong = await executor.dispatch(ToolCall("c", "search_corpus", {}))
    assert str(wrong.content).startswith("invalid_arguments: ")
    unknown = await executor.dispatch(ToolCall("d", "search_corpse", QUERY))
    assert str(unknown.content).startswith("unknown_tool: ")
    assert len(bus.calls) == 2


@pytest.mark.req("TOOL-22", "TOOL-21")
@pytest.mark.asyncio
async def test_dispatch_stops_before_a_side_effect_and_dispatch_confirmed_carries_it_out() -> None:
    bus = ScriptedBus(tools={"market.post@1.0": gives({"event_id": "e"})})
    executor = ToolExecutor(bus, tools("market_post"))
    call = ToolCall("a", "market_post", POST)
    with pytest.raises(ToolError, match="requires_confirmation") as raised:
        await executor.dispatch(call)
    pending = raised.value.pending
    assert (raised.value.code, pending.arguments, bus.calls) == ("requires_confirmation", POST, [])
    result = await executor.dispatch_confirmed(call)
    assert result.content == {"event_id": "e"}
    (sent,) = bus.calls
    assert sent.body == pending.body
    assert sent.approval is not None
    assert sent.approval.arguments_digest == pending.arguments_digest
    assert sent.idempotency_key == pending.client_id == sent.body["input"]["client_id"]


@pytest.mark.req("TOOL-6", "TOOL-7")
@pytest.mark.asyncio
async def test_dispatch_confirmed_takes_a_no_and_an_edit() -> None:
    bus = ScriptedBus(tools={"market.post@1.0": gives({"event_id": "e"})})
    executor = ToolExecutor(bus, tools("market_post"))
    call = ToolCall("a", "market_post", POST)
    assert (await executor.dispatch_confirmed(call, Deny("later"))).content == "denied: later"
    assert (await executor.dispatch_confirmed(call, Deny())).content == "denied: the user said no"
    wrong = await executor.dispatch_confirmed(call, Edit({}))
    assert str(wrong.content).startswith('invalid_arguments: /: "category" is a required property')
    assert wrong.is_error
    assert bus.calls == []
    await executor.dispatch_confirmed(call, Edit({**POST, "title": "Other"}))
    assert bus.calls[0].body["input"]["title"] == "Other"


# --- authority


@pytest.mark.req("TOOL-21")
@pytest.mark.asyncio
async def test_a_token_covers_one_tool_with_its_bound_params_and_is_used_again() -> None:
    bus = ScriptedBus(tools={"rag.query@1.0": gives({"chunks": []}), "market.list@1.0": gives({"posts": []})})
    bound = {"search_corpus": {"corpus": "system", "k": 3}}
    executor = ToolExecutor(bus, builtin_tools(["search_corpus", "list_marketplace"], bound))
    for _ in range(2):
        await executor.dispatch(ToolCall("a", "search_corpus", QUERY))
    await executor.dispatch(ToolCall("b", "list_marketplace", {}))
    first, again, other = bus.calls
    assert first.claims == again.claims
    assert first.claims.scope.capabilities == ("rag.query@1.0",)
    assert first.claims.scope.params_constraints == {"corpus": ["system"], "input.k": [3]}
    assert other.claims.scope.capabilities == ("market.list@1.0",)
    assert first.run == other.run
    assert first.claims.exp - first.claims.iat == 300


@pytest.mark.req("TOOL-21")
@pytest.mark.asyncio
async def test_an_approval_for_an_effect_on_one_node_names_that_node() -> None:
    contract_tool = ToolDefinition(
        "ingest", "Adds a document.", {"type": "object"}, "rag.ingest", (1, 0), True, {"corpus": "mine"}
    )
    bus = ScriptedBus(tools={"rag.ingest@1.0": gives({"chunks_indexed": 1})})
    bus.offered = []
    executor = ToolExecutor(bus, [contract_tool])
    call = ToolCall("a", "ingest", {"doc_cid": "blake3:" + "0" * 64, "title": "A", "language": "en"})
    nobody = await executor.dispatch_confirmed(call)
    assert str(nobody.content).startswith("not_found: nobody offers rag.ingest@1.0 now")
    bus.offered = [_offer(PROVIDER)]
    assert (await executor.dispatch_confirmed(call)).content == {"chunks_indexed": 1}
    assert bus.calls[0].approval is not None
    assert bus.calls[0].approval.provider == bus.calls[0].node == PROVIDER
    bus.offered = [_offer(PROVIDER), _offer(Identity.generate().node_id)]
    assert str((await executor.dispatch_confirmed(call)).content).startswith("bad_request: cannot tell")


def _offer(node: str) -> OfferView:
    record = OfferRecord(
        capability="rag.ingest@1.0",
        instance="abcdefgh",
        schema_hash="blake3:" + "0" * 64,
        params={},
        max_concurrent=1,
        in_flight=0,
        issued_at=0,
        expires_at=1,
    )
    return OfferView(node, parse_capability("rag.ingest@1.0"), record)


@pytest.mark.req("TOOL-21")
@pytest.mark.asyncio
async def test_what_only_the_caller_calls_an_effect_is_asked_but_not_signed() -> None:
    strict = ToolDefinition("search", "Searches.", {"type": "object"}, "market.search", (1, 0), True)
    bus = ScriptedBus(tools={"market.search@1.0": gives({"posts": []})})
    executor = ToolExecutor(bus, [strict])
    call = ToolCall("a", "search", {"query": "stove"})
    with pytest.raises(ToolError, match="requires_confirmation"):
        await executor.dispatch(call)
    assert bus.calls == []
    assert (await executor.dispatch_confirmed(call)).is_error is False
    assert bus.calls[0].approval is None


# --- a conversation


@pytest.mark.req("TOOL-1", "TOOL-2", "TOOL-17")
@pytest.mark.asyncio
async def test_a_question_is_answered_through_a_tool() -> None:
    bus = ScriptedBus(
        [says("Let me look."), calls("search_corpus", QUERY), done("tool_calls")],
        [says("Boil "), says("it."), done()],
        tools={"rag.query@1.0": gives({"chunks": [{"text": "boil"}]})},
    )
    listener = Listener()
    body = {**BODY, "input": {**BODY["input"], "tool_choice": {"name": "search_corpus"}}}
    message = await ToolExecutor(bus, tools("search_corpus")).run_chat_with_tools(body, stream_to=listener)
    assert message == {"role": "assistant", "content": "Boil it."}
    first, second = bus.requests
    assert (first["tool_choice"], second["tool_choice"]) == ({"name": "search_corpus"}, "auto")
    assert first["tools"] == second["tools"] == natives(ToolExecutor(bus, tools("search_corpus")).toolbox)
    assert first["max_tokens"] == 50
    paired(second["messages"])
    assert second["messages"][-1]["content"] == '{"chunks":[{"text":"boil"}]}'
    assert [frame["seq"] for frame in listener.frames] == list(range(1, len(listener.frames) + 1))
    assert [frame["event"] for frame in listener.frames if frame["event"] != "token"] == [
        "iteration",
        "tool_call",
        "tool_status",
        "tool_status",
        "tool_started",
        "tool_status",
        "tool_result",
        "iteration",
        "done",
    ]
    assert listener.data("done")[0]["tools"][0]["name"] == "search_corpus"
    assert all(turn.left for turn in bus.turns)


@pytest.mark.req("TOOL-1")
@pytest.mark.asyncio
async def test_a_tool_runs_while_the_model_is_still_talking() -> None:
    called = asyncio.Event()

    async def search(_body: dict[str, Any]) -> dict[str, Any]:
        called.set()
        return {"chunks": []}

    bus = ScriptedBus(
        [calls("search_corpus", QUERY), called, says("found"), done("tool_calls")],
        [says("ok"), done()],
        tools={"rag.query@1.0": search},
    )
    executor = ToolExecutor(bus, tools("search_corpus"))
    async with asyncio.timeout(20):
        assert (await executor.run_chat_with_tools(BODY))["content"] == "ok"


@pytest.mark.req("TOOL-5", "TOOL-21")
@pytest.mark.asyncio
async def test_a_side_effect_runs_once_after_a_yes_under_an_approval_for_exactly_it() -> None:
    bus = ScriptedBus(
        [calls("market_post", POST, "c1"), done("tool_calls")],
        [says("Posted."), done()],
        tools={"market.post@1.0": gives({"event_id": "e"})},
    )
    asked: list[PendingApproval] = []

    async def decide(pending: PendingApproval) -> Decision:
        asked.append(pending)
        assert bus.calls == []
        return Approve()

    message = await ToolExecutor(bus, tools("market_post")).run_chat_with_tools(BODY, decide=decide)
    assert message["content"] == "Posted."
    (sent,), (pending,) = bus.calls, asked
    assert sent.approval is not None
    assert sent.approval.arguments_digest == digest(sent.body) == pending.arguments_digest
    assert sent.approval.tool_call_id == "c1"
    assert (sent.approval.provider, sent.node) == (PROVIDER, PROVIDER)
    assert (sent.run, sent.idempotency_key) == (pending.run, pending.client_id)


@pytest.mark.req("TOOL-8", "TOOL-23")
@pytest.mark.parametrize("how", ["nobody", "no answer", "broken"])
@pytest.mark.asyncio
async def test_nobody_to_ask_suspends_and_is_never_a_yes(how: str) -> None:
    bus = ScriptedBus([says("Shall I?"), calls("market_post", POST, "c1"), done("tool_calls")])

    async def broken(_pending: PendingApproval) -> Decision:
        raise OSError("the terminal is gone")

    decide = {"nobody": None, "no answer": deciding(None), "broken": broken}[how]
    message = await ToolExecutor(bus, tools("market_post")).run_chat_with_tools(BODY, decide=decide)
    assert (message["content"], message["requires_follow_up"]) == ("Shall I?", True)
    assert message["pending"][0]["arguments"] == POST
    assert message["pending"][0]["run"] == message["run"]
    assert bus.calls == []


@pytest.mark.req("TOOL-8")
@pytest.mark.asyncio
async def test_a_person_who_thinks_too_long_suspends_the_run_and_the_question_is_closed() -> None:
    closed = asyncio.Event()

    async def decide(_pending: PendingApproval) -> Decision:
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return Approve()

    bus = ScriptedBus([calls("market_post", POST), done("tool_calls")])
    executor = ToolExecutor(bus, tools("market_post"), limits=Limits(patience_ms=1000))
    message = await executor.run_chat_with_tools(BODY, decide=decide)
    assert message["requires_follow_up"] is True
    assert closed.is_set()


@pytest.mark.req("TOOL-8")
@pytest.mark.asyncio
async def test_a_run_without_any_patience_is_suspended_at_once() -> None:
    bus = ScriptedBus([calls("market_post", POST), done("tool_calls")])
    executor = ToolExecutor(bus, tools("market_post"), limits=Limits(patience_ms=0))
    outcome = await executor.open_run(BODY).drive()
    assert [one.arguments for one in outcome.pending] == [POST]
    assert outcome.done is None


@pytest.mark.asyncio
async def test_what_the_model_shows_on_the_way_reaches_the_listener() -> None:
    bus = ScriptedBus(
        [
            ("progress", {"current": 1, "total": 2, "stage": "loading"}),
            ("notice", {"code": "slow", "text": "This takes a while."}),
            ("tool_call_delta", {"id": "c", "name": "list_corpora", "arguments_delta": "{}"}),
            ("a frame of a later version", {}),
            says("ok"),
            done(),
        ]
    )
    listener = Listener()
    await ToolExecutor(bus, tools("list_corpora")).run_chat_with_tools(BODY, stream_to=listener)
    assert [frame["event"] for frame in listener.frames] == [
        "iteration",
        "progress",
        "notice",
        "tool_call_delta",
        "token",
        "done",
    ]


@pytest.mark.req("TOOL-14")
@pytest.mark.asyncio
async def test_a_tool_that_hangs_and_one_that_breaks_leave_the_third_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hang(_body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    bus = ScriptedBus(
        [
            calls("search_corpus", QUERY),
            calls("list_corpora", {}),
            calls("list_marketplace", {}),
            done("tool_calls"),
        ],
        [says("ok"), done()],
        tools={
            "rag.query@1.0": hang,
            "rag.list_corpora@1.0": raises(KeyError("bug")),
            "market.list@1.0": gives({"posts": []}),
        },
    )
    executor = ToolExecutor(
        bus, tools("search_corpus", "list_corpora", "list_marketplace"), per_tool_timeout_seconds=0.5
    )
    await executor.run_chat_with_tools(BODY)
    hung, broke, fine = [m for m in bus.requests[1]["messages"] if m["role"] == "tool"]
    assert hung["content"] == "timeout: rag.query@1.0 gave no answer in 0.5 s"
    assert broke["content"].startswith("internal_error: unexpected; look in the log for ")
    assert broke["content"].split()[-1] in caplog.text
    assert "KeyError" in caplog.text
    assert fine["content"] == '{"posts":[]}'


@pytest.mark.req("TOOL-15")
@pytest.mark.asyncio
async def test_a_lost_reply_to_an_effect_is_asked_for_again_under_the_same_key() -> None:
    bus = ScriptedBus(tools={"market.post@1.0": raises(LOST, then={"event_id": "e"})})
    executor = ToolExecutor(bus, tools("market_post"))
    result = await executor.dispatch_confirmed(ToolCall("a", "market_post", POST))
    assert result.content == {"event_id": "e"}
    first, second = bus.calls
    assert first == second


@pytest.mark.req("TOOL-15")
@pytest.mark.asyncio
async def test_a_lost_reply_to_a_read_is_the_models_to_ask_for_again() -> None:
    bus = ScriptedBus(tools={"rag.query@1.0": raises(LOST)})
    result = await ToolExecutor(bus, tools("search_corpus")).dispatch(ToolCall("a", "search_corpus", QUERY))
    assert (result.content, len(bus.calls)) == ("partition: the reply is lost", 1)


@pytest.mark.req("TOOL-15")
@pytest.mark.asyncio
async def test_an_effect_that_stays_lost_has_an_unknown_outcome_and_a_refused_one_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "PAUSE_SECONDS", 0.0)
    lost, refused = [LOST] * dispatch.ATTEMPTS_OF_EFFECTS, HearthNetError("unauthorized", "no")
    bus = ScriptedBus(tools={"market.post@1.0": raises(*lost, refused)})
    executor = ToolExecutor(bus, tools("market_post"))
    call = ToolCall("a", "market_post", POST)
    assert str((await executor.dispatch_confirmed(call)).content).startswith("outcome_unknown: ")
    assert len(bus.calls) == len(lost)
    assert (await executor.dispatch_confirmed(call)).content == "unauthorized: no"
    assert len(bus.calls) == len(lost) + 1


@pytest.mark.req("TOOL-15")
@pytest.mark.asyncio
async def test_an_effect_waits_for_a_place_and_for_a_provider_that_is_coming_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "PAUSE_SECONDS", 0.0)
    busy, away = (
        HearthNetError("capacity_exceeded", "all places are taken"),
        HearthNetError("not_found", "nobody"),
    )
    bus = ScriptedBus(
        tools={"market.post@1.0": raises(*[busy] * 9, LOST, away, away, then={"event_id": "e"})}
    )
    result = await ToolExecutor(bus, tools("market_post")).dispatch_confirmed(
        ToolCall("a", "market_post", POST)
    )
    assert result.content == {"event_id": "e"}
    assert bus.calls == [bus.calls[0]] * 13


@pytest.mark.req("TOOL-15")
@pytest.mark.asyncio
async def test_an_effect_that_the_bus_is_in_doubt_about_is_asked_for_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "PAUSE_SECONDS", 0.0)
    doubt = EffectInDoubt("it may have happened; asked again: all places are taken")
    bus = ScriptedBus(tools={"market.post@1.0": raises(*[doubt] * 9, then={"event_id": "e"})})
    call = ToolCall("a", "market_post", POST)
    known = await ToolExecutor(bus, tools("market_post")).dispatch_confirmed(call)
    assert known.content == {"event_id": "e"}
    monkeypatch.setattr(dispatch, "PATIENCE_WITH_EFFECTS", 0)
    bus = ScriptedBus(tools={"market.post@1.0": raises(doubt, LOST)})
    result = await ToolExecutor(bus, tools("market_post")).dispatch_confirmed(call)
    assert str(result.content).startswith("outcome_unknown: ")


@pytest.mark.req("TOOL-15")
@pytest.mark.asyncio
async def test_what_was_perhaps_done_is_not_said_to_have_failed_because_nobody_is_there_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "PATIENCE_WITH_EFFECTS", 0)
    away = HearthNetError("not_found", "nobody offers it")
    call = ToolCall("a", "market_post", POST)
    for answers, text in (([LOST], "outcome_unknown: "), ([away], "not_found: nobody offers it")):
        bus = ScriptedBus(tools={"market.post@1.0": raises(*answers)})
        result = await ToolExecutor(bus, tools("market_post")).dispatch_confirmed(call)
        assert str(result.content).startswith(text)
        assert len(bus.calls) == 1
    monkeypatch.setattr(dispatch, "PATIENCE_WITH_EFFECTS", 1)
    late, doubt = HearthNetError("timeout", "no answer"), EffectInDoubt("it may have happened")
    for first in (LOST, late, doubt):
        monkeypatch.setattr(dispatch, "PAUSE_SECONDS", 0.0)
        later = [away, LOST] * dispatch.ATTEMPTS_OF_EFFECTS
        bus = ScriptedBus(tools={"market.post@1.0": raises(first, *later)})
        result = await ToolExecutor(bus, tools("market_post")).dispatch_confirmed(call)
        assert str(result.content).startswith("outcome_unknown: ")
        assert len(bus.calls) > 1
        monkeypatch.setattr(dispatch, "PAUSE_SECONDS", 0.01)
        bus = ScriptedBus(tools={"market.post@1.0": raises(first, *[away] * 1000)})
        impatient = ToolExecutor(bus, tools("market_post"), per_tool_timeout_seconds=0.1)
        result = await impatient.dispatch_confirmed(call)
        assert str(result.content).startswith("outcome_unknown: ")
        assert len(bus.calls) > 1


@pytest.mark.req("TOOL-15")
@pytest.mark.asyncio
async def test_an_effect_that_its_provider_cannot_vouch_for_is_not_said_to_have_failed() -> None:
    unsure = HearthNetError("outcome_unknown", "an earlier call was stopped")
    bus = ScriptedBus(tools={"market.post@1.0": raises(LOST, unsure)})
    result = await ToolExecutor(bus, tools("market_post")).dispatch_confirmed(
        ToolCall("a", "market_post", POST)
    )
    assert str(result.content).startswith("outcome_unknown: it may or may not have happened")
    assert len(bus.calls) == 2


@pytest.mark.asyncio
async def test_a_tool_that_streams_is_drained_and_its_progress_passed_on() -> None:
    story = ToolDefinition(
        "story", "Tells.", {"type": "object"}, "llm.complete", (1, 0), False, {"prompt": "Once"}
    )
    bus = ScriptedBus(
        [calls("story", {}), done("tool_calls")],
        [says("ok"), done()],
        tools={
            "llm.complete@1.0": [
                ("progress", {"current": 1, "total": 2, "stage": "loading"}),
                ("token", {"text": "upon"}),
                done(),
            ]
        },
    )
    listener = Listener()
    await ToolExecutor(bus, [story]).run_chat_with_tools(BODY, stream_to=listener)
    (progress,) = listener.data("tool_progress")
    assert (progress["stage"], progress["tool_call_id"]) == ("loading", "call_1")
    (result,) = listener.data("tool_result")
    assert result["content"]["frames"] == [{"event": "token", "data": {"text": "upon"}}]
    assert result["content"]["final"]["model"] == "m"


# --- ends


@pytest.mark.req("TOOL-16")
@pytest.mark.asyncio
async def test_cancel_returns_what_was_said_and_stops_the_tools() -> None:
    stopped = asyncio.Event()

    async def hang(_body: dict[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    bus = ScriptedBus(
        [says("Well"), calls("search_corpus", QUERY), asyncio.Event(), done()], tools={"rag.query@1.0": hang}
    )
    run = ToolExecutor(bus, tools("search_corpus")).open_run(BODY)
    driving = asyncio.create_task(run.drive())
    await wait_for(lambda: bus.calls)
    run.cancel()
    outcome = await driving
    assert (outcome.run, outcome.message["content"]) == (run.run, "Well")
    assert outcome.done is not None
    assert outcome.done["stop_reason"] == "cancelled"
    assert stopped.is_set()
    assert bus.turns[0].left
    paired(outcome.messages)


@pytest.mark.req("TOOL-16")
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (HearthNetError("capacity_exceeded", "full", retry_after_ms=5), "capacity_exceeded", "full"),
        (RuntimeError("bug"), "internal_error", "unexpected; look in the log for"),
        (("error", {"error": "timeout", "message": "slow"}), "timeout", "slow"),
        (("unheard_of", {}), "partition", "the model's stream ended before it was done"),
    ],
)
@pytest.mark.asyncio
async def test_a_model_that_breaks_raises_its_error_after_an_error_frame(
    line: Any, code: str, said: str
) -> None:
    listener = Listener()
    executor = ToolExecutor(ScriptedBus([says("I"), line]), tools("search_corpus"))
    with pytest.raises(HearthNetError, match=said) as raised:
        await executor.run_chat_with_tools(BODY, stream_to=listener)
    assert raised.value.code == code
    assert listener.frames[-1]["event"] == "error"
    assert listener.frames[-1]["data"]["error"] == code
    assert listener.frames[-1]["data"]["message"] == raised.value.message


@pytest.mark.asyncio
async def test_a_listener_that_breaks_ends_the_run_and_its_work() -> None:
    bus = ScriptedBus([says("x")] * 100)

    async def broken(_frame: dict[str, Any]) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await ToolExecutor(bus, []).run_chat_with_tools(BODY, stream_to=broken)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.asyncio
async def test_a_slow_listener_slows_the_model_and_loses_nothing() -> None:
    said: list[Line] = []

    class Talk(list[Line]):
        """Lines that note how far the model has come."""

        def __iter__(self) -> Iterator[Line]:
            for line in super().__iter__():
                said.append(line)
                yield line

    bus = ScriptedBus(Talk([says(str(number)) for number in range(200)] + [done()]))
    heard: list[str] = []
    ahead: list[int] = []

    async def slow(frame: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        if frame["event"] == "token":
            ahead.append(len(said) - len(heard))
            heard.append(frame["data"]["text"])

    message = await ToolExecutor(bus, []).run_chat_with_tools(BODY, stream_to=slow)
    # Those that are on their way to the listener, those that wait, and the one that finds no room.
    assert max(ahead) <= 2 * MOST_WAITING + 1
    assert heard == [str(number) for number in range(200)]
    assert message["content"] == "".join(heard)
    assert "tools" not in bus.requests[0]
    assert "tool_choice" not in bus.requests[0]


@pytest.mark.req("TOOL-11")
@pytest.mark.asyncio
async def test_the_wall_clock_stops_a_tool_that_hangs() -> None:
    async def hang(_body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    bus = ScriptedBus(
        [calls("search_corpus", QUERY), done("tool_calls")],
        [says("Sorry."), done()],
        tools={"rag.query@1.0": hang},
    )
    executor = ToolExecutor(bus, tools("search_corpus"), limits=Limits(wall_clock_ms=30))
    outcome = await executor.open_run(BODY).drive()
    assert outcome.done is not None
    assert (outcome.message["content"], outcome.done["limit"]) == ("Sorry.", "wall_clock")
    assert bus.requests[1]["tool_choice"] == "none"


# --- bad input


@pytest.mark.req("TOOL-3")
@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({}, "bad_request", "no messages"),
        ({"messages": []}, "bad_request", "no messages"),
        (
            {"messages": BODY["input"]["messages"], "tool_choice": {"name": "serch"}},
            "not_found",
            "did you mean search_corpus",
        ),
        ({"messages": BODY["input"]["messages"], "tool_choice": "maybe"}, "bad_request", "no tool choice"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_anything_happens(
    given: dict[str, Any], code: str, said: str
) -> None:
    executor = ToolExecutor(ScriptedBus(), tools("search_corpus"))
    with pytest.raises(HearthNetError, match=said) as raised:
        executor.open_run({"input": given})
    assert raised.value.code == code


def test_a_tool_cannot_be_required_where_there_is_none() -> None:
    given = {"messages": BODY["input"]["messages"], "tool_choice": "required"}
    with pytest.raises(HearthNetError, match="none is declared"):
        ToolExecutor(ScriptedBus(), []).open_run({"input": given})
