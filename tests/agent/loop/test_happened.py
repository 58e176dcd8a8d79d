"""What happened, by signed records alone: the model's words and unsigned answers count for nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.events import Fail, Finish, Resume, Suspend, ToolFailed, ToolReturned
from hearthnet.agent.loop.happened import happened, of_call
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import Limits, RunState
from hearthnet.agent.persistence.run_record import RunRecord, Sealer, unseal
from hearthnet.agent.tools.types import Approve, Deny
from hearthnet.trust.keys import Identity
from tests.agent.bench import POST, PROVIDER, QUERY, TOOLBOX, Bench, asked, only

pytestmark = pytest.mark.req("ATTACK-47")
HOME, CALL = "ed25519:home", "01JZZZZZZZZZZZZZZZZZZZZZ01"
NOTHING = [{"state": "nothing"}]
ABOUT = {"tool_call_id": "p", "name": "market_post", "capability": "market.post@1.0", "home": PROVIDER}
CLAIM = "I posted it; event 01JZZZZZZZZZZZZZZZZZZZZZ99."


def posting() -> Bench:
    """A run whose model has asked for a post that a person approved: it is under way."""
    bench = Bench()
    question = asked(bench.call("market_post", POST, "p")).pending
    bench.model_done("tool_calls")
    bench.decided(question.confirmation_id, Approve())
    return bench


def finished(bench: Bench) -> list[dict[str, Any]]:
    """What happened, as the end of the run says."""
    bench.token("All is well.")
    found: list[dict[str, Any]] = only(Finish, bench.model_done()).done["happened"]
    return found


def returned(bench: Bench, **record: Any) -> Bench:
    bench.feed(ToolReturned(now=bench.now, tool_call_id="p", output={"event_id": "e"}, meta={}, **record))
    return bench


def failed(bench: Bench, code: str, **record: Any) -> Bench:
    bench.feed(ToolFailed(now=bench.now, tool_call_id="p", code=code, message="no", **record))
    return bench


def test_claims_of_the_model_and_its_provider_are_nothing() -> None:
    bench = Bench()
    bench.token(CLAIM)
    forged = [{"state": "done", "capability": "market.post@1.0", "home": HOME, "entry": CALL}]
    assert only(Finish, bench.model_done(happened=forged)).done["happened"] == NOTHING


def test_reads_are_no_effects() -> None:
    bench = Bench()
    bench.call("search_corpus", QUERY, "c")
    bench.model_done("tool_calls")
    bench.returned("c", {"chunks": []})
    assert finished(bench) == NOTHING


@pytest.mark.parametrize(
    ("bench", "end"),
    [
        (returned(posting(), signed_by=HOME, entry=CALL), {"state": "done", "home": HOME, "entry": CALL}),
        (returned(posting()), {"state": "unknown"}),
        (
            returned(posting(), signed_by=HOME, entry=CALL, is_error=True),
            {"state": "unknown", "home": HOME, "entry": CALL},
        ),
        (
            failed(posting(), "bad_request", signed_by=HOME, entry=CALL),
            {"state": "refused", "home": HOME, "entry": CALL},
        ),
        (failed(posting(), "bad_request"), {"state": "unknown"}),
        (failed(posting(), "not_found", unsent=True), {"state": "refused"}),
        (failed(posting(), "partition"), {"state": "unknown"}),
        (
            failed(posting(), "outcome_unknown", signed_by=HOME, entry=CALL),
            {"state": "unknown", "home": HOME, "entry": CALL},
        ),
    ],
    ids=["signed", "unsigned", "tool error", "signed no", "unsigned no", "unsent", "lost", "provider unsure"],
)
def test_an_effect_is_what_its_provider_signed(bench: Bench, end: dict[str, str]) -> None:
    assert finished(bench) == [{**ABOUT, **end}]


def test_a_call_that_waits_or_was_denied_was_sent_to_nobody() -> None:
    bench = Bench()
    question = asked(bench.call("market_post", POST, "p")).pending
    bench.model_done("tool_calls")
    only(Suspend, bench.undecided(question.confirmation_id))
    (frame,) = bench.frames("suspended")
    assert frame["happened"] == [{**ABOUT, "state": "waiting"}]
    denied = Bench()
    question = asked(denied.call("market_post", POST, "p")).pending
    denied.model_done("tool_calls")
    denied.decided(question.confirmation_id, Deny())
    assert finished(denied) == [{**ABOUT, "state": "refused"}]


def test_what_is_under_way_is_unknown_and_a_read_is_not_listed() -> None:
    bench = posting()
    assert happened(bench.loop.state) == [{**ABOUT, "state": "unknown"}]
    reading = Bench()
    reading.call("search_corpus", QUERY, "c")
    assert happened(reading.loop.state) == NOTHING


def test_a_run_that_is_cancelled_or_fails_says_it_too() -> None:
    bench = posting()
    assert only(Finish, bench.cancel()).done["happened"] == [{**ABOUT, "state": "unknown"}]
    failing = returned(posting(), signed_by=HOME, entry=CALL)
    error = only(Fail, failing.model_failed()).error
    done = [{**ABOUT, "state": "done", "home": HOME, "entry": CALL}]
    assert error["details"]["happened"] == done
    assert failing.frames("error") == [error]


def test_what_a_client_ran_itself_has_no_record() -> None:
    bench = Bench()
    question = asked(bench.call("open_page", {}, "o")).pending
    bench.model_done("tool_calls")
    bench.decided(question.confirmation_id, Approve())
    bench.answered("o", "I opened it.")
    assert finished(bench) == [{"tool_call_id": "o", "name": "open_page", "state": "unknown"}]


def test_an_effect_that_was_refused_by_a_limit_is_listed() -> None:
    bench = Bench(limits=Limits(max_calls=0))
    bench.call("market_post", POST, "p")
    bench.model_done("tool_calls")
    assert finished(bench) == [
        {"tool_call_id": "p", "name": "market_post", "capability": "market.post@1.0", "state": "refused"}
    ]


@pytest.mark.parametrize("end", ["unsent", "refused", "cancelled", "done"])
def test_what_an_earlier_process_sent_is_never_refused(end: str) -> None:
    bench = posting()
    saved = msgspec.json.encode(bench.loop.state)
    bench.loop = ToolLoop(msgspec.json.decode(saved, type=RunState), TOOLBOX)
    bench.actions = []
    bench.feed(Resume(now=bench.now))
    if end == "cancelled":
        found = only(Finish, bench.cancel()).done["happened"]
    elif end == "done":
        found = finished(returned(bench, signed_by=HOME, entry=CALL))
    else:
        record = {"unsent": True} if end == "unsent" else {"signed_by": HOME, "entry": CALL}
        found = finished(failed(bench, "token_expired", **record))
    assert [one["state"] for one in found] == ["done" if end == "done" else "unknown"]


def recorded(bench: Bench, identity: Identity) -> RunRecord:
    return RunRecord(
        request={},
        tools=[],
        run=bench.loop.state.run,
        owner=identity.node_id,
        principal="",
        state=bench.loop.state,
        contracts="",
        per_tool_seconds=1,
        started_at=1,
    )


def reread(record: RunRecord, identity: Identity) -> RunRecord:
    """The record as another process reads it."""
    return unseal(Sealer(record, identity.runs_key()).seal(record), record.run, identity)


def test_effects_of_a_run_without_a_list_are_unknown() -> None:
    """As a version saved it that kept no list."""
    bench, identity = posting(), Identity.generate()
    record = recorded(bench, identity)
    calls = list(bench.loop.state.calls)
    record.note(calls)
    returned(bench, signed_by=HOME, entry=CALL)
    record.note(calls)
    record.state.effects, record.state.listed = [], False
    read = reread(record, identity)
    assert happened(read.state) == [{**ABOUT, "state": "unknown"}]
    assert len(reread(read, identity).state.effects) == 1


def test_a_denied_effect_of_a_run_without_a_list_is_refused() -> None:
    bench, identity = Bench(), Identity.generate()
    question = asked(bench.call("market_post", POST, "p")).pending
    bench.model_done("tool_calls")
    record, calls = recorded(bench, identity), list(bench.loop.state.calls)
    record.note(calls)
    bench.decided(question.confirmation_id, Deny())
    record.note(calls)
    record.state.effects, record.state.listed = [], False
    assert happened(reread(record, identity).state) == [{**ABOUT, "state": "refused"}]


def test_effects_are_kept_with_the_run() -> None:
    bench, identity = returned(posting(), signed_by=HOME, entry=CALL), Identity.generate()
    bench.loop = ToolLoop(reread(recorded(bench, identity), identity).state, TOOLBOX)
    bench.actions = []
    bench.feed(Resume(now=bench.now))
    assert finished(bench) == [{**ABOUT, "state": "done", "home": HOME, "entry": CALL}]


def test_calls_without_a_model_are_judged_by_the_same_rule() -> None:
    states = [
        of_call("market.post@1.0", HOME, entry, code)[0]["state"]
        for entry, code in ((CALL, ""), ("", ""), (CALL, "bad_request"), (CALL, None), (CALL, "timeout"))
    ]
    assert states == ["done", "unknown", "refused", "unknown", "unknown"]
