"""The QR code in the terminal: right, and only where it can be read."""

from __future__ import annotations

import sys

import pytest
import segno

from hearthnet.cli.output import qr
from tests.cli.output.test_terminal import Tty

TEXT = "hninvite://v1/" + "A" * 420 + ".0123abcd"
INK = {" ": (False, False), "▀": (True, False), "▄": (False, True), "█": (True, True)}


def a_screen(monkeypatch: pytest.MonkeyPatch) -> Tty:
    """A terminal 80 columns wide, as stdout; made inside a test, since pytest sets stdout before each."""
    tty = Tty()
    monkeypatch.setattr(sys, "stdout", tty)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tty


@pytest.mark.req("JOIN-2")
def test_the_lines_hold_the_code_with_a_quiet_border(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = a_screen(monkeypatch)
    qr.show(TEXT)
    drawn: list[list[bool]] = []
    for line in screen.getvalue().splitlines():
        assert line.startswith("\x1b[38;5;16;48;5;231m")
        assert line.endswith("\x1b[0m"), "the colours would go on after the code"
        letters = line.removeprefix("\x1b[38;5;16;48;5;231m").removesuffix("\x1b[0m")
        drawn += [[INK[letter][half] for letter in letters] for half in (0, 1)]
    wanted = [
        [bool(module) for module in row]
        for row in segno.make(TEXT, error="l", boost_error=False).matrix_iter(border=2)
    ]
    assert drawn[: len(wanted)] == wanted
    assert not any(any(row) for row in drawn[len(wanted) :])
    assert len(drawn[0]) <= 80


@pytest.mark.req("JOIN-2")
def test_a_narrow_terminal_and_one_without_colour_are_told_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = a_screen(monkeypatch)
    monkeypatch.setenv("COLUMNS", "60")
    qr.show(TEXT)
    assert "and the terminal has 60" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    qr.show(TEXT)
    assert "it needs colours" in capsys.readouterr().err
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    qr.show(TEXT)
    assert "it needs colours" in capsys.readouterr().err
    assert screen.getvalue() == ""


@pytest.mark.req("JOIN-2")
def test_a_pipe_gets_none_and_hears_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    qr.show(TEXT)
    assert capsys.readouterr() == ("", "")
