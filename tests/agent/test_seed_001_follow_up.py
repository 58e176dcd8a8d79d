"""Seed 001, follow-up across transactions: a turn that acts returns before the model is called again; the
client goes on; chains of several; nothing is lost or repeated between the two.

A transaction is an executor of its own, as another process would have it; the effects are counted in the
market's event log behind a real server.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.agent.loop.events import AskModel, Dispatch, Finish, Resume, Start, Suspend
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import Limits, Phase, new_run
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import Approve, Decision, Deny, PendingApproval
from hearthnet.core.errors import HearthNetError
from tests.agent.bench import POST as POST_ARGUMENTS
from tests.agent.bench import QUERY, RUN, TOOLBOX, Bench, asked, only, paired
from tests.agent.bench import QUESTION as ASKED
from tests.agent.keeping import QUESTION as OF_NODE
from tests.agent.keeping import Node
from tests.agent.scripted import calls, done, gives
from tests.agent.scripted import says as told
from tests.helpers.memory_runs import MemoryRuns
from tests.helpers.mesh import Mesh
from tests.pains.acting import POST, QUESTION, Acting, Scene, Turn, acting, says, tools, wants

SEARCH = {"query": "filter"}


async def yes(_pending: PendingApproval) -> Decision:
    return Approve()


def post(title: str, call_id: str) -> tuple[str, dict[str, Any]]:
    return wants("market_post", {**POST, "title": title}, call_id)


def _spoken(service: Acting) -> int:
    """How often the model was asked."""
    return len(service.requests)


async def _ask(scene: Scene) -> dict[str, Any]:
    """The first transaction."""
    return await scene.executor(follow_up=True).run_chat_with_tools(QUESTION, decide=yes)


async def _follow_up(scene: Scene, answer: dict[str, Any]) -> dict[str, Any]:
    """The next one."""
    return await scene.executor().resume(answer["run"], decide=yes)


@pytest.mark.asyncio
@pytest.mark.req("SEED-001")
async def test_a_turn_that_acts_returns_before_the_model_is_called_again(mesh: Mesh) -> None:
    turn = [says("I post it. "), wants("search_corpus", SEARCH, "r"), post("One", "p")]
    async with acting(mesh, turn, [says("It is posted.")]) as scene:
        answer = await _ask(scene)
        assert answer["requires_follow_up"] is True
        assert (answer["content"], answer["pending"], answer["wanted"]) == ("I post it. ", [], [])
        assert [(one["tool_call_id"], one["status"]) for one in answer["results"]] == [
            ("r", "completed"),
            ("p", "completed"),
        ]
        assert '"event_id"' in answer["results"][1]["content"]
        assert (_spoken(scene.service), await scene.effects()) == (1, ["One"])
        done = await _follow_up(scene, answer)
        assert done == {"role": "assistant", "content": "It is posted."}
        assert (_spoken(scene.service), await scene.effects()) == (2, ["One"])
        paired(scene.service.requests[-1])


@pytest.mark.asyncio
@pytest.mark.req("SEED-001")
async def test_a_chain_of_several_is_a_chain_of_transactions(mesh: Mesh) -> None:
    """Search, post, post again, search, answer: each effect is one transaction, what only reads is none."""
    turns: list[Turn] = [
        [wants("search_corpus", SEARCH, "a")],
        [post("First", "b")],
        [post("Second", "c"), post("Third", "d")],
        [wants("search_corpus", {"query": "more"}, "e")],
        [says("All three.")],
    ]
    async with acting(mesh, *turns) as scene:
        answer, seen = await _ask(scene), []
        while answer.get("requires_follow_up"):
            seen.append(([one["tool_call_id"] for one in answer["results"]], _spoken(scene.service)))
            answer = await _follow_up(scene, answer)
        assert seen == [(["b"], 2), (["c", "d"], 3)]
        assert answer["content"] == "All three."
        assert sorted(await scene.effects()) == ["First", "Second", "Third"]
        assert _spoken(scene.service) == 5
        transcript = scene.service.requests[-1]
        paired(transcript)
        assert [m["tool_call_id"] for m in transcript if m["role"] == "tool"] == ["a", "b", "c", "d", "e"]


@pytest.mark.asyncio
@pytest.mark.req("SEED-001")
async def test_a_follow_up_that_is_sent_twice_or_late_repeats_nothing(mesh: Mesh) -> None:
    async with acting(mesh, [post("Once", "p")], [says("Done.")]) as scene:
        answer = await _ask(scene)
        mesh.restart_server()
        both = await asyncio.gather(*(_follow_up(scene, answer) for _ in range(2)), return_exceptions=True)
        done = [one for one in both if isinstance(one, dict)]
        refused = [one for one in both if isinstance(one, HearthNetError)]
        assert done
        assert all(one["content"] == "Done." for one in done)
        for one in refused:
            assert one.code == "bad_request"
            assert "has ended" in one.message or "another process drives" in one.message
        with pytest.raises(HearthNetError, match="has ended"):
            await _follow_up(scene, answer)
        assert await scene.effects() == ["Once"]
        assert len({str(request) for request in scene.service.requests}) == 2


@pytest.mark.asyncio
@pytest.mark.req("SEED-001")
async def test_a_client_that_never_comes_back_has_lost_nothing(mesh: Mesh) -> None:
    """The run is listed, and a new message goes on from its transcript, the act and its result in it."""
    async with acting(mesh, [post("Kept", "p")], [says("Done.")]) as scene:
        answer = await _ask(scene)
        (run,) = (await scene.saved.listing()).runs
        assert (run.run, run.ended, run.pending) == (answer["run"], False, [])
        record = await scene.saved.cancel(run.run)
        paired(record.state.messages)
        assert '"event_id"' in record.state.messages[-1]["content"]
        assert await scene.effects() == ["Kept"]


@pytest.mark.asyncio
@pytest.mark.req("SEED-001")
async def test_a_no_and_a_read_are_no_act_and_need_no_follow_up() -> None:
    node = Node(
        MemoryRuns(),
        [calls("search_corpus", QUERY, "r"), done("tool_calls")],
        [calls("market_post", POST_ARGUMENTS, "p"), done("tool_calls")],
        [told("Not posted."), done()],
        tools={"rag.query@1.0": gives({"chunks": []})},
    )

    async def no(_pending: PendingApproval) -> Decision:
        return Deny()

    answer = await node.executor(follow_up=True).run_chat_with_tools(OF_NODE, decide=no)
    assert answer == {"role": "assistant", "content": "Not posted."}
    assert node.posts == []


@pytest.mark.req("SEED-001")
def test_what_is_given_back_is_kept() -> None:
    node = Node(MemoryRuns())
    with pytest.raises(HearthNetError, match="give it a store"):
        ToolExecutor(node.bus, tools(), follow_up=True)


CALLS = st.lists(st.sampled_from(["read", "post", "denied", "unknown"]), min_size=1, max_size=3)


@pytest.mark.req("SEED-001")
@settings(max_examples=60)
@given(st.lists(CALLS, max_size=4))
def test_the_same_is_sent_asked_and_said_with_and_without_follow_ups(turns: list[list[str]]) -> None:
    plain, given_back = _driven(turns, follow_up=False), _driven(turns, follow_up=True)
    assert given_back[0] == plain[0]
    acted = sum("post" in turn for turn in turns[: Limits().max_iterations])
    assert (plain[1], given_back[1]) == (0, acted)


def _driven(turns: list[list[str]], *, follow_up: bool) -> tuple[list[Any], int]:
    """What a run of these turns sends and asks, and how often it was given back."""
    bench, suspended, found = Bench(start=False), 0, []
    state = new_run(RUN, ASKED, "auto", Limits())
    state.follow_up = follow_up
    bench.loop = ToolLoop(state, TOOLBOX)
    bench.feed(Start(now=bench.now))
    for number, turn in enumerate(turns):
        for place, kind in enumerate(turn):
            _call(bench, kind, f"t{number}_{place}")
        bench.model_done("tool_calls")
        for call in list(bench.loop.state.calls):
            bench.returned(call.id, {"of": call.id})
        if bench.loop.state.phase is Phase.SUSPENDED:
            given = only(Suspend, bench.actions)
            assert [one["tool_call_id"] for one in given.results] == [call.id for call in state.calls]
            suspended += 1
            found += _kept(bench)
            bench.feed(Resume(now=bench.now))
    bench.model_done()
    return [*found, *_kept(bench)], suspended


def _call(bench: Bench, kind: str, call_id: str) -> None:
    if kind == "read":
        bench.call("search_corpus", {"query": call_id}, call_id)
    elif kind == "unknown":
        bench.call("nothing", {"of": call_id}, call_id)
    else:
        question = asked(bench.call("market_post", {**POST_ARGUMENTS, "title": call_id}, call_id)).pending
        bench.decided(question.confirmation_id, Approve() if kind == "post" else Deny())


def _kept(bench: Bench) -> list[Any]:
    """What was sent, asked and said last; forgotten on the bench."""
    kept = [one for one in bench.actions if isinstance(one, AskModel | Dispatch | Finish)]
    bench.actions = []
    return kept
