"""4. A pending approval is lost: executor and server are restarted while one waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands.test_ask import offer
from tests.helpers.scripted_model import Say, ScriptedModel
from tests.helpers.shell import Shell

pytestmark = pytest.mark.e2e
QUESTION = "I can lend a ladder."
SETTINGS = '[gateway]\nenabled = false\n\n[server]\nport = 0\n\n[services]\nenabled = ["llm", "market"]\n\n'


@pytest.mark.req("PAIN-4", "RUN-5", "RUN-12")
def test_after_a_restart_of_everything_it_is_listed_approved_and_the_turn_finishes(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home")
    shell.home.mkdir()
    with ScriptedModel() as model:
        (shell.home / "hearthnet.toml").write_text(SETTINGS + model.config)
        model.turns[QUESTION] = [Say(calls=(offer("Ladder"),)), Say("It is posted.")]
        with shell.node():
            done = shell.run("ask", QUESTION, "--tool", "market_post", "--model", "scripted")
            assert done.returncode == 7, done.stderr
        with shell.node():
            (listed,) = shell.json("runs", "list", "--json")
            (asked,) = listed["pending"]
            assert asked["name"] == "market_post"
            assert asked["arguments"]["title"] == asked["body"]["input"]["title"] == "Ladder"
            assert asked["expires_at"] > listed["saved_at"]
            assert shell.run("runs", "approve", listed["run"], "--yes").returncode == 0
            resumed = shell.run("runs", "resume", listed["run"], "--frames")
            assert resumed.returncode == 0, resumed.stderr
            frames = [json.loads(line) for line in resumed.stdout.splitlines()]
            assert frames[-1]["event"] == "done"
            said = "".join(frame["data"]["text"] for frame in frames if frame["event"] == "token")
            assert said.strip() == "It is posted."
            body = json.dumps({"params": {}, "input": {}})
            posts = shell.json("call", "market.list", "--body", body, "--json")["output"]["posts"]
            assert [post["title"] for post in posts] == ["Ladder"]
