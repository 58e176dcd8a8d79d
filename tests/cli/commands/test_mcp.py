"""`hearthnet mcp add|list|remove` against a node that runs, and a question whose model calls such a tool."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hearthnet.cli.input import settings_file
from hearthnet.core.config import McpServerConfig
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from tests.cli.conftest import Here
from tests.helpers.scripted_model import Say, ScriptedModel
from tests.helpers.shell import Shell
from tests.services.mcp.houses import SERVERS, Plain, tool

TOOL = "experimental.mcp.notes.echo"
SETTINGS = """\
# my node
[server]
port = 0  # any

[services]
enabled = ["llm", "mcp"]

[llm]
builtin = false
"""


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    """A model that calls the tool when it is asked to."""
    calls = ((TOOL.replace(".", "_"), {"text": "milk"}),)
    with ScriptedModel({"Note milk.": [Say(calls=calls), Say("Noted.")]}) as running:
        yield running


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory, model: ScriptedModel) -> Iterator[Shell]:
    """A node with a model, and no MCP server yet."""
    shell = Shell(tmp_path_factory.mktemp("lone") / "home")
    shell.home.mkdir()
    (shell.home / "hearthnet.toml").write_text(f"{SETTINGS}\n{model.config}")
    with shell.node():
        yield shell


@pytest.mark.e2e
@pytest.mark.req("MCPADD-11", "MCPADD-13")
def test_a_server_is_added_its_tool_asked_about_and_let_go(lone: Shell, tmp_path: Path) -> None:
    plain = Plain(tmp_path / "plain")
    plain.lists(tool("echo", "Takes a note."), tool("look", "Looks."))
    command = [sys.executable, str(SERVERS / "plain.py"), str(plain.folder)]
    assert "hearthnet mcp add" in lone.run("mcp", "list").stdout
    added = lone.run("mcp", "add", "notes", "--read-only", "look", "--", *command)
    assert added.returncode == 0, added.stderr
    assert added.stdout.startswith(f"notes: {sys.executable} ")
    assert "  asks first  Takes a note." in added.stdout
    assert "  only reads  Looks." in added.stdout
    assert (lone.home / "hearthnet.toml").read_text().startswith(SETTINGS)
    (state,) = lone.json("mcp", "list", "--json")["servers"]
    assert [(one["name"], one["confirmed"]) for one in state["tools"]] == [("echo", True), ("look", False)]
    assert (state["running"], state["problem"], state["shared"]) == (True, "", False)
    assert "Takes a note." in lone.run("caps").stdout

    # Nobody is there to say yes: nothing is sent. With a yes it is, once, exactly as shown.
    asked = lone.run("ask", "Note milk.", "--tool", TOOL)
    assert asked.returncode == 7, asked.stderr
    assert f"{TOOL}@" in asked.stderr
    assert plain.heard("tools/call") == []
    done = lone.run("ask", "Note milk.", "--tool", TOOL, "--yes-to", TOOL)
    assert done.returncode == 0, done.stderr
    assert "Noted." in done.stdout
    assert [call["params"]["arguments"] for call in plain.heard("tools/call")] == [{"text": "milk"}]

    # A run that waits is approved and resumed by processes that never saw the tool.
    run = next(one["run"] for one in lone.json("runs", "list", "--json") if one["pending"])
    (waiting,) = lone.json("runs", "show", run, "--json")["calls"]
    assert lone.run("runs", "approve", run, waiting["tool_call_id"], "--yes").returncode == 0
    resumed = lone.run("runs", "resume", run)
    assert resumed.returncode == 0, resumed.stderr
    assert len(plain.heard("tools/call")) == 2

    body = '{"params": {}, "input": {"text": "x"}}'
    direct = lone.run("call", TOOL, "--body", body, "--json").stdout.splitlines()
    assert [json.loads(line)["event"] for line in direct] == ["result", "done"]
    again = lone.run("mcp", "add", "notes", "--", *command)
    assert (again.returncode, "already" in again.stderr) == (2, True)
    gone = lone.run("mcp", "remove", "notes")
    assert gone.stdout.startswith("removed: notes: ")
    assert lone.run("mcp", "remove", "notes").returncode == 5
    assert "servers" not in tomllib.loads((lone.home / "hearthnet.toml").read_text()).get("mcp", {})


@pytest.mark.e2e
@pytest.mark.req("MCPADD-11")
def test_what_keeps_a_server_from_working_is_said(lone: Shell, tmp_path: Path) -> None:
    added = lone.run("mcp", "add", "broken", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert added.returncode == 0, added.stderr
    assert "broken: " in added.stdout
    assert "is started again" in added.stdout
    states = {state["name"]: state for state in lone.json("mcp", "list", "--json")["servers"]}
    assert "is started again" in states["broken"]["problem"]
    assert lone.json("mcp", "remove", "broken", "--json") == {"removed": "broken"}
    assert "broken" not in [state["name"] for state in lone.json("mcp", "list", "--json")["servers"]]


@pytest.mark.req("MCPADD-9", "MCPADD-11")
@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("Big Name", "--", "sh"), 2, "name is up to 32"),
        (("s", "--", "sh", "--key=sk-abcdefghijklmnop1234"), 2, "does not belong into a file"),
        (("s", "--env", "sk-abcdefghijklmnop1234", "--", "sh"), 2, "does not belong into a file"),
        (("s", "--", "no-such-program-anywhere"), 5, "there is no program"),
        (("s",), 2, "COMMAND"),
    ],
)
def test_what_cannot_be_added_is_refused_and_no_key_repeated(
    here: Here, home: Path, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    assert here("mcp", "add", *arguments) == code
    assert reason in here.err
    assert "sk-abc" not in here.out + here.err
    assert not (home / "hearthnet.toml").exists()


@pytest.mark.req("MCPADD-11")
def test_without_a_node_the_settings_are_listed_and_changed(here: Here, home: Path) -> None:
    assert here("mcp") == 0
    assert "add" in here.out
    assert here("mcp", "add", "s", "--env", "HOME", "--", "sh", "-c", "${HN_X}") == 0
    assert here.out.startswith("s: sh -c ${HN_X}\n  no node is running in ")
    (state,) = here.json("mcp", "list")["servers"]
    assert (state["running"], state["tools"]) == (False, [])
    (server,) = load_config(Home(home)).mcp.servers
    assert (server.env, server.command) == (("HOME",), ("sh", "-c", "${HN_X}"))
    assert here("mcp", "add", "other", "--", "sh") == 0
    assert here("mcp", "remove", "t") == 5
    assert "there is no MCP server 't'; there is other, s" in here.err
    assert here("mcp", "remove", "s") == 0
    assert here.out == "removed: s: sh -c ${HN_X}\n"
    assert [server.name for server in load_config(Home(home)).mcp.servers] == ["other"]


@pytest.mark.req("MCPADD-11")
@pytest.mark.parametrize(
    "text",
    [
        '# mine\n[[mcp.servers]]\nname = "a"\ncommand = ["x"]\n\n[node]\ndisplay_name = "n"\n',
        '[mcp]\nservers = [{name = "a", command = ["x"]}]\n',
    ],
)
def test_servers_that_a_person_wrote_stay_as_they_are(home: Path, text: str) -> None:
    place = Home(home)
    place.config_file.write_text(text)
    settings_file.insert(place, McpServerConfig(name="b", command=("y", "z")))
    assert [server.name for server in settings_file.settings(place).mcp.servers] == ["a", "b"]
    first, second = settings_file.settings(place).mcp.servers
    assert second.command == ("y", "z")
    for line in text.splitlines():
        assert line.partition("}]")[0] in settings_file.text_of(place)
    settings_file.delete(place, second)
    assert [server.name for server in settings_file.settings(place).mcp.servers] == ["a"]
    settings_file.delete(place, first)
    assert settings_file.settings(place).mcp.servers == ()


@pytest.mark.req("MCPADD-9")
@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('name = "a"\ncommand = []', "mcp.servers.0.command: Expected `array` of length >= 1"),
        ('name = "a"\ncommand = [" "]', "command is the program"),
        ('name = "a"\ncommand = ["x"]\nenv = ["not a name"]', "env has names"),
        ('name = "a"\ncommand = ["x", "ghp_abcdefghijklmnop1234"]', "a key does not belong"),
        ('name = "a"\ncommand = ["x"]\n[[mcp.servers]]\nname = "a"\ncommand = ["y"]', "two servers"),
        ('name = "a"\ncommand = ["x"]\nshell = true', "there is no setting mcp.servers"),
    ],
)
def test_settings_that_are_wrong_are_named(home: Path, lines: str, reason: str) -> None:
    place = Home(home)
    place.config_file.write_text(f"[[mcp.servers]]\n{lines}\n")
    with pytest.raises(HearthNetError, match=reason) as caught:
        load_config(place)
    assert "ghp_" not in caught.value.message
