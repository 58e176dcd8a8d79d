"""`hearthnet runs` against a running node: what waits is shown, decided about, and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands.test_ask import BOX, offer
from tests.cli.conftest import Here
from tests.cli.test_node import LISTING
from tests.helpers.scripted_model import Say, ScriptedModel
from tests.helpers.shell import Shell

pytestmark = pytest.mark.e2e


class Runs:
    """Commands at the running node, in this process."""

    def __init__(self, here: Here, shell: Shell, model: ScriptedModel) -> None:
        self.here = here
        self.shell = shell
        self.model = model

    def __call__(self, *arguments: str) -> int:
        return self.here(*arguments, "--home", self.shell.home)

    def json(self, *arguments: str) -> Any:
        return self.here.json(*arguments, "--home", self.shell.home)

    @property
    def out(self) -> str:
        return self.here.out

    @property
    def err(self) -> str:
        return self.here.err

    def suspended(self, title: str, *more: Any) -> str:
        """A question whose model wants to post something, with nobody to ask; the run's id."""
        question = f"I can lend it: {title}."
        self.model.turns[question] = [Say(calls=(offer(title), *more)), Say("That is settled.")]
        assert self("ask", question, "--tool", "market_post") == 7
        words = self.err.split()
        run = words[words.index("approve") + 1]
        assert f"hearthnet runs resume {run} " in self.err
        return run

    def titles(self) -> list[str]:
        posts = self.json("call", "market.list", "--body", LISTING)["output"]["posts"]
        return [one["title"] for one in posts]


@pytest.fixture
def runs(here: Here, shell: Shell, model: ScriptedModel) -> Runs:
    return Runs(here, shell, model)


@pytest.mark.req("RUN-12", "RUN-5", "RUN-6")
def test_what_waits_is_listed_shown_approved_and_resumed(runs: Runs) -> None:
    run = runs.suspended("Ladder for tomorrow")
    (listed,) = [one for one in runs.json("runs", "list") if one["run"] == run]
    (asked,) = listed["pending"]
    assert listed["state"] == "suspended"
    assert (asked["name"], asked["capability"]) == ("market_post", "market.post@1.0")
    assert asked["body"]["input"]["title"] == "Ladder for tomorrow"
    assert runs("runs", "list") == 0
    assert "1 call to decide about" in runs.out
    assert runs("runs", "show", run) == 0
    assert '"Ladder for tomorrow"' in runs.out
    assert "asked until " in runs.out
    assert asked["arguments_digest"][:23] in runs.out
    assert runs("runs", "approve", run) == 7
    assert "say it with --yes" in runs.err
    assert "Ladder for tomorrow" not in runs.titles()
    assert runs("runs", "approve", run, "--yes") == 0
    assert f"hearthnet runs resume {run}" in runs.out
    assert runs("runs", "approve", run, asked["tool_call_id"]) == 0
    assert runs.out.startswith("it was approved before"), "and nobody is asked about it again"
    assert runs("runs", "deny", run, asked["tool_call_id"]) == 4
    assert runs.out.startswith("it was approved before")
    assert runs("runs", "resume", run) == 0
    assert 'tool market_post {"category":"offer","title":"Ladder for tomorrow"' in runs.out
    assert "That is settled." in runs.out
    assert runs.titles().count("Ladder for tomorrow") == 1
    assert runs("runs", "approve", run, asked["confirmation_id"]) == 0
    assert runs("runs", "list") == 0
    assert runs("runs", "resume", run) == 2
    assert "has ended" in runs.err


@pytest.mark.req("RUN-10", "RUN-12")
def test_who_approved_is_one_question_with_its_proof_in_the_audit_log(runs: Runs) -> None:
    run = runs.suspended("Sieve, fine")
    said = runs.json("runs", "approve", run, "--yes")
    assert (said["word"], said["repeated"], said["via"]) == ("approved", False, "runs")
    assert runs("runs", "resume", run, "--frames") == 0
    page = runs.json("runs", "show", run)
    (call,) = page["calls"]
    assert (page["state"], call["status"]) == ("ended", "completed")
    assert call["decided"]["digest"] == call["arguments_digest"] == call["executed"]["digest"]
    assert call["decided"]["by"] == runs.json("status")["node_id"]
    assert call["outcome"]["code"] == ""
    assert 0 < call["proposed_at"] <= call["decided"]["time"] <= call["claimed_at"] <= call["ended_at"]
    assert runs("runs", "show", run) == 0
    assert "  approved " in runs.out
    assert f"executed {call['arguments_digest'][:23]}" in runs.out
    assert "result done" in runs.out
    assert runs("audit", "verify") == 0


@pytest.mark.req("RUN-12", "RUN-8")
def test_denied_it_is_never_sent_and_the_model_is_told(runs: Runs) -> None:
    run = runs.suspended("Axe, sharp")
    assert runs("runs", "deny", run, "--reason", "not\x1b[2J today") == 0
    assert runs("runs", "show", run) == 0
    assert "not\\x1b[2J today" in runs.out
    assert runs("runs", "list") == 0
    assert "decided, to be resumed" in runs.out
    assert runs("runs", "approve", run, "--yes") == 5
    assert f"no call of the run {run} waits for a decision" in runs.err
    assert runs("runs", "resume", run) == 4
    assert "denied" in json.dumps(runs.model.requests[-1]["messages"][-1])
    assert "Axe, sharp" not in runs.titles()


@pytest.mark.req("RUN-12", "RUN-9")
def test_cancelled_nothing_is_sent(runs: Runs) -> None:
    run = runs.suspended("Rope, long")
    assert runs.json("runs", "cancel", run)["state"] == "ended"
    assert runs("runs", "cancel", run) == 2
    assert "has ended" in runs.err
    other = runs.suspended("Rope, short")
    assert runs("runs", "cancel", other) == 0
    assert "nothing that waited was sent" in runs.out
    assert not [title for title in runs.titles() if title.startswith("Rope, ")]


@pytest.mark.req("RUN-12")
def test_of_several_calls_one_is_named_and_the_rest_is_asked_when_the_run_goes_on(runs: Runs) -> None:
    run = runs.suspended("Saw", offer("Hammer"))
    assert runs("runs", "approve", run, "--yes") == 2
    assert "several calls wait, name one" in runs.err
    assert runs("runs", "deny", run, "call_of_another") == 5
    assert "has no call" in runs.err
    calls = [call["tool_call_id"] for call in runs.json("runs", "show", run)["calls"]]
    assert runs("runs", "approve", run, calls[0], "--yes") == 0
    with runs.shell.terminal("runs", "resume", run) as screen:
        assert '"Hammer"' in screen.expect("[a]pprove, [e]dit or [r]efuse? ")
        screen.type("r\n")
        assert screen.end() == 4
    found = runs.titles()
    assert (found.count("Saw"), found.count("Hammer")) == (1, 0)


@pytest.mark.req("RUN-12")
def test_what_is_not_there_is_said(runs: Runs, here: Here, tmp_path: Path) -> None:
    for command in ("show", "approve", "deny", "resume", "cancel"):
        assert runs("runs", command, "01JZZZZZZZZZZZZZZZZZZZZZ09") == 5
        assert "hearthnet runs list" in runs.err
    assert here("runs", "list", "--home", tmp_path) == 3
    assert f"no node is running in {tmp_path};" in here.err
    assert here("runs") == 0
    assert "hearthnet runs approve RUN" in here.out


@pytest.mark.req("RUN-12", "TOOL-6")
def test_other_arguments_are_checked_shown_and_sent(runs: Runs, tmp_path: Path) -> None:
    run = runs.suspended("Spade, blunt")
    (asked,) = runs.json("runs", "show", run)["pending"]
    other = {**asked["arguments"], "title": "Spade, sharp"}
    for given, said in (
        ("{", "malformed JSON in --arguments: line 1, column 2"),
        ("[]", "--arguments must be one object with all arguments"),
        ('{"title": "x"}', "invalid_arguments: /: "),
    ):
        assert runs("runs", "approve", run, "--arguments", given, "--yes") == 2
        assert said in runs.err
    assert runs("runs", "approve", run, "--edit", str(tmp_path / "none"), "--yes") == 5
    assert f"there is no file {tmp_path / 'none'}" in runs.err
    assert runs("runs", "approve", run, "--edit", "x", "--arguments", "{}") == 2
    assert "give --edit or --arguments, not both" in runs.err
    file = tmp_path / "other.json"
    file.write_text(json.dumps(other))
    assert runs("runs", "approve", run, "--edit", str(file)) == 7
    assert '"Spade, sharp"' in runs.out
    assert asked["arguments_digest"][:23] not in runs.out
    said = runs.json("runs", "approve", run, "--edit", str(file), "--yes")
    assert (said["word"], said["via"], said["arguments"]) == ("edited", "runs", other)
    assert runs("runs", "approve", run, asked["tool_call_id"], "--yes") == 4
    assert runs.out.startswith("it was edited before")
    assert runs("runs", "resume", run) == 0
    found = runs.titles()
    assert (found.count("Spade, sharp"), found.count("Spade, blunt")) == (1, 0)


@pytest.mark.req("RUN-12", "TOOL-49")
def test_that_the_model_has_read_what_others_wrote_is_said_where_somebody_decides(runs: Runs) -> None:
    question = "Look, then lend the bucket."
    runs.model.turns[question] = [
        Say(calls=(("list_marketplace", {}),)),
        Say(calls=(offer("Bucket, red"),)),
        Say("That is settled."),
    ]
    assert runs("ask", question, "--tool", "list_marketplace", "--tool", "market_post") == 7
    words = runs.err.split()
    run = words[words.index("approve") + 1]
    told = "the model has read what others wrote, which may have led it"
    assert runs("runs", "show", run) == 0
    assert told in runs.out
    assert runs("runs", "approve", run) == 7
    assert told in runs.out
    assert runs.json("runs", "show", run)["untrusted"] is True
    assert runs("runs", "cancel", run) == 0
    trusting = runs.suspended("Bucket, blue")
    assert runs("runs", "show", trusting) == 0
    assert told not in runs.out
    assert runs.json("runs", "show", trusting)["untrusted"] is False
    assert runs("runs", "cancel", trusting) == 0


@pytest.mark.req("RUN-12")
def test_a_run_goes_on_with_what_its_model_says_of_itself(runs: Runs) -> None:
    assert runs("ask", "I can lend a sledge", "--tool", "market_post", *BOX) == 7
    words = runs.err.split()
    run = words[words.index("approve") + 1]
    assert runs("runs", "deny", run) == 0
    assert runs("runs", "resume", run) == 4
    assert "there to try things out" in runs.out
    assert "only when one is demanded" not in runs.out
