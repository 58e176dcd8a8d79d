"""Runs that outlive their process, with a scripted bus (docs/decisions/0070)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hearthnet.agent.persistence.run_record import Sealer
from hearthnet.agent.persistence.run_store import Stop, Wake
from hearthnet.agent.persistence.run_view import question
from hearthnet.agent.runtime.driver import Outcome, ToolRun
from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit, PendingApproval
from hearthnet.core.errors import HearthNetError
from tests.agent.bench import paired
from tests.agent.keeping import POST, POSTED, QUESTION, WANTS, Node
from tests.agent.scripted import calls, done, gives, says
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.asyncio


def node(*more: Any, tools: Any = None) -> Node:
    return Node(MemoryRuns(), WANTS, [says("Posted."), done()], *more, tools=tools)


async def suspended(node: Node) -> str:
    """A run that waits for a yes, its process gone."""
    answer = await node.executor().run_chat_with_tools(QUESTION)
    assert answer["requires_follow_up"] is True
    return str(answer["run"])


@pytest.mark.req("RUN-5")
async def test_a_suspended_run_is_resumed_with_decisions_by_another_process() -> None:
    home = node()
    run = await suspended(home)
    assert home.posts == []
    message = await home.executor().resume(run, {"p": Approve()})
    assert message == {"role": "assistant", "content": "Posted."}
    (post,) = home.posts
    assert post.run == run
    paired(home.bus.requests[-1]["messages"])
    record = (await home.saved().load(run)).record
    assert record.ended
    assert [effect.status for effect in record.effects] == ["completed"]
    with pytest.raises(HearthNetError, match="has ended") as caught:
        await home.executor().resume(run)
    assert caught.value.code == "bad_request"


@pytest.mark.req("RUN-12")
async def test_the_question_of_a_run_that_reached_a_limit_is_still_the_persons() -> None:
    home = Node(MemoryRuns(), WANTS, [says("Posted."), done()])
    run = await home.executor(max_iterations=1).run_chat_with_tools(QUESTION)
    await home.executor().resume(run["run"], {"p": Approve()})
    (record,) = (await home.saved().listing()).runs
    assert record.state.limit == "max_iterations"
    assert "The limit of 1 rounds" in record.state.messages[-2]["content"]
    assert question(record) == "Lend it."


@pytest.mark.req("RUN-8")
async def test_the_newest_run_is_listed_first() -> None:
    home = Node(MemoryRuns(), WANTS, WANTS, WANTS)
    made = [await suspended(home) for _ in range(3)]
    assert [record.run for record in (await home.saved().listing()).runs] == made[::-1]


@pytest.mark.req("RUN-6")
async def test_a_decision_about_other_arguments_than_those_that_wait_moves_nothing() -> None:
    home = node()
    run = await suspended(home)
    (asked,) = (await home.saved().load(run)).record.pending
    other = msgspec.structs.replace(asked, arguments_digest="blake3:" + "0" * 64)
    await home.saved().decision_log.put(other, Approve(), "test", other.arguments_digest)
    answer = await home.executor().resume(run)
    assert answer["requires_follow_up"] is True
    assert [one["tool_call_id"] for one in answer["pending"]] == ["p"]
    assert home.posts == []


@pytest.mark.req("RUN-5")
async def test_an_effect_is_claimed_in_the_store_before_it_is_sent() -> None:
    seen: list[str] = []

    async def look(_body: dict[str, Any]) -> dict[str, Any]:
        record = (await home.saved().listing()).runs[0]
        seen.extend(effect.status for effect in record.effects)
        return POSTED

    home = node(tools={"market.post@1.0": look})
    run = await suspended(home)
    await home.executor().resume(run, {"p": Approve()})
    assert seen == ["claimed"]


@pytest.mark.req("RUN-7")
async def test_of_two_resumes_at_once_one_goes_on_and_the_other_is_told() -> None:
    home = node()
    run = await suspended(home)
    await home.saved().decide(run, "p", Approve(), via="test")
    results = await asyncio.gather(
        home.executor().resume(run), home.executor().resume(run), return_exceptions=True
    )
    (message,) = [one for one in results if isinstance(one, dict)]
    (error,) = [one for one in results if isinstance(one, HearthNetError)]
    assert message["content"] == "Posted."
    assert (error.code, error.details["rule"]) == ("bad_request", "taken_over")
    assert "hearthnet runs show" in error.message
    assert len(home.posts) == 1


@pytest.mark.req("RUN-7")
async def test_a_process_whose_run_was_taken_over_stops_without_doing_anything_more() -> None:
    """It had sent the effect and waits; the other one repeats it under the same key."""
    hangs, sent = asyncio.Event(), asyncio.Event()

    async def slow(_body: dict[str, Any]) -> dict[str, Any]:
        sent.set()
        await hangs.wait()
        return POSTED

    home = node(tools={"market.post@1.0": slow})
    run = await suspended(home)
    first = asyncio.create_task(home.executor().resume(run, {"p": Approve()}))
    await sent.wait()
    hangs.set()
    second = await home.executor().open_saved(run)
    with pytest.raises(HearthNetError, match="another process drives"):
        await first
    outcome = await second.drive()
    assert outcome.message["content"] == "Posted."
    assert len({post.idempotency_key for post in home.posts}) == 1
    assert len(home.bus.requests) == 2, "only the second process asked the model again"


async def asking(home: Node) -> tuple[ToolRun, asyncio.Task[Outcome]]:
    """A run that is driven, and whose person is asked and says nothing."""
    asked = asyncio.Event()

    async def nobody_answers(_pending: PendingApproval) -> Decision | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    run = home.executor().open_run(QUESTION, decide=nobody_answers)
    driving = asyncio.create_task(run.drive())
    await asked.wait()
    return run, driving


@pytest.mark.req("RUN-6")
async def test_a_decision_from_elsewhere_moves_a_run_that_is_driven() -> None:
    asked, closed, seen = asyncio.Event(), asyncio.Event(), []

    async def nobody_answers(_pending: PendingApproval) -> Decision | None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return None

    async def post(_body: dict[str, Any]) -> dict[str, Any]:
        seen.append(closed.is_set())
        return POSTED

    home = node(tools={"market.post@1.0": post})
    run = home.executor().open_run(QUESTION, decide=nobody_answers)
    driving = asyncio.create_task(run.drive())
    await asked.wait()
    taken = await home.saved().decide(run.run, "p", Approve(), via="elsewhere")
    assert not taken.repeated
    assert (await driving).message["content"] == "Posted."
    assert len(home.posts) == 1
    assert seen == [True], "the question here is closed before the effect"


@pytest.mark.req("RUN-6")
async def test_what_is_decided_here_is_written_down_and_the_first_word_stands() -> None:
    home = node()

    async def too_late(pending: PendingApproval) -> Decision:
        await home.saved().decide(pending.run, "p", Deny("no, really"), via="elsewhere")
        return Approve()

    await home.executor(via="terminal").run_chat_with_tools(QUESTION, decide=too_late)
    assert home.posts == []
    assert "no, really" in home.bus.requests[-1]["messages"][-1]["content"]


class Unheard(MemoryRuns):
    """Its first word about a decision is lost."""

    lost = 1

    async def notify(self, run: str) -> None:
        if self.lost:
            self.lost -= 1
            raise HearthNetError("partition", "the server died")
        await super().notify(run)


@pytest.mark.req("RUN-6")
async def test_a_decision_that_is_repeated_reaches_the_run_though_the_first_was_not_heard() -> None:
    home = Node(Unheard(), WANTS, [done()])
    answers: list[str] = []

    async def decide(pending: PendingApproval) -> Decision | None:
        with pytest.raises(HearthNetError, match="died"):
            await home.saved().decide(pending.run, "p", Approve(), via="elsewhere")
        again = await home.saved().decide(pending.run, "p", Approve(), via="elsewhere")
        answers.append(again.signed.word)
        await asyncio.Event().wait()
        return None

    outcome = await asyncio.wait_for(home.executor().open_run(QUESTION, decide=decide).drive(), 30)
    assert outcome.done is not None
    assert answers == ["approved"]
    assert len(home.posts) == 1


@pytest.mark.req("RUN-6")
async def test_an_edit_is_kept_with_what_it_sends() -> None:
    home = node()
    run = await suspended(home)
    with pytest.raises(HearthNetError, match="invalid_arguments") as caught:
        await home.saved().decide(run, "p", Edit({**POST, "title": ""}), via="test")
    assert caught.value.code == "bad_request"
    taken = await home.saved().decide(run, "p", Edit({**POST, "title": "Sieve"}), via="test")
    assert taken.signed.word == "edited"
    await home.executor().resume(run)
    (post,) = home.posts
    assert post.body["input"]["title"] == "Sieve"
    assert post.approval.arguments_digest == taken.signed.digest != taken.signed.shown


@pytest.mark.req("RUN-6")
async def test_an_edit_whose_answer_was_lost_is_repeated_after_it_was_carried_out() -> None:
    """Its author still has the digest of what was shown; the run has that of what was sent."""
    home = node()
    run = await suspended(home)
    edit, saved = Edit({**POST, "title": "Sieve"}), home.saved()
    first = await saved.decide(run, "p", edit, via="test")
    shown = first.signed.shown
    await home.executor().resume(run)
    assert (await saved.load(run)).record.effects[0].asked.arguments_digest != shown
    assert await saved.decide(run, "p", edit, via="test", shown=shown) == (first.signed, True)
    with pytest.raises(HearthNetError, match="look again"):
        await saved.decide(run, "p", edit, via="test", shown="blake3:other")


@pytest.mark.req("RUN-6")
async def test_an_edit_at_the_terminal_that_is_not_valid_is_asked_again() -> None:
    home = node()
    answers: list[Decision] = [Edit({**POST, "title": ""}), Edit({**POST, "title": "Sieve"})]
    problems: list[str] = []

    async def decide(pending: PendingApproval) -> Decision:
        problems.append(pending.problem)
        return answers.pop(0)

    await home.executor().run_chat_with_tools(QUESTION, decide=decide)
    assert [bool(problem) for problem in problems] == [False, True]
    assert [post.body["input"]["title"] for post in home.posts] == ["Sieve"]


@pytest.mark.req("RUN-8")
async def test_wrong_decisions_are_refused_with_what_to_do() -> None:
    home = node()
    run = await suspended(home)
    saved = home.saved()
    for given, code, words in (
        (("01JZZZZZZZZZZZZZZZZZZZZZ09", "p"), "not_found", "hearthnet runs list"),
        (("no run at all", "p"), "not_found", "hearthnet runs list"),
        ((run, "q"), "not_found", "it has: p"),
    ):
        with pytest.raises(HearthNetError, match=words) as caught:
            await saved.decide(*given, Approve(), via="test")
        assert caught.value.code == code
    with pytest.raises(HearthNetError, match="look again") as caught:
        await saved.decide(run, "p", Approve(), via="test", shown="blake3:other")
    assert caught.value.code == "unauthorized"
    await home.saved().cancel(run)
    with pytest.raises(HearthNetError, match="does not wait any more: cancelled"):
        await saved.decide(run, "p", Approve(), via="test")
    assert home.posts == []


@pytest.mark.req("RUN-8")
async def test_a_late_yes_is_refused_and_a_late_no_is_kept() -> None:
    home = node()
    run = await suspended(home)
    (asked,) = (await home.saved().load(run)).record.pending
    late = home.saved(clock=lambda: asked.expires_at)
    assert await late.waiting((await late.load(run)).record) == []
    with pytest.raises(HearthNetError, match="has expired") as caught:
        await late.decide(run, "p", Approve(), via="test")
    assert caught.value.code == "expired"
    assert (await late.decide(run, "p", Deny(), via="test")).signed.word == "denied"
    await home.executor().resume(run)
    assert home.posts == []
    record = (await home.saved().load(run)).record
    assert [effect.status for effect in record.effects] == ["denied"]


@pytest.mark.req("RUN-9")
async def test_cancel_ends_a_run_that_nobody_drives_and_every_call_has_a_result() -> None:
    home = node()
    run = await suspended(home)
    record = await home.saved().cancel(run)
    assert [effect.status for effect in record.effects] == ["cancelled"]
    paired(record.state.messages)
    with pytest.raises(HearthNetError, match="has ended"):
        await home.saved().cancel(run)
    # A new message goes on from there.
    asked = [*record.state.messages, {"role": "user", "content": "Something else, then."}]
    await home.executor().run_chat_with_tools({"params": {}, "input": {"messages": asked}})
    paired(home.bus.requests[-1]["messages"])


@pytest.mark.req("RUN-9")
async def test_cancel_from_elsewhere_ends_a_run_that_is_driven() -> None:
    home = node()
    run, driving = await asking(home)
    await home.saved().cancel(run.run)
    with pytest.raises(HearthNetError, match="another process drives"):
        await driving
    assert home.posts == []


@pytest.mark.req("RUN-10")
async def test_who_approved_is_one_question() -> None:
    home = node()
    run = await suspended(home)
    await home.saved().decide(run, "p", Approve(), via="runs")
    await home.saved().decide(run, "p", Deny(), via="somebody later")
    await home.executor().resume(run)
    page = await home.saved().page(run)
    (effect,) = page.record.effects
    (said,) = page.decisions.values()
    assert (said.word, said.by, said.via) == (
        "approved",
        home.peer.identity.node_id,
        "runs",
    )
    assert said.shown == said.digest == effect.asked.arguments_digest
    assert 0 < effect.proposed_at <= said.time <= effect.claimed_at <= effect.ended_at
    assert effect.result.startswith("blake3:")
    (entry,) = page.log
    assert (entry.kind, entry.code, entry.call) == ("decided", "approved", said.confirmation_id)
    assert (entry.run, entry.digest, entry.principal) == (run, said.digest, said.by)


@pytest.mark.req("RUN-10")
async def test_a_decision_is_on_record_once_however_many_say_it_at_once() -> None:
    home = node()
    run = await suspended(home)
    desks = [home.saved() for _ in range(5)]
    taken = await asyncio.gather(*(saved.decide(run, "p", Approve(), via="test") for saved in desks))
    assert len({one.signed for one in taken}) == 1
    assert sum(not one.repeated for one in taken) == 1
    await home.executor().resume(run)
    assert [entry.kind for entry in (await home.saved().page(run)).log] == ["decided"]


@pytest.mark.req("RUN-11")
async def test_a_run_that_calls_nothing_is_not_kept_and_one_that_reads_is() -> None:
    home = Node(
        MemoryRuns(),
        [says("Hello."), done()],
        [calls("search_corpus", {"query": "w"}), done("tool_calls")],
        [says("Found."), done()],
        tools={"rag.query@1.0": gives({"chunks": []})},
    )
    await home.executor().run_chat_with_tools(QUESTION)
    assert (await home.saved().listing()).runs == []
    await home.executor().run_chat_with_tools(QUESTION)
    (record,) = (await home.saved().listing()).runs
    assert record.ended
    assert record.effects == []


async def test_an_executor_without_a_store_resumes_nothing() -> None:
    home = node()
    home.store = None  # type: ignore[assignment]
    assert (await home.executor().run_chat_with_tools(QUESTION))["requires_follow_up"] is True
    with pytest.raises(HearthNetError, match="keeps no runs"):
        await home.executor().resume("01JZZZZZZZZZZZZZZZZZZZZZ09")


class Watched(MemoryRuns):
    """A store that counts its watchers."""

    watchers = 0
    most = 0

    async def watch(self, run: str, wake: Wake) -> Stop:
        stop = await super().watch(run, wake)
        self.watchers += 1
        self.most = max(self.most, self.watchers)

        async def stopped() -> None:
            self.watchers -= 1
            await stop()

        return stopped


@pytest.mark.req("RUN-6")
async def test_a_run_is_watched_while_it_is_driven_and_no_longer() -> None:
    store = Watched()
    home = Node(store, WANTS, [says("Posted."), done()])
    run = await suspended(home)
    assert (store.most, store.watchers) == (1, 0)
    await home.executor().resume(run, {"p": Approve()})
    assert (store.most, store.watchers) == (1, 0)


class Full(MemoryRuns):
    """A store that takes nothing."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    async def save(self, run: str, data: bytes, revision: int) -> int:
        raise HearthNetError(self.code, "there is no room")


READS = [calls("search_corpus", {"query": "w"}, "r"), done("tool_calls")]


@pytest.mark.req("RUN-11")
async def test_where_the_disk_is_full_a_run_that_only_reads_goes_on_and_one_with_effects_ends() -> None:
    tools: Any = {"rag.query@1.0": gives({"chunks": []})}
    full = Node(Full("capacity_exceeded"), READS, [says("Found."), done()], tools=tools)
    assert (await full.executor().run_chat_with_tools(QUESTION))["content"] == "Found."
    acting = Node(Full("capacity_exceeded"), WANTS)

    async def nobody_is_asked(_pending: PendingApproval) -> Decision:
        raise AssertionError("asked about a run that cannot be kept")

    with pytest.raises(HearthNetError, match="no room") as ended:
        await acting.executor().run_chat_with_tools(QUESTION, decide=nobody_is_asked)
    assert (ended.value.code, acting.posts) == ("capacity_exceeded", [])
    away = Node(Full("partition"), READS, tools=tools)
    with pytest.raises(HearthNetError, match="no room") as ended:
        await away.executor().run_chat_with_tools(QUESTION)
    assert ended.value.code == "partition"


@pytest.mark.req("RUN-5", "RUN-13")
async def test_a_large_run_is_packed_and_one_of_another_node_is_refused() -> None:
    home = node()
    long = "Rainwater. " * 60_000
    body = {"params": {}, "input": {"messages": [{"role": "user", "content": long}]}}
    run = str((await home.executor().run_chat_with_tools(body))["run"])
    kept = await home.store.load(run)
    assert kept is not None
    assert len(kept.data) < 100_000
    assert (await home.saved().load(run)).record.state.messages[0]["content"] == long
    other = node()
    other.store = home.store
    with pytest.raises(HearthNetError, match="was altered") as caught:
        await other.saved().load(run)
    assert caught.value.code == "invalid_signature"
    assert (await other.saved().listing()).altered == [run]


@pytest.mark.req("RUN-8")
async def test_a_run_older_than_a_day_and_one_whose_tools_changed_are_not_gone_on_with() -> None:
    home = node()
    run = await suspended(home)
    record, revision = await home.saved().load(run)
    late = home.saved(clock=lambda: record.expires_at)
    with pytest.raises(HearthNetError, match="older than a day") as caught:
        await late.cancel(run)
    assert caught.value.code == "expired"
    record.contracts = "blake3:other"
    await home.store.save(run, Sealer(record, home.peer.identity.runs_key()).seal(record), revision)
    with pytest.raises(HearthNetError, match="have changed") as caught:
        await home.executor().resume(run)
    assert caught.value.code == "schema_mismatch"


@pytest.mark.req("RUN-7")
async def test_a_store_that_cannot_wake_others_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(_run: str) -> None:
        raise HearthNetError("partition", "the store is away")

    home = node()
    run = await suspended(home)
    await home.saved().decide(run, "p", Approve(), via="test")
    monkeypatch.setattr(home.store, "notify", gone)
    assert (await home.executor().resume(run))["content"] == "Posted."


@pytest.mark.req("RUN-6")
async def test_a_decision_that_cannot_be_read_now_leaves_the_run_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = node()
    asked, looked = asyncio.Event(), asyncio.Event()

    async def nobody_answers(_pending: PendingApproval) -> Decision | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    async def away(_run: str) -> None:
        looked.set()
        raise HearthNetError("partition", "the store is away")

    run = home.executor().open_run(QUESTION, decide=nobody_answers)
    driving = asyncio.create_task(run.drive())
    await asked.wait()
    with monkeypatch.context() as patched:
        patched.setattr(home.store, "load", away)
        await home.store.notify(run.run)
        await looked.wait()
    await home.saved().decide(run.run, "p", Approve(), via="elsewhere")
    assert (await driving).message["content"] == "Posted."
