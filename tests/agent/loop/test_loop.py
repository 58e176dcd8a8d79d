"""The tool loop, event by event (docs/tools.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop import state
from hearthnet.agent.loop.approvals import MAX_EDITS
from hearthnet.agent.loop.events import (
    Abort,
    AskModel,
    AskPerson,
    Dispatch,
    Emit,
    Fail,
    Finish,
    Start,
    Suspend,
)
from hearthnet.agent.loop.state import Limits, Phase
from hearthnet.agent.tools.result_text import json_text
from hearthnet.agent.tools.types import Approve, Deny, Edit, ToolChoice
from hearthnet.core.canonical_json import digest
from hearthnet.core.ids import is_ulid
from hearthnet.service.effects import exactly_once
from tests.agent.bench import EPOCH, POST, QUERY, QUESTION, RUN, Bench, asked, dispatched, of, only, paired


def test_a_model_that_calls_nothing_answers() -> None:
    bench = Bench()
    assert only(AskModel, bench.actions).messages == QUESTION
    bench.display("progress", {"current": 1, "total": 2, "stage": "loading"})
    bench.token("Boil ")
    bench.token("it.")
    ended = only(Finish, bench.model_done(model="m", tokens_in=5, tokens_out=2, ms=9))
    assert ended.message == {"role": "assistant", "content": "Boil it."}
    assert [frame["text"] for frame in bench.frames("token")] == ["Boil ", "it."]
    assert bench.frames("progress") == [{"current": 1, "total": 2, "stage": "loading"}]
    assert bench.loop.state.messages[-1] == ended.message


@pytest.mark.req("TOOL-1")
def test_a_read_starts_while_the_model_still_talks() -> None:
    bench = Bench()
    bench.token("Let me look. ")
    sent = only(Dispatch, bench.call("search_corpus", QUERY, "c1"))
    assert sent.body == {"params": {"corpus": "system"}, "input": {"query": "rainwater"}}
    assert (sent.capability, sent.timeout_ms, sent.arguments_digest) == ("rag.query@1.0", 30_000, "")
    assert bench.frames("tool_started")[0]["arguments"] == QUERY
    bench.token("One moment.")
    assert bench.ended is None


@pytest.mark.req("TOOL-1")
def test_no_more_than_four_calls_run_at_once() -> None:
    bench = Bench()
    for number in range(6):
        bench.call("search_corpus", {"query": f"water {number}"}, f"c{number}")
    assert dispatched(bench.actions) == ["c0", "c1", "c2", "c3"]
    assert dispatched(bench.returned("c2", {})) == ["c4"]
    assert dispatched(bench.failed("c0", "timeout")) == ["c5"]


@pytest.mark.req("TOOL-2")
def test_results_go_back_together_in_the_order_of_the_calls() -> None:
    bench = Bench()
    bench.token("Two things.")
    bench.call("search_corpus", QUERY, "a")
    bench.call("list_corpora", {}, "b")
    bench.returned("b", {"corpora": []})
    assert len(of(AskModel, bench.model_done())) == 0
    request = only(AskModel, bench.returned("a", {"chunks": ["x"]}))
    assert bench.loop.state.iteration == 2
    said, first, second = request.messages[-3:]
    assert said["content"] == "Two things."
    assert [call["id"] for call in said["tool_calls"]] == ["a", "b"]
    assert first == {"role": "tool", "tool_call_id": "a", "content": '{"chunks":["x"]}', "is_error": False}
    assert second["tool_call_id"] == "b"
    paired(request.messages)


@pytest.mark.req("TOOL-27")
def test_thoughts_and_seals_go_back_with_the_calls_they_led_to() -> None:
    bench = Bench()
    thought = {"type": "thinking", "text": "Ask the corpus.", "signature": "c2VhbA=="}
    seals = {"signature": "c2lnbmVk", "called_by": "code:1"}
    bench.heard("thought", thought)
    bench.token("One moment.")
    bench.heard("tool_call", {"id": "a", "name": "search_corpus", "arguments": QUERY, **seals})
    bench.model_done("tool_calls")
    bench.returned("a", {})
    said = bench.asked_model().messages[-2]
    assert (said["thinking"], said["content"]) == ([thought], "One moment.")
    assert said["tool_calls"] == [{"id": "a", "name": "search_corpus", "arguments": QUERY, **seals}]
    bench.call("list_corpora", {}, "b")
    bench.model_done("tool_calls")
    bench.returned("b", {})
    said = bench.asked_model().messages[-2]
    assert said == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "b", "name": "list_corpora", "arguments": {}}],
    }


@pytest.mark.req("TOOL-27")
def test_what_the_vendors_own_tools_did_goes_back_where_it_happened() -> None:
    bench = Bench()
    searched = {"type": "server_call", "id": "s", "name": "web_search", "arguments": {"query": "rain"}}
    found = {"type": "server_result", "id": "s", "name": "web_search", "result": []}
    thought = {"type": "thinking", "text": "Hm.", "signature": "p", "format": "anthropic"}
    bench.heard("thought", thought)
    bench.token("Let me ")
    bench.token("look.")
    bench.heard("served", searched)
    bench.heard("served", found)
    bench.heard("thought", thought)
    bench.token("Nothing there.")
    bench.call("search_corpus", QUERY, "a")
    bench.model_done("tool_calls")
    bench.returned("a", {})
    message = bench.asked_model().messages[-2]
    assert message["thinking"] == [thought]
    assert message["content"] == [
        {"type": "text", "text": "Let me look."},
        searched,
        found,
        thought,
        {"type": "text", "text": "Nothing there."},
    ]


@pytest.mark.req("TOOL-3")
def test_an_invented_tool_is_answered_with_the_nearest_names() -> None:
    bench = Bench()
    bench.call("serch_corpus\n!", QUERY, "c1")
    request = only(AskModel, bench.model_done("tool_calls"))
    (result,) = bench.results()
    assert result["content"] == (
        "unknown_tool: there is no tool 'serch_corpus\\n!'; "
        "did you mean search_corpus or search_marketplace or list_corpora?"
    )
    assert result["is_error"] is True
    assert request.messages[-2]["tool_calls"][0]["name"] == "serch_corpus__"
    assert bench.frames("tool_result")[0]["status"] == "refused"
    assert not of(Dispatch, bench.actions)


@pytest.mark.req("TOOL-4")
@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        (
            "search_corpus",
            {"query": "water", "k": 99},
            "/k: 99 is greater than the maximum of 20 (rule: maximum)",
        ),
        ("search_corpus", {}, '/: "query" is a required property (rule: required)'),
        (
            "search_corpus",
            {"query": "w", "corpus": "private"},
            '/: has no field "corpus"; it has query, k (rule: additionalProperties)',
        ),
        ("search_corpus", "water", '/: "water" is not of type "object" (rule: type)'),
        ("search_corpus", None, '/: null is not of type "object" (rule: type)'),
        (
            "market_post",
            {**POST, "category": "gossip"},
            '/category: "gossip" is not one of "offer", "request", "info", "emergency" (rule: enum)',
        ),
        (
            "market_post",
            {**POST, "client_id": RUN},
            '/: has no field "client_id"; it has category, title, body, tags, ttl_seconds '
            "(rule: additionalProperties)",
        ),
    ],
)
def test_wrong_arguments_go_back_with_path_and_rule(tool: str, arguments: object, expected: str) -> None:
    bench = Bench()
    bench.call(tool, arguments, "c1")
    bench.model_done("tool_calls")
    (result,) = bench.results()
    assert (result["content"], result["is_error"]) == (f"invalid_arguments: {expected}", True)
    assert not of(Dispatch, bench.actions)
    assert not of(AskPerson, bench.actions)


# --- confirmation


@pytest.mark.req("TOOL-5")
def test_a_side_effect_is_shown_completely_and_waits_for_a_yes() -> None:
    bench = Bench()
    pending = asked(bench.call("market_post", POST, "c1")).pending
    assert not of(Dispatch, bench.actions)
    assert pending.arguments == POST
    assert pending.body == {"params": {}, "input": {**POST, "client_id": pending.client_id}}
    assert pending.arguments_digest == digest(pending.body)
    assert (pending.run, pending.tool_call_id, pending.capability) == (RUN, "c1", "market.post@1.0")
    assert pending.expires_at == EPOCH + Limits().confirmation_ttl_ms
    assert is_ulid(pending.client_id)
    assert is_ulid(pending.confirmation_id)
    (frame,) = bench.frames("confirmation_required")
    assert frame["arguments_digest"] == pending.arguments_digest
    sent = only(Dispatch, bench.decided(pending.confirmation_id, Approve()))
    assert (sent.body, sent.arguments_digest, sent.client_id) == (
        pending.body,
        pending.arguments_digest,
        pending.client_id,
    )
    assert not bench.decided(pending.confirmation_id, Approve()), "a second yes changes nothing"


@pytest.mark.req("TOOL-5")
def test_pending_calls_are_decided_one_by_one_in_any_order_while_others_run() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "read")
    first = asked(bench.call("market_post", POST, "one")).pending
    second = asked(bench.call("market_post", {**POST, "title": "Stove"}, "two")).pending
    bench.model_done("tool_calls")
    assert first.client_id != second.client_id
    assert dispatched(bench.decided(second.confirmation_id, Approve())) == ["two"]
    bench.returned("read", {"chunks": []})
    bench.decided(first.confirmation_id, Deny("not today"))
    assert len(bench.results()) == 0, "the second post still runs"
    bench.returned("two", {"event_id": "e"})
    assert [(r["tool_call_id"], r["is_error"]) for r in bench.results()] == [
        ("read", False),
        ("one", True),
        ("two", False),
    ]
    assert dispatched(bench.actions) == ["read", "two"]


@pytest.mark.req("TOOL-6")
def test_an_edit_is_a_yes_to_other_arguments_with_a_new_digest() -> None:
    bench = Bench()
    pending = asked(bench.call("market_post", POST, "c1")).pending
    sent = only(Dispatch, bench.decided(pending.confirmation_id, Edit({**POST, "title": "Filter to lend"})))
    assert sent.body["input"]["title"] == "Filter to lend"
    assert sent.arguments_digest == digest(sent.body) != pending.arguments_digest
    assert sent.client_id == pending.client_id
    bench.model_done()
    bench.returned("c1", {})
    assert bench.asked_model().messages[-2]["tool_calls"][0]["arguments"]["title"] == "Filter to lend"


@pytest.mark.req("TOOL-6")
def test_an_invalid_edit_is_asked_again_with_the_problem_and_not_for_ever() -> None:
    bench = Bench()
    pending = asked(bench.call("market_post", POST, "c1")).pending
    wrong = Edit({**POST, "title": ""})
    for _ in range(MAX_EDITS):
        again = asked(bench.decided(pending.confirmation_id, wrong)).pending
        assert again.arguments == POST
        assert "/title" in again.problem
    bench.decided(pending.confirmation_id, wrong)
    assert bench.frames("tool_result")[0]["status"] == "denied"
    assert not of(Dispatch, bench.actions)


@pytest.mark.req("TOOL-7")
@pytest.mark.parametrize(
    ("reason", "said"), [("too early", "the user said no: too early"), ("", "the user said no")]
)
def test_a_no_reaches_the_model_and_nobody_else(reason: str, said: str) -> None:
    bench = Bench()
    pending = asked(bench.call("market_post", POST, "c1")).pending
    bench.decided(pending.confirmation_id, Deny(reason))
    bench.model_done()
    assert bench.results()[0]["content"] == f"denied: {said}"
    assert not of(Dispatch, bench.actions)


@pytest.mark.req("TOOL-8")
def test_the_run_is_suspended_when_only_absent_people_could_move_it_on() -> None:
    bench = Bench()
    bench.token("I will post it.")
    bench.call("search_corpus", QUERY, "read")
    pending = asked(bench.call("market_post", POST, "c1")).pending
    bench.undecided(pending.confirmation_id)
    bench.model_done("tool_calls")
    assert bench.ended is None, "the read still runs"
    ended = only(Suspend, bench.returned("read", {"chunks": []}))
    assert (ended.text, ended.pending) == ("I will post it.", [pending])
    (frame,) = bench.frames("suspended")
    assert (frame["run"], frame["requires_follow_up"]) == (RUN, True)
    assert frame["pending"][0]["confirmation_id"] == pending.confirmation_id
    assert bench.loop.state.phase is Phase.SUSPENDED
    assert bench.decided(pending.confirmation_id, Approve()) == []


@pytest.mark.req("TOOL-8")
def test_patience_with_a_person_ends_and_a_late_yes_before_that_still_counts() -> None:
    bench = Bench(Limits(patience_ms=1000))
    first = asked(bench.call("market_post", POST, "one")).pending
    bench.model_done()
    assert bench.loop.next_deadline() == EPOCH + 1000
    assert not of(Suspend, bench.later(500))
    assert only(Suspend, bench.later(500)).pending == [first]
    assert bench.loop.next_deadline() is None
    other = Bench(Limits(patience_ms=1000))
    late = asked(other.call("market_post", POST, "one")).pending
    other.model_done()
    other.later(999)
    assert dispatched(other.decided(late.confirmation_id, Approve())) == ["one"]


@pytest.mark.req("TOOL-8")
def test_an_undecided_question_can_still_be_answered_while_others_run() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "read")
    pending = asked(bench.call("market_post", POST, "c1")).pending
    bench.model_done()
    bench.undecided(pending.confirmation_id)
    assert dispatched(bench.decided(pending.confirmation_id, Approve())) == ["c1"]


@pytest.mark.req("TOOL-9")
def test_a_question_that_nobody_answers_in_time_is_neither_yes_nor_no() -> None:
    bench = Bench(Limits(patience_ms=9000, confirmation_ttl_ms=1000))
    pending = asked(bench.call("market_post", POST, "c1")).pending
    bench.model_done()
    assert bench.loop.next_deadline() == EPOCH + 1000
    assert only(Abort, bench.later(1000)).tool_call_id == "c1"
    assert bench.results()[0]["content"] == "confirmation_expired: nobody decided in time; nothing was done"
    assert bench.frames("tool_result")[0]["status"] == "expired"
    assert bench.decided(pending.confirmation_id, Approve()) == []
    assert not of(Dispatch, bench.actions)


@pytest.mark.req("TOOL-9")
@pytest.mark.parametrize("decision", [Approve(), Edit(POST)])
def test_a_late_yes_is_refused(decision: Approve | Edit) -> None:
    bench = Bench(Limits(confirmation_ttl_ms=1000))
    pending = asked(bench.call("market_post", POST, "c1")).pending
    bench.now += 1000
    bench.decided(pending.confirmation_id, decision)
    assert bench.frames("tool_result")[0]["status"] == "expired"
    assert not of(Dispatch, bench.actions)


@pytest.mark.req("TOOL-9")
def test_a_late_no_is_kept() -> None:
    bench = Bench(Limits(confirmation_ttl_ms=1000))
    pending = asked(bench.call("market_post", POST, "c1")).pending
    bench.now += 1000
    bench.decided(pending.confirmation_id, Deny("no"))
    assert bench.frames("tool_result")[0]["status"] == "denied"


def test_decisions_about_unknown_calls_change_nothing() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "read")
    pending = asked(bench.call("market_post", POST, "post")).pending
    before = msgspec.json.encode(bench.loop.state)
    for unknown in ("01JZZZZZZZZZZZZZZZZZZZZZ99", ""):
        assert bench.decided(unknown, Approve()) == []
        assert bench.decided(unknown, Deny()) == []
        assert bench.undecided(unknown) == []
    assert msgspec.json.encode(bench.loop.state) == before
    assert dispatched(bench.decided(pending.confirmation_id, Approve())) == ["post"]


# --- limits


@pytest.mark.req("TOOL-10")
@pytest.mark.parametrize("choice", ["required", {"name": "search_corpus"}])
def test_a_demanded_tool_is_demanded_once(choice: ToolChoice) -> None:
    bench = Bench(choice=choice)
    assert bench.asked_model().tool_choice == choice
    bench.call("search_corpus", QUERY, "c1")
    bench.returned("c1", {})
    bench.model_done()
    assert bench.asked_model().tool_choice == "auto"


@pytest.mark.req("TOOL-11")
def test_after_the_last_round_the_model_is_told_to_finish() -> None:
    bench = Bench(Limits(max_iterations=2))
    for number in range(2):
        bench.call("search_corpus", {"query": f"water {number}"}, f"c{number}")
        bench.returned(f"c{number}", {"chunks": []})
        bench.model_done("tool_calls")
    request = bench.asked_model()
    assert (request.tool_choice, bench.loop.state.iteration) == ("none", 3)
    assert request.messages[-1]["role"] == "user"
    assert "2 rounds of tool calls" in request.messages[-1]["content"]
    assert [frame["final"] for frame in bench.frames("iteration")] == [False, False, True]
    bench.token("All I know.")
    bench.delta("c9", "search_corpus", "{")
    bench.call("search_corpus", QUERY, "c9")
    ended = only(Finish, bench.model_done("tool_calls"))
    assert ended.message["content"] == "All I know."
    assert ended.done["limit"] == "max_iterations"
    assert bench.frames("notice")[0]["code"] == "tool_call_ignored"
    assert not bench.frames("tool_call_delta")
    assert dispatched(bench.actions) == ["c0", "c1"]


@pytest.mark.req("TOOL-11")
def test_calls_beyond_the_budget_get_an_error_and_the_model_finishes() -> None:
    bench = Bench(Limits(max_calls=2))
    for number in range(50):
        bench.call("search_corpus", {"query": f"water {number}"}, f"c{number}")
    assert dispatched(bench.actions) == ["c0", "c1"]
    bench.returned("c0", {})
    bench.returned("c1", {})
    bench.model_done("tool_calls")
    request = bench.asked_model()
    paired(request.messages)
    assert request.tool_choice == "none"
    assert [one["content"] for one in bench.results()] == [
        *["{}"] * 2,
        *["budget_exhausted: not run; the limit max_calls is reached"] * 48,
    ]
    assert "2 tool calls" in request.messages[-1]["content"]


@pytest.mark.req("TOOL-11")
def test_when_the_time_is_used_up_reads_are_stopped_and_the_model_finishes() -> None:
    bench = Bench(Limits(wall_clock_ms=1000, max_parallel=1))
    bench.call("search_corpus", QUERY, "runs")
    bench.call("search_corpus", QUERY, "waits")
    bench.model_done("tool_calls")
    assert bench.loop.next_deadline() == EPOCH + 1000
    stopped = of(Abort, bench.later(1000))
    assert [action.tool_call_id for action in stopped] == ["runs", "waits"]
    request = bench.asked_model()
    assert request.tool_choice == "none"
    assert "1 seconds" in request.messages[-1]["content"]
    assert [result["is_error"] for result in bench.results()] == [True, True]
    assert bench.loop.next_deadline() is None
    bench.token("Sorry.")
    assert only(Finish, bench.model_done()).done["limit"] == "wall_clock"


@pytest.mark.req("TOOL-11")
def test_time_that_runs_out_while_the_model_talks_lets_it_talk_but_not_call() -> None:
    bench = Bench(Limits(wall_clock_ms=1000))
    bench.later(1000)
    bench.token("Nearly there.")
    bench.call("search_corpus", QUERY, "c1")
    assert not of(Dispatch, bench.actions)
    assert [frame["text"] for frame in bench.frames("token")] == ["Nearly there."]
    ended = bench.model_done("tool_calls")
    assert only(AskModel, ended).tool_choice == "none"
    assert bench.asked_model().messages[1]["content"] == "Nearly there."
    assert bench.results()[0]["content"] == "budget_exhausted: not run; the limit wall_clock is reached"


@pytest.mark.req("TOOL-11")
def test_an_answer_that_comes_after_the_time_was_no_forced_one() -> None:
    bench = Bench(Limits(wall_clock_ms=1000))
    bench.later(1000)
    assert only(Finish, bench.model_done()).done["limit"] is None


@pytest.mark.req("TOOL-11")
def test_thinking_people_cost_no_time_and_a_yes_outlives_the_clock() -> None:
    bench = Bench(Limits(wall_clock_ms=1000, patience_ms=10**9, max_parallel=1))
    pending = asked(bench.call("market_post", POST, "post")).pending
    bench.model_done("tool_calls")
    bench.later(50_000)
    assert bench.loop.state.spent_ms == 0
    assert dispatched(bench.decided(pending.confirmation_id, Approve())) == ["post"]
    bench.later(5000)
    assert bench.ended is None, "what was confirmed is carried out"
    bench.returned("post", {"event_id": "e"})
    assert bench.results()[0]["is_error"] is False
    assert bench.asked_model().tool_choice == "none"


@pytest.mark.req("TOOL-11")
def test_a_read_gets_no_more_time_than_the_run_has_left_and_an_effect_all_of_its_own() -> None:
    bench = Bench(Limits(wall_clock_ms=10_000))
    bench.now += 9000
    assert only(Dispatch, bench.call("search_corpus", QUERY, "read")).timeout_ms == 1000
    pending = asked(bench.call("market_post", POST, "post")).pending
    assert only(Dispatch, bench.decided(pending.confirmation_id, Approve())).timeout_ms == 30_000


def test_a_clock_that_jumps_back_counts_as_standing_still() -> None:
    bench = Bench(Limits(wall_clock_ms=1000))
    bench.now -= 500_000
    bench.token("a")
    assert (bench.loop.state.spent_ms, bench.loop.state.now) == (0, EPOCH)


def test_a_forbidden_tool_stays_forbidden() -> None:
    bench = Bench(choice="none")
    assert bench.asked_model().tool_choice == "none"
    assert not of(Dispatch, bench.call("search_corpus", QUERY, "c1"))
    bench.token("No tools.")
    actions = bench.model_done("tool_calls")
    ended = only(Finish, actions)
    assert not of(Dispatch, actions)
    assert (ended.message, ended.done["limit"]) == ({"role": "assistant", "content": "No tools."}, None)


# --- ids, sizes, failures


@pytest.mark.req("TOOL-12")
def test_missing_repeated_and_overlong_ids_become_our_own() -> None:
    earlier = [
        *QUESTION,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "old", "name": "list_corpora", "arguments": {}}],
        },
        {"role": "tool", "tool_call_id": "old", "content": "{}"},
        {"role": "user", "content": "And now?"},
    ]
    bench = Bench(messages=earlier)
    for given in ("", "old", "x" * 41, "same", "same", "call_6"):
        bench.call("list_corpora", {}, given)
    taken = [frame["id"] for frame in bench.frames("tool_call")]
    assert taken == ["call_2", "call_3", "call_4", "same", "call_6", "call_7"]
    for call_id in taken:
        bench.returned(call_id, {})
    bench.model_done()
    bench.call("list_corpora", {}, "same")
    assert bench.frames("tool_call")[-1]["id"] == "call_8"
    bench.call("list_corpora", {}, "x" * 40)
    assert bench.frames("tool_call")[-1]["id"] == "x" * 40, "the longest that every vendor takes"
    paired(bench.asked_model().messages)


@pytest.mark.req("TOOL-12")
def test_pieces_of_a_call_carry_the_id_that_the_call_will_have() -> None:
    bench = Bench()
    bench.delta("", "search_corpus", '{"qu')
    bench.delta("", "", 'ery":"x"}')
    bench.delta("z", "no_such_tool", "{}")
    bench.call("search_corpus", {"query": "x"})
    bench.call("search_corpus", {"query": "y"})
    assert bench.frames("tool_call_delta") == [
        {"id": "call_1", "name": "search_corpus", "arguments_delta": '{"qu'},
        {"id": "call_1", "arguments_delta": 'ery":"x"}'},
        {"id": "z", "name": "no_such_tool", "arguments_delta": "{}"},
    ]
    assert [frame["id"] for frame in bench.frames("tool_call")] == ["call_1", "call_3"]


@pytest.mark.req("TOOL-13")
def test_a_result_that_is_too_large_is_cut_for_the_model_with_a_note() -> None:
    bench = Bench(Limits(max_result_bytes=500))
    bench.call("search_corpus", QUERY, "c1")
    bench.model_done()
    output = {"chunks": ['"\\ä' * 400]}
    bench.returned("c1", output)
    content = bench.results()[0]["content"]
    assert 490 <= len(content.encode()) <= 500, "as much as has room"
    cut, whole = json.loads(content), json_text(output)
    shown, size = len(cut["head"].encode()), len(whole.encode())
    assert whole.startswith(cut["head"])
    assert cut == {
        "truncated": True,
        "note": f"only the first {shown} of {size} bytes are shown; ask for less",
        "head": cut["head"],
    }
    (frame,) = bench.frames("tool_result")
    assert (frame["content"], frame["truncated"]) == (output, True), "whoever listens gets all of it"
    assert frame["bytes"] == size


@pytest.mark.req("TOOL-14")
def test_a_failing_tool_leaves_its_siblings_alone() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "breaks")
    bench.call("list_corpora", {}, "works")
    bench.model_done()
    bench.failed("breaks", "timeout", "no answer\nin 30 s " + "x" * 1000)
    bench.returned("works", {"corpora": []})
    broken, works = bench.results()
    assert broken["content"].startswith("timeout: no answer in 30 s xxx")
    assert len(broken["content"]) < 600
    assert (broken["is_error"], works["is_error"]) == (True, False)


@pytest.mark.req("TOOL-15")
@pytest.mark.parametrize(
    ("code", "status"),
    [*((code, "outcome_unknown") for code in sorted(exactly_once._UNKNOWN)), ("unauthorized", "failed")],
)
def test_a_lost_answer_to_an_effect_is_an_unknown_outcome(code: str, status: str) -> None:
    bench = Bench()
    pending = asked(bench.call("market_post", POST, "c1")).pending
    bench.model_done()
    bench.decided(pending.confirmation_id, Approve())
    bench.failed("c1", code)
    assert bench.frames("tool_result")[0]["status"] == status
    assert bench.results()[0]["content"].startswith(f"{code if status == 'failed' else status}: ")


def test_progress_reaches_the_listener_and_not_the_model() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "c1")
    only(Emit, bench.progress("c1", current=1, total=3, stage="reading"))
    assert bench.frames("tool_progress") == [
        {"current": 1, "total": 3, "stage": "reading", "tool_call_id": "c1"}
    ]
    assert bench.progress("c9", current=1) == []
    bench.returned("c1", {})
    assert bench.progress("c1", current=2) == [], "late progress is dropped"
    assert bench.returned("c1", {"second": True}) == [], "and so is a second outcome"
    bench.model_done("tool_calls")
    assert [one["content"] for one in bench.results()] == ["{}"]
    assert "reading" not in str(bench.asked_model().messages)


# --- ends


@pytest.mark.req("TOOL-16")
def test_cancel_ends_everything_and_leaves_a_transcript_that_can_go_on() -> None:
    bench = Bench()
    bench.token("Wait.")
    bench.call("search_corpus", QUERY, "read")
    bench.call("market_post", POST, "asked")
    pending = asked(bench.call("market_post", POST, "posting")).pending
    bench.decided(pending.confirmation_id, Approve())
    bench.returned("read", {"chunks": []})
    ended = only(Finish, bench.cancel())
    assert (ended.done["stop_reason"], ended.message["content"]) == ("cancelled", "Wait.")
    assert [tool["status"] for tool in ended.done["tools"]] == ["completed", "cancelled", "outcome_unknown"]
    paired(bench.loop.state.messages)
    assert bench.token("late") == []
    assert bench.cancel() == []


@pytest.mark.req("TOOL-16")
def test_a_run_can_be_cancelled_before_it_starts() -> None:
    bench = Bench(start=False)
    assert bench.loop.next_deadline() is None
    assert bench.token("early") == []
    assert only(Finish, bench.cancel()).done["iterations"] == 0


@pytest.mark.req("TOOL-16")
def test_a_broken_model_ends_the_run_with_its_error() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "read")
    ended = only(Fail, bench.model_failed("capacity_exceeded"))
    assert ended.error["error"] == "capacity_exceeded"
    assert bench.frames("error") == [ended.error]
    assert [one.tool_call_id for one in of(Abort, bench.actions)] == ["read"]
    paired(bench.loop.state.messages)
    result = "cancelled: the model failed before this call had ended"
    assert bench.loop.state.messages[-1]["content"] == result


def test_what_comes_at_the_wrong_time_changes_nothing() -> None:
    bench = Bench()
    assert bench.feed(Start(now=EPOCH)) == [], "a second start"
    bench.call("search_corpus", QUERY, "c1")
    bench.model_done("tool_calls")
    assert bench.token("the model was done") == []
    assert bench.call("search_corpus", QUERY, "c2") == []
    assert bench.model_failed() == []


@pytest.mark.req("TOOL-17")
def test_done_says_what_was_used_and_why_it_stopped() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "c1")
    bench.now += 40
    bench.returned("c1", {"chunks": []})
    bench.model_done("tool_calls", model="m", tokens_in=10, tokens_out=3, ms=40)
    bench.now += 60
    done = only(Finish, bench.model_done("max_tokens", model="m", tokens_in=20, tokens_out=7, ms=60)).done
    assert done == {
        "model": "m",
        "run": RUN,
        "stop_reason": "max_tokens",
        "limit": None,
        "iterations": 2,
        "tokens_in": 30,
        "tokens_out": 10,
        "ms": 100,
        "tools": [
            {"tool_call_id": "c1", "name": "search_corpus", "status": "completed", "ms": 40, "bytes": 13}
        ],
        "happened": [{"state": "nothing"}],
    }
    assert bench.frames("done") == [done]


def test_a_model_that_counts_nothing_counts_as_nothing() -> None:
    assert only(Finish, Bench().model_done(tokens_out="many")).done["tokens_out"] == 0


@pytest.mark.req("TOOL-25")
def test_the_diagrams_in_the_documentation_are_drawn_from_the_tables() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "tools.md").read_text()
    for table in (state.TRANSITIONS, state.CALL_TRANSITIONS):
        assert f"```mermaid\n{_diagram(table)}\n```" in page


def _diagram(table: Mapping[Any, Mapping[Any, Any]]) -> str:
    lines = [
        f"    {start} --> {end}: {step}" for start, steps in table.items() for step, end in steps.items()
    ]
    first, last = next(iter(table)), list(table)[-1]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {first}", *lines, f"    {last} --> [*]"])
