"""What holds for the tool loop whatever happens, in whatever order (docs/tools.md, "What always holds")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.agent.loop.events import (
    AskClient,
    AskGrant,
    AskModel,
    AskPerson,
    DecisionMade,
    Dispatch,
    Emit,
    Event,
    Fail,
    Finish,
    GrantUsed,
    Start,
    Suspend,
)
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import CallPhase, CallState, Limits, Phase, RunState, new_run
from hearthnet.agent.tools.types import Approve, ClientCallRequest, Decision, Deny, Edit, PendingApproval
from hearthnet.core.canonical_json import digest
from tests.agent.bench import POST, QUERY, QUESTION, RUN, TOOLBOX, Bench, located, of, paired

LIMITS = Limits(
    max_iterations=3,
    max_calls=7,
    max_equal_calls=2,
    max_tokens=9,
    max_parallel=2,
    max_result_bytes=400,
    wall_clock_ms=20_000,
    patience_ms=8_000,
    confirmation_ttl_ms=15_000,
)
STANDING = {"pending", "waiting", "wanted", "running"}
EFFECTS = {"market.post@1.0", "market.expire@1.0"}


class Watched(Bench):
    """A bench that checks after every event what must always hold."""

    def __init__(self) -> None:
        self.shadow: ToolLoop | None = None
        self.questions: dict[str, PendingApproval] = {}
        self.agreed: dict[str, set[str]] = {}
        self.running: set[str] = set()
        self.sent: list[str] = []
        self.since_effect: set[str] = set()
        self.turn: dict[str, CallState] = {}
        self.standings: dict[str, list[str]] = {}
        self.fresh: set[str] = set()
        self.settled: list[str] = []
        self.grants: dict[str, str] = {}
        self.granted_bodies: dict[str, str] = {}
        super().__init__(LIMITS, start=False, granted=["market_expire", "market_post", "open_page"])
        self.feed(Start(now=self.now))

    def feed(self, event: Event) -> list[Any]:
        over_before = self.ended is not None
        twin = located(self._twin(), event)
        if isinstance(event, DecisionMade):
            self._note_decision(event)
        elif isinstance(event, GrantUsed) and event.confirmation_id in self.grants:
            call = self.grants[event.confirmation_id]
            self.agreed.setdefault(call, set()).add(self.granted_bodies[call])
        turn = self.loop.state.calls
        actions = super().feed(event)
        self.turn = {call.id: call for call in [*turn, *self.loop.state.calls]}
        assert actions == twin, "a saved and restored run behaves differently"
        assert not (over_before and actions), "something was done after the end"
        for action in actions:
            self._check(action)
        if actions and self.ended is not None:
            assert actions[-1] is self.ended, "the end is the last action"
        return actions

    def _twin(self) -> ToolLoop:
        """The same run, saved and taken up by somebody else."""
        saved = msgspec.json.encode(self.loop.state)
        return ToolLoop(msgspec.json.decode(saved, type=RunState), TOOLBOX)

    def _note_decision(self, event: DecisionMade) -> None:
        pending = self.questions.get(event.confirmation_id)
        if pending is None:
            return
        digests = self.agreed.setdefault(pending.tool_call_id, set())
        if isinstance(event.decision, Approve):
            digests.add(pending.arguments_digest)
        elif isinstance(event.decision, Edit):
            given = {**event.decision.arguments, "client_id": pending.client_id}
            digests.add(digest(event.decision.arguments))
            digests.add(digest({"params": {}, "input": given}))

    def _check(self, action: object) -> None:
        match action:
            case AskGrant(pending=pending):
                assert not self.loop.state.untrusted, "a grant is asked after the words of others were read"
                self.questions[pending.confirmation_id] = pending
                self.grants[pending.confirmation_id] = pending.tool_call_id
                self.granted_bodies[pending.tool_call_id] = pending.arguments_digest
            case AskPerson(pending=pending):
                self.questions[pending.confirmation_id] = pending
            case Dispatch():
                self._check_dispatch(action)
            case AskModel(messages=messages):
                paired(messages)
                assert not self.running, "the model is asked while calls run"
            case AskClient(wanted=wanted):
                self._check_wanted(wanted)
            case Emit(event="tool_status", data=data):
                self.standings.setdefault(data["tool_call_id"], []).append(data["status"])
            case Emit(event="tool_result", data=data):
                self._note_result(data)
                self.settled.append(data["tool_call_id"])
                self.running.discard(data["tool_call_id"])
            case _:
                pass

    def _note_result(self, data: dict[str, Any]) -> None:
        """Reads with a result since the last effect are known, and only these may be answered from memory."""
        call = self.turn[data["tool_call_id"]]
        read = digest({"capability": call.capability, "body": call.body})
        if call.effect and call.dispatched_at:
            self.since_effect.clear()
            self.fresh.clear()
        elif data["status"] == "completed" and call.id in self.fresh:
            self.since_effect.add(read)
        assert data["status"] != "cached" or read in self.since_effect, "answered from an old memory"

    def _check_wanted(self, wanted: ClientCallRequest) -> None:
        assert wanted.tool_call_id not in self.settled, "handed out after its result"
        if wanted.name == "open_page":
            agreed = self.agreed.get(wanted.tool_call_id, set())
            assert digest(wanted.arguments) in agreed, "handed out without a yes to it"
            self.since_effect.clear()
            self.fresh.clear()

    def _check_dispatch(self, call: Dispatch) -> None:
        assert call.tool_call_id not in self.sent, "sent twice"
        assert call.tool_call_id not in self.settled, "sent after its result"
        if call.capability in EFFECTS:
            assert call.arguments_digest == digest(call.body)
            assert call.arguments_digest in self.agreed.get(call.tool_call_id, set()), (
                "sent without a yes to it"
            )
            self.since_effect.clear()
            self.fresh.clear()
        else:
            self.fresh.add(call.tool_call_id)
            assert self.loop.state.limit in ("", "max_calls"), "a read was sent over a limit"
            read = digest({"capability": call.capability, "body": call.body})
            assert read not in self.since_effect, "a read was sent again although its result is known"
        self.sent.append(call.tool_call_id)
        self.running.add(call.tool_call_id)
        assert len(self.running) <= LIMITS.max_parallel

    def check_totals(self) -> None:
        requests = of(AskModel, self.actions)
        assert len(requests) <= LIMITS.max_iterations + 1
        assert [request.tool_choice for request in requests].count("none") <= 1
        assert len(self.sent) <= LIMITS.max_calls
        called = [frame["id"] for frame in self.frames("tool_call")]
        assert len(set(called)) == len(called), "an id was used twice"
        assert len(set(self.settled)) == len(self.settled), "a call has two results"
        for call_id, standings in self.standings.items():
            assert standings[0] == "pending"
            assert [standing in STANDING for standing in standings].count(False) == (call_id in self.settled)
            assert (standings[-1] in STANDING) == (call_id not in self.settled), "a standing after the end"
        waiting = []
        if isinstance(self.ended, Suspend):
            waiting = [one.tool_call_id for one in self.ended.pending]
            waiting += [one.tool_call_id for one in self.ended.wanted]
        assert sorted(self.settled + waiting) == sorted(called), "a call lacks its result"
        if not waiting:
            paired(self.loop.state.messages)


Move = Callable[[Watched], object]
IDS = st.sampled_from(["", "a", "a", "b", "call_2", "x" * 80])
POSTS = st.sampled_from([POST, {**POST, "title": "Other"}, {**POST, "title": ""}, {}, None])
CALLS: st.SearchStrategy[tuple[str, Any]] = st.one_of(
    st.tuples(st.just("search_corpus"), st.sampled_from([QUERY, {}, "text", {"query": "w", "k": 99}])),
    st.tuples(st.just("list_corpora"), st.just({})),
    st.tuples(st.just("market_post"), POSTS),
    st.tuples(st.just("look_at_screen"), st.sampled_from([{}, {"part": 1}])),
    st.tuples(st.just("open_page"), st.sampled_from([{}, {"part": "top"}])),
    st.tuples(st.just("invented"), st.just({})),
)
DECISIONS: st.SearchStrategy[Decision] = st.one_of(
    st.just(Approve()),
    st.builds(Deny, st.sampled_from(["", "no"])),
    st.builds(Edit, POSTS.filter(lambda post: post is not None)),
)


def _some_call(bench: Watched, pick: int) -> str:
    known = [call.id for call in bench.loop.state.calls] + ["unknown"]
    return known[pick % len(known)]


def _some_question(bench: Watched, pick: int) -> str:
    known = [*bench.questions, "unknown"]
    return known[pick % len(known)]


def _some_grant(bench: Watched, pick: int) -> str:
    known = [*bench.grants, "unknown"]
    return known[pick % len(known)]


PICK = st.integers(0, 9)
MOVES: st.SearchStrategy[Move] = st.one_of(
    st.builds(lambda text: lambda b: b.token(text), st.text(max_size=3)),
    st.just(lambda b: b.heard("thought", {"type": "thinking", "signature": "s"})),
    st.just(lambda b: b.heard("served", {"type": "server_call", "name": "web_search"})),
    st.builds(lambda i: lambda b: b.delta(i, "search_corpus", "{"), IDS),
    st.builds(lambda c, i: lambda b: b.call(c[0], c[1], i), CALLS, IDS),
    st.builds(lambda c, i: lambda b: b.call(c[0], c[1], i), CALLS, IDS),
    st.just(lambda b: b.model_done("tool_calls", tokens_in=1, tokens_out=1)),
    st.builds(lambda k: lambda b: b.returned(_some_call(b, k), {"text": "ä" * 300}), PICK),
    st.builds(lambda k: lambda b: b.returned(_some_call(b, k), {}), PICK),
    st.builds(
        lambda k, code: lambda b: b.failed(_some_call(b, k), code),
        PICK,
        st.sampled_from(["timeout", "unauthorized"]),
    ),
    st.builds(lambda k: lambda b: b.progress(_some_call(b, k), current=1), PICK),
    st.builds(lambda k, d: lambda b: b.decided(_some_question(b, k), d), PICK, DECISIONS),
    st.builds(lambda k, d: lambda b: b.decided(_some_question(b, k), d), PICK, DECISIONS),
    st.builds(lambda k, e: lambda b: b.answered(_some_call(b, k), {}, is_error=e), PICK, st.booleans()),
    st.builds(lambda k: lambda b: b.unanswered(_some_call(b, k)), PICK),
    st.builds(lambda k: lambda b: b.granted(_some_grant(b, k)), PICK),
    st.builds(lambda k: lambda b: b.not_granted(_some_grant(b, k)), PICK),
    st.builds(lambda k: lambda b: b.undecided(_some_question(b, k)), PICK),
    st.builds(lambda ms: lambda b: b.later(ms), st.sampled_from([0, 1, 900, 5_000, 9_000, -400])),
)
ENDS: st.SearchStrategy[Move] = st.one_of(
    st.just(lambda b: b.ended or b.cancel()),
    st.just(lambda b: b.model_failed()),
    st.just(lambda b: b.later(0)),
)


def _let_it_finish(bench: Watched) -> None:
    """A world in which everyone does what is due: the model ends, tools return, nobody is there to ask."""
    for _ in range(100):
        if bench.ended is not None:
            return
        if bench.loop.state.phase is Phase.ASKING:
            bench.model_done()
        for call in list(bench.loop.state.calls):
            if call.phase is CallPhase.RUNNING:
                bench.returned(call.id, {})
            elif call.phase is CallPhase.PENDING and call.granting:
                bench.not_granted(call.confirmation_id)
            elif call.phase is CallPhase.PENDING:
                bench.undecided(call.confirmation_id)
            elif call.phase is CallPhase.WANTED:
                bench.unanswered(call.id)
    pytest.fail(f"does not end: {bench.loop.state}")


@pytest.mark.req("TOOL-5", "TOOL-18", "TOOL-24")
@given(moves=st.lists(MOVES, max_size=60), end=ENDS)
@settings(max_examples=400)
def test_every_order_of_events_ends_once_with_every_call_answered(moves: list[Move], end: Move) -> None:
    bench = Watched()
    for move in moves:
        move(bench)
    end(bench)
    _let_it_finish(bench)
    bench.check_totals()
    assert isinstance(bench.ended, Finish | Suspend | Fail)


@pytest.mark.req("TOOL-18")
@given(moves=st.lists(MOVES, max_size=60))
@settings(max_examples=200)
def test_a_deadline_is_always_one_that_moves_the_run_on(moves: list[Move]) -> None:
    bench = Watched()
    for move in moves:
        move(bench)
    for _ in range(3 * LIMITS.max_calls + 3):
        due = bench.loop.next_deadline()
        if due is None:
            return
        bench.later(max(0, due - bench.now))
        assert bench.loop.next_deadline() != due, "the same deadline would come for ever"
    pytest.fail("deadlines without end")


def test_ids_follow_from_the_run() -> None:
    one, other = Bench(), Bench()
    for bench in (one, other):
        bench.call("market_post", POST, "c1")
    (first,), (second,) = of(AskPerson, one.actions), of(AskPerson, other.actions)
    assert first == second
    assert first.pending.run == RUN
    elsewhere = Bench(start=False)
    elsewhere.loop = ToolLoop(new_run(RUN[:-1] + "8", QUESTION, "auto", Limits()), TOOLBOX)
    elsewhere.feed(Start(now=elsewhere.now))
    elsewhere.call("market_post", POST, "c1")
    (third,) = of(AskPerson, elsewhere.actions)
    ids = {first.pending.client_id, first.pending.confirmation_id}
    assert len(ids | {third.pending.client_id, third.pending.confirmation_id}) == 4
