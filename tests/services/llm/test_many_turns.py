"""200 turns in one request, to a node that runs: whatever does not fit is summarised or told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.scripted_model import NAME, ScriptedModel
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for_sync

pytestmark = [pytest.mark.e2e, pytest.mark.req("LLM-147")]
TURNS = 200
SUMMARY = "That is all."
"""What the scripted model says to what it has no answer for."""
SETTINGS = """
[server]
port = 0
[gateway]
enabled = false
[services]
enabled = ["auth", "llm"]
[llm]
builtin = false
"""
BY_SCRIPT = '\n[[llm.scripted]]\nname = "parrot"\nfile = "parrot.toml"\n'


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """The connected model."""
    with ScriptedModel() as running:
        yield running


@pytest.fixture(scope="module")
def shell(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A node with it, and with one that writes no summaries."""
    shell = Shell(tmp_path_factory.mktemp("many") / "home")
    shell.home.mkdir()
    config = f"{SETTINGS}{model.config}ctx = 8192\n{BY_SCRIPT}"
    (shell.home / "hearthnet.toml").write_text(config)
    (shell.home / "parrot.toml").write_text('[[questions]]\nturns = [{ text = "Yes." }]\n')
    with shell.node():
        wait_for_sync(lambda: NAME in shell.run("models", "list").stdout)
        yield shell


def conversation(words: int) -> list[dict[str, str]]:
    """So many turns, each with a fact of its own, and a last question."""
    turns = [
        {
            "role": role,
            "content": f"{said} {turn}: hut {turn} has {turn * 7} stones. " + "so it goes " * words,
        }
        for turn in range(TURNS)
        for role, said in (("user", "Fact"), ("assistant", "Noted"))
    ]
    return [*turns, {"role": "user", "content": "How many stones has hut 3?"}]


def asked(shell: Shell, name: str, messages: list[dict[str, str]]) -> list[dict[str, Any]]:
    """The frames of the answer."""
    body = {"params": {"model": name}, "input": {"messages": messages}}
    file = shell.home / "body.json"
    file.write_text(json.dumps(body))
    done = shell.run("call", "llm.chat@2.0", "--body", f"@{file}", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def notice(frames: list[dict[str, Any]]) -> str:
    """What is told of what was cut."""
    (text,) = (frame["data"]["text"] for frame in frames if frame["event"] == "notice")
    return str(text)


@pytest.mark.parametrize("words", [20, 150], ids=["short turns", "long turns"])
def test_each_of_200_turns_is_kept_or_in_the_summary(shell: Shell, model: ScriptedModel, words: int) -> None:
    model.requests.clear()
    frames = asked(shell, NAME, conversation(words))
    *summaries, answered = model.requests
    assert 1 <= len(summaries) <= 4
    sent = json.dumps(model.requests)
    assert [turn for turn in range(TURNS) if f"Fact {turn}:" not in sent] == []
    assert SUMMARY in json.dumps(answered["messages"][:2]), "the summary stands before what is kept"
    for later in summaries[1:]:
        assert f"What was summarised before: {SUMMARY}" in later["messages"][1]["content"]
    assert "the model's summary of them stands in their place." in notice(frames)
    stages = [frame["data"] for frame in frames if frame["event"] == "progress"]
    assert [stage["stage"] for stage in stages] == ["summarising"] * len(summaries)


def test_turns_that_no_rule_can_sum_up_are_counted(shell: Shell) -> None:
    text = notice(asked(shell, "parrot", conversation(60)))
    found = re.search(r"the oldest (\d+) of 401 messages; .* but of the oldest (\d+) nothing is left", text)
    assert found is not None, text
    left_out, silent = int(found[1]), int(found[2])
    assert 0 < left_out - silent < 40
    assert silent > 100
