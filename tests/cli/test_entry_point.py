"""From arguments to exit codes, in this process: help, misuse, errors, and what nobody foresaw."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hearthnet import __version__
from hearthnet.cli import main
from hearthnet.cli.app import app
from hearthnet.cli.output import terminal
from tests.cli.conftest import Here
from tests.helpers.shell import Shell

COMMANDS = app.list_commands(click.Context(app))
WITHOUT_A_HOME = {
    ("version",),
    ("models", "install"),
    ("service", "new"),
    ("contract", "freeze"),
    ("contract", "key"),
    ("contract", "sign"),
}
"""Commands that concern no node."""


def runnable(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of this command, or of each command of the group."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from runnable(inner, *words, name)
    else:
        yield words


@pytest.mark.req("CLI-1")
def test_alone_it_prints_its_help(here: Here) -> None:
    assert here() == 0
    assert {"up", "status", "ask", "invite", "version"} <= set(COMMANDS)
    for name in COMMANDS:
        assert f"\n  {name} " in here.out
    assert "Exit codes" in here.out


@pytest.mark.req("CLI-1")
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_takes_a_home(name: str, here: Here) -> None:
    assert here(name, "--help") == 0
    assert here.out.startswith(f"Usage: hearthnet {name}")
    command = app.get_command(click.Context(app), name)
    assert command is not None
    for words in runnable(command, name):
        assert here(*words, "--help") == 0
        assert here.out.startswith(f"Usage: hearthnet {' '.join(words)} ")
        assert ("--home DIR" in here.out) is (words not in WITHOUT_A_HOME), words


def test_models_alone_prints_its_help(here: Here) -> None:
    assert here("models") == 0
    alone = here.out
    assert alone.startswith("Usage: hearthnet models ")
    assert here("models", "--help") == 0
    assert alone == here.out


def test_version(here: Here) -> None:
    assert here("version") == 0
    assert here.out == f"hearthnet {__version__}\n"
    assert here("version", "--json") == 0
    assert json.loads(here.out) == {"version": __version__}


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["stauts"], "there is no command 'stauts'; did you mean status"),
        (["--nothing"], "no such option"),
        (["call", "market.list", "limit"], "'limit' has no value"),
        (["logs", "-n", "x"], "'x' is not a valid integer"),
        (["models", "instal"], "no such command 'instal'"),
        (["ask", " "], "there is no question"),
        (["ask", "a\udcff"], "the question is no utf-8 text"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments: list[str], complaint: str, here: Here) -> None:
    assert here(*arguments) == 2
    assert here.out == ""
    (line,) = here.err.splitlines()
    assert line.startswith("hearthnet: ")
    assert complaint in line.lower()


@pytest.mark.req("CLI-4")
@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["caps"],
        ["call", "market.list", "--body", '{"params":{},"input":{}}'],
        ["models", "list"],
        ["ask", "hello"],
        ["ask", "hello", "--frames"],
    ],
)
def test_without_a_node_it_says_so_and_ends_with_3(arguments: list[str], here: Here) -> None:
    assert here(*arguments) == 3
    assert "no node is running in" in here.err
    assert "hearthnet up" in here.err


@pytest.mark.req("CLI-2", "CLI-4")
def test_with_json_the_error_object_stands_on_stdout_too(here: Here) -> None:
    assert here("caps", "--json") == 3
    body = json.loads(here.out)
    assert body["error"] == "partition"
    assert here.err == f"hearthnet: {body['message']}\n"
    assert here("ask", "hello", "--frames") == 3
    assert json.loads(here.out) == {"event": "error", "data": body}


@pytest.mark.req("CLI-2")
@pytest.mark.parametrize(
    "arguments", [["caps", "--watch"], ["caps", "--nothing"], ["caps", "a", "b"], ["cap"]]
)
def test_with_json_misuse_is_an_error_object_too(arguments: list[str], here: Here) -> None:
    assert here(*arguments, "--json") == 2
    body = json.loads(here.out)
    assert body["error"] == "bad_request"
    assert here.err == f"hearthnet: {body['message']}\n"


@pytest.mark.req("CLI-4")
def test_home_stands_above_the_environment(here: Here, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert here("status", "--home", other) == 3
    assert f"no node is running in {other};" in here.err


@pytest.mark.req("CLI-2")
def test_what_libraries_log_does_not_reach_the_terminal() -> None:
    script = (
        "import logging; from hearthnet.cli.entry_point import run; run(['version']); logging.error('noise')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.startswith("hearthnet ")


@pytest.mark.req("CLI-2")
def test_an_interrupt_while_it_is_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        """Stands where the module is not loaded yet."""

        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "hearthnet.cli.entry_point", Interrupted())
    assert main() == 130


@pytest.mark.req("CLI-2")
def test_what_nobody_foresaw_is_logged_under_an_id(
    here: Here, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(page: object) -> None:
        raise RuntimeError("boom \x1b[31m")

    monkeypatch.setattr(terminal, "json_page", broken)
    assert here("version", "--json") == 1
    error = json.loads(here.out)
    assert error["error"] == "internal_error"
    incident = error["details"]["incident"]
    (line,) = here.err.splitlines()
    assert incident in line
    assert "Traceback" not in line
    log = (home / "logs" / "cli.log").read_text()
    assert incident in log
    assert "RuntimeError: boom" in log


def test_what_cannot_be_logged_is_told(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise RuntimeError("boom \x1b[31m")

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEARTHNET_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(terminal, "line", broken)
    assert here("version") == 1
    assert "RuntimeError: boom \\x1b[31m" in here.err


@pytest.mark.req("CLI-2")
def test_a_reader_that_goes_away_causes_no_noise(stopped: Shell) -> None:
    for command in ("--help | true", "version | true", "version >&-", "version >&- 2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{stopped.program} {command}"],
            env=stopped.environ(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == "", command
