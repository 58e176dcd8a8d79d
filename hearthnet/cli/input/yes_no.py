"""Questions of yes or no to the person at the terminal, as for actions that cannot be undone."""

from __future__ import annotations

import contextlib
import sys
import termios
from typing import TextIO

from hearthnet.cli.output import terminal
from hearthnet.core.errors import REFUSED, UNCONFIRMED, HearthNetError


def confirm(question: str, *, confirmed: bool, option: str) -> None:
    """Return if the person answers yes to `question`, or has used `option` (`confirmed` is true).

    Only a typed `y` or `yes` confirms, and not text that was typed before the question appeared.

    Raises:
        HearthNetError: `unauthorized`, with exit code 7 without a terminal, and 4 for a refusal.
    """
    if confirmed:
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


def is_agreed(question: str) -> bool | None:
    """Return whether the person answers yes to `question`; None without a terminal."""
    screen = terminal.screen()
    return None if screen is None else _ask(screen, f"{question} [y]es or [n]o? ")


def _ask(screen: TextIO, prompt: str) -> bool:
    with contextlib.suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    screen.write(prompt)
    screen.flush()
    typed = sys.stdin.readline()
    if not typed:
        screen.write("\n")
    return typed.strip().lower() in ("y", "yes")
