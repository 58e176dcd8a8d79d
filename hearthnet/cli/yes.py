"""A yes or no from the person at the terminal, for what cannot be taken back."""

from __future__ import annotations

import contextlib
import sys
import termios
from typing import TextIO

from hearthnet.cli import terminal
from hearthnet.errors import REFUSED, UNCONFIRMED, HearthNetError


def demand(question: str, *, given: bool, option: str) -> None:
    """Returns where the person says yes to `question`, or said so with `option` (then `given` is true).

    Raises `unauthorized`, with exit code 7 where there is nobody to ask, and 4 for a no. Only a typed `y` or
    `yes` is a yes, and not what was typed before the question stood there.
    """
    if given:
        return
    screen = terminal.screen()
    if screen is None:
        raise HearthNetError(
            "unauthorized",
            f"this needs a yes, and there is no terminal to ask at; say it with {option}",
            exit_status=UNCONFIRMED,
        )
    if not _ask(screen, f"{question} [y]es or [n]o? "):
        raise HearthNetError("unauthorized", "not done: it takes a yes", exit_status=REFUSED)


def _ask(screen: TextIO, prompt: str) -> bool:
    with contextlib.suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    screen.write(prompt)
    screen.flush()
    typed = sys.stdin.readline()
    if not typed:
        screen.write("\n")
    return typed.strip().lower() in ("y", "yes")
