"""What a run remembers, what it counts, and what it says of its calls (docs/tools.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop import memory
from hearthnet.agent.loop.events import AskPerson, Dispatch, Finish
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import Limits, RunState
from hearthnet.agent.tools.types import Approve
from tests.agent.bench import POST, QUERY, TOOLBOX, Bench, asked, dispatched, of, only, paired

FOUND = {"chunks": ["boil it"]}


def statuses(bench: Bench, call_id: str) -> list[str]:
    return [frame["status"] for frame in bench.frames("tool_status") if frame["tool_call_id"] == call_id]


@pytest.mark.req("TOOL-40", "TOOL-43")
def test_an_equal_read_is_answered_from_memory() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "a")
    bench.returned("a", FOUND)
    bench.model_done("tool_calls")
    actions = bench.call("search_corpus", dict(QUERY), "b")
    assert not of(Dispatch, actions)
    result = bench.frames("tool_result")[-1]
    assert (result["status"], result["content"], result["is_error"]) == ("cached", FOUND, False)
    assert statuses(bench, "a") == ["pending", "running", "completed"]
    assert statuses(bench, "b") == ["pending", "cached"]
    bench.model_done("tool_calls")
    assert [message["content"] for message in bench.results()] == ['{"chunks":["boil it"]}'] * 2
    ended = only(Finish, bench.model_done())
    assert [record["status"] for record in ended.done["tools"]] == ["completed", "cached"]


@pytest.mark.req("TOOL-40")
def test_an_equal_read_waits_for_the_one_that_runs_and_takes_no_place() -> None:
    bench = Bench(Limits(max_parallel=2))
    bench.call("search_corpus", QUERY, "a")
    assert not dispatched(bench.call("search_corpus", QUERY, "same"))
    assert dispatched(bench.call("list_corpora", {}, "other")) == ["other"]
    bench.returned("a", FOUND)
    assert statuses(bench, "same") == ["pending", "cached"]


@pytest.mark.req("TOOL-40")
def test_a_failure_is_not_remembered() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "a")
    bench.call("search_corpus", QUERY, "b")
    assert dispatched(bench.failed("a", "timeout")) == ["b"]


@pytest.mark.req("TOOL-40")
def test_other_arguments_are_another_call() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "a")
    bench.returned("a", FOUND)
    assert dispatched(bench.call("search_corpus", {**QUERY, "k": 3}, "b")) == ["b"]


@pytest.mark.req("TOOL-40")
def test_an_effect_makes_the_run_forget_what_it_read() -> None:
    bench = Bench(Limits(max_equal_calls=9))
    bench.call("list_marketplace", {}, "before")
    bench.returned("before", {"posts": []})
    bench.call("market_post", POST, "post")
    assert statuses(bench, "post") == ["pending", "waiting"]
    bench.decided(asked(bench.actions).pending.confirmation_id, Approve())
    assert dispatched(bench.call("list_marketplace", {}, "during")) == ["during"]
    bench.returned("post", {"event_id": "e"})
    bench.returned("during", {"posts": []})
    bench.model_done("tool_calls")
    assert dispatched(bench.call("list_marketplace", {}, "after")) == ["after"], "it may show the post"
    bench.returned("after", {"posts": []})
    bench.model_done("tool_calls")
    bench.call("list_marketplace", {}, "again")
    assert statuses(bench, "again") == ["pending", "cached"], "what was read since is remembered"


@pytest.mark.req("TOOL-40")
def test_an_effect_at_the_client_makes_the_run_forget_what_it_read() -> None:
    bench = Bench()
    bench.call("list_marketplace", {}, "before")
    bench.returned("before", {"posts": []})
    bench.call("open_page", {}, "open")
    bench.decided(asked(bench.actions).pending.confirmation_id, Approve())
    assert statuses(bench, "open")[-1] == "wanted"
    assert dispatched(bench.call("list_marketplace", {}, "during")) == ["during"]


@pytest.mark.req("TOOL-40")
def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_BYTES", 10)
    bench = Bench()
    bench.call("search_corpus", QUERY, "a")
    bench.returned("a", FOUND)
    assert dispatched(bench.call("search_corpus", QUERY, "b")) == ["b"]


@pytest.mark.req("TOOL-40")
def test_a_result_that_was_cut_is_remembered_as_it_was_cut() -> None:
    bench = Bench(Limits(max_result_bytes=200))
    bench.call("search_corpus", QUERY, "a")
    bench.returned("a", {"text": "x" * 5000})
    bench.call("search_corpus", QUERY, "b")
    first, second = bench.frames("tool_result")
    assert (second["truncated"], second["bytes"]) == (first["truncated"], first["bytes"]) == (True, 5011)
    assert second["content"]["truncated"] is True


@pytest.mark.req("TOOL-41")
@pytest.mark.parametrize("arguments", [QUERY, {"query": ""}, None, {"n": 10**40, "bad": "\ud800"}])
def test_equal_calls_stop_at_the_limit_and_the_run_comes_to_its_answer(arguments: Any) -> None:
    bench = Bench(Limits(max_iterations=9))
    for number in range(4):
        for action in of(Dispatch, bench.call("search_corpus", arguments, f"c{number}")):
            bench.returned(action.tool_call_id, FOUND)
        bench.model_done("tool_calls")
    last = bench.frames("tool_result")[-1]
    assert last["status"] == "refused"
    assert last["content"].startswith("repeated_call: not run; the same call was made 3 times")
    request = bench.asked_model()
    assert (request.tool_choice, bench.loop.state.iteration) == ("none", 5)
    assert "3 equal tool calls" in request.messages[-1]["content"]
    assert only(Finish, bench.model_done()).done["limit"] == "max_equal_calls"


@pytest.mark.req("TOOL-41")
def test_a_turn_that_also_does_something_else_goes_on() -> None:
    bench = Bench(Limits(max_equal_calls=1))
    bench.call("list_corpora", {}, "a")
    bench.returned("a", {})
    bench.call("list_corpora", {}, "b")
    bench.model_done("tool_calls")
    assert bench.asked_model().tool_choice == "auto"


@pytest.mark.req("TOOL-42")
def test_the_tokens_the_model_used_are_a_limit() -> None:
    bench = Bench(Limits(max_tokens=100))
    bench.call("list_corpora", {}, "a")
    bench.returned("a", {})
    bench.model_done("tool_calls", tokens_in=40, tokens_out=19)
    assert bench.asked_model().tool_choice == "auto"
    bench.call("list_corpora", {}, "b")
    bench.model_done("tool_calls", tokens_in=40, tokens_out=1)
    request = bench.asked_model()
    assert request.tool_choice == "none"
    assert "The limit of 100 tokens" in request.messages[-1]["content"]
    assert only(Finish, bench.model_done()).done["limit"] == "max_tokens"


@pytest.mark.req("TOOL-41", "TOOL-42")
def test_what_was_used_counts_after_a_restart() -> None:
    bench = Bench(Limits(max_tokens=100, max_equal_calls=1))
    bench.call("list_corpora", {}, "a")
    bench.returned("a", {})
    bench.model_done("tool_calls", tokens_in=60, tokens_out=30)
    saved = msgspec.json.encode(bench.loop.state)
    bench.loop = ToolLoop(msgspec.json.decode(saved, type=RunState), TOOLBOX)
    bench.call("list_corpora", {}, "b")
    assert bench.frames("tool_result")[-1]["content"].startswith("repeated_call:")
    bench.call("search_corpus", QUERY, "c")
    bench.returned("c", FOUND)
    bench.model_done("tool_calls", tokens_in=9, tokens_out=1)
    assert bench.asked_model().tool_choice == "none"


@pytest.mark.req("TOOL-43")
def test_a_person_reads_where_each_call_stands() -> None:
    bench = Bench()
    bench.call("market_post", POST, "a")
    texts = [frame["text"] for frame in bench.frames("tool_status")]
    assert texts == ["market_post is about to run", "market_post waits until somebody agrees to it"]
    assert only(AskPerson, bench.actions)


@pytest.mark.req("TOOL-44")
def test_a_flood_of_calls_is_cut_with_one_notice() -> None:
    bench = Bench()
    for number in range(1000):
        bench.call("list_corpora", {}, f"c{number}")
    assert len(bench.loop.state.calls) == 128
    assert [frame["code"] for frame in bench.frames("notice")] == ["tool_call_ignored"]
    bench.returned("c0", {})
    bench.model_done("tool_calls")
    paired(bench.asked_model().messages)
    assert bench.loop.state.flooded is False


@pytest.mark.req("TOOL-44")
def test_a_flood_of_pieces_leaves_nothing_behind() -> None:
    bench = Bench()
    for number in range(1000):
        bench.delta(f"d{number}", "search_corpus", "{")
    assert len(bench.frames("tool_call_delta")) == len(bench.loop.state.used_ids) == 128
