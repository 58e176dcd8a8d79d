"""A run that waits at one computer of a person is seen, decided about and gone on with at the other one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cli.commands.test_ask import offer
from tests.cli.test_node import LISTING
from tests.e2e.test_joining import a_home, quick
from tests.e2e.test_second_node import devices
from tests.helpers.scripted_model import Say, ScriptedModel
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

pytestmark = pytest.mark.e2e


@dataclass
class Two:
    """Two computers of a person with one model; the node of the second one runs."""

    desk: Shell
    laptop: Shell
    model: ScriptedModel

    def suspended(self, at: Shell, title: str) -> str:
        """A question whose model wants to post something, with nobody to ask; the run's id."""
        question = f"I can lend it: {title}."
        self.model.turns[question] = [Say(calls=(offer(title),)), Say("That is settled.")]
        done = at.run("ask", question, "--tool", "market_post")
        assert done.returncode == 7, done
        words = done.stderr.split()
        return words[words.index("approve") + 1]

    def seen(self, at: Shell, run: str) -> dict[str, Any] | None:
        """The run in the list of a computer."""
        return next((dict(one) for one in quick(at, "runs", "list") if one["run"] == run), None)


def titles(at: Shell) -> list[str]:
    """The titles of the posts at a computer."""
    own = quick(at, "status")["node_id"]
    posts = quick(at, "call", "market.list", "--body", LISTING, "--node", own)["output"]["posts"]
    return [one["title"] for one in posts]


def word_of(at: Shell, run: str) -> str:
    """The decision about the one call of a run, as a computer knows it."""
    (call,) = quick(at, "runs", "show", run)["calls"]
    return str((call["decided"] or {}).get("word"))


def traces(at: Shell, run: str) -> set[str]:
    """The traces of the calls of a run that a computer knows of."""
    return {one["trace"] for one in quick(at, "trace") if one["run"] == run}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Both nodes, the first one to be started by each test."""
    folder = tmp_path_factory.mktemp("runs")
    with ScriptedModel() as model:
        desk, laptop = (a_home(folder, name, "auth", "llm", "market") for name in ("Desk", "Laptop"))
        for shell in (desk, laptop):
            settings = shell.home / "hearthnet.toml"
            settings.write_text(f"{settings.read_text()}\n{model.config}")
        with desk.node():
            wait_for_sync(lambda: devices(desk) == ["Desk"], what="the person")
            text = quick(desk, "device", "add", "--name", "Laptop")["invite"]
            done = laptop.run("device", "join", stdin=text)
            assert done.returncode == 0, done.stderr
        with laptop.node():
            yield Two(desk, laptop, model)


@pytest.mark.req("PERSON-50", "PERSON-51")
def test_what_waits_at_one_is_decided_and_gone_on_with_at_the_other(two: Two) -> None:
    desk, laptop = two.desk, two.laptop
    with desk.node():
        wait_for_sync(lambda: devices(desk) == devices(laptop) == ["Desk", "Laptop"], what="both devices")
        run = two.suspended(desk, "Ladder for tomorrow")
        listed = two.seen(laptop, run)
        assert listed is not None
        assert (listed["device"], listed["state"]) == ("Desk", "suspended")
        (call,) = quick(laptop, "runs", "show", run)["calls"]
        assert call["body"]["input"]["title"] == "Ladder for tomorrow"

        decided = quick(laptop, "runs", "approve", run, "--yes")
        assert (decided["word"], decided["repeated"]) == ("approved", False)
        again = desk.run("runs", "deny", run, call["tool_call_id"])
        assert (again.returncode, again.stdout.startswith("it was approved before")) == (4, True), again
        (call,) = quick(desk, "runs", "show", run)["calls"]
        assert call["decided"]["by"] == quick(laptop, "status")["node_id"]

        done = laptop.run("runs", "resume", run)
        assert (done.returncode, "taken over from Desk" in done.stderr) == (0, True), done
        assert "That is settled." in done.stdout
        assert titles(desk).count("Ladder for tomorrow") == 1
        assert "Ladder for tomorrow" not in titles(laptop)
        done = desk.run("runs", "resume", run)
        assert (done.returncode, "has ended" in done.stderr) == (2, True), done
        assert len(traces(desk, run) | traces(laptop, run)) == 1, "one trace over the pause"


@pytest.mark.req("PERSON-52")
def test_a_run_of_a_computer_that_is_gone_goes_on_at_the_other(two: Two) -> None:
    desk, laptop = two.desk, two.laptop
    with desk.node():
        wait_for_sync(lambda: devices(desk) == devices(laptop) == ["Desk", "Laptop"], what="both devices")
        run, decided = two.suspended(desk, "Sieve, fine"), two.suspended(desk, "Axe, sharp")
        quick(desk, "runs", "approve", decided, "--yes")
        copies = laptop.home / "services" / "auth" / "runs"
        wait_for_sync(lambda: len(list(copies.glob("*.*"))) == 2, what="the copies")
        assert all(b"Sieve" not in path.read_bytes() for path in copies.iterdir()), "sealed"
        wait_for_sync(lambda: word_of(laptop, decided) == "approved", what="the decision in the copy")
    listed = two.seen(laptop, run)
    assert listed is not None
    assert (listed["device"], listed["state"]) == ("Desk", "suspended")
    refused = laptop.run("runs", "approve", run, "--yes")
    assert (refused.returncode, f"hearthnet runs resume {run}" in refused.stderr) == (6, True), refused
    done = laptop.run("runs", "resume", run)
    assert (done.returncode, "taken over from Desk" in done.stderr) == (7, True), done
    quick(laptop, "runs", "approve", run, "--yes")
    assert laptop.run("runs", "resume", run).returncode == 0
    assert titles(laptop).count("Sieve, fine") == 1

    with desk.node():  # what it was told before counts
        assert desk.run("runs", "resume", decided).returncode == 0
        done = laptop.run("runs", "resume", decided)
        assert (done.returncode, "has ended" in done.stderr) == (2, True), done
        wait_for_sync(lambda: not list(copies.glob("*.*")), what="the end of the copies")
        assert titles(desk).count("Axe, sharp") == 1
        done = desk.run("runs", "resume", run)
        assert (done.returncode, "has ended" in done.stderr) == (2, True), done
