"""Where words go, and how they look there."""

from __future__ import annotations

import io
import sys

import pytest

from hearthnet.cli.output import terminal
from tests.helpers.shell import Shell, Terminal


class Tty(io.StringIO):
    """A stream with somebody in front of it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.req("CLI-3")
def test_colour_only_where_somebody_looks_and_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.styled("x", "bold", Tty()) == "\x1b[1mx\x1b[0m"
    assert terminal.styled("", "bold", Tty()) == ""
    assert terminal.styled("x", "bold", io.StringIO()) == "x"
    monkeypatch.setenv("TERM", "dumb")
    assert terminal.styled("x", "bold", Tty()) == "x"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.styled("x", "bold", Tty()) == "x"


def test_a_closed_stream_has_nobody_in_front_of_it() -> None:
    closed = io.StringIO()
    closed.close()
    assert not terminal.is_tty(closed)


def test_tables_are_whole_for_scripts_and_cut_for_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("a", "x" * 50), ("bcd", "y")]
    terminal.table(("name", "what"), rows)
    assert capsys.readouterr().out.splitlines() == ["name  what", f"a     {'x' * 50}", "bcd   y"]
    screen = Tty()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.table(("name", "what"), rows)
    assert screen.getvalue().splitlines()[1] == f"a     {'x' * 11}..."


def test_json_is_indented_for_a_person_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.json_page({"a": [1]})
    assert capsys.readouterr().out == '{"a":[1]}\n'
    screen = Tty()
    monkeypatch.setattr(sys, "stdout", screen)
    terminal.json_page({"a": 1})
    assert screen.getvalue() == '{\n  "a": 1\n}\n'


def test_what_an_encoding_cannot_show_is_a_code(stopped: Shell) -> None:
    command = [str(stopped.program), "status", "--home", str(stopped.home / "hütte")]
    with Terminal(command, {**stopped.environ(), "PYTHONIOENCODING": "ascii"}) as screen:
        screen.expect("/h\\xfctte")
        assert screen.end() == 3
