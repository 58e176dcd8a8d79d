"""Where words go: stdout for what was asked for, stderr for the rest; colour only where someone looks."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TextIO

from hearthnet.cli.text import as_json, shorten

Style = Literal["bold", "dim", "green", "yellow", "red"]
_CODES: Final[dict[Style, str]] = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "red": "31"}

_WIPE: Final = "\r\x1b[K"


def prepare() -> None:
    """What an encoding cannot show is written as codes, and a closed stream swallows what it gets."""
    sys.stdout, sys.stderr = (sys.stdout or _nowhere()), (sys.stderr or _nowhere())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def styled(text: str, style: Style, stream: TextIO | None = None) -> str:
    """`text` in a style, where `stream` (stdout) is a terminal and NO_COLOR is not set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_tty(stream or sys.stdout)
    return text if plain or not text else f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def is_tty(stream: TextIO) -> bool:
    """Whether a person may be looking at `stream`, or typing into it."""
    with contextlib.suppress(ValueError, AttributeError):
        return stream.isatty()
    return False


def screen() -> TextIO | None:
    """Where a question is seen by the one who types the answer; None where that is nobody."""
    if not is_tty(sys.stdin):
        return None
    return next((stream for stream in (sys.stdout, sys.stderr) if is_tty(stream)), None)


def line(text: str = "") -> None:
    """One line on stdout."""
    sys.stdout.write(f"{text}\n")


def write(text: str) -> None:
    """`text` on stdout, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def passing(text: str) -> bool:
    """Where somebody looks at stdout: `text` in place of the line under way, until `wipe`; whether it
    stands there.
    """
    if not is_tty(sys.stdout) or os.environ.get("TERM") == "dumb":
        return False
    width = shutil.get_terminal_size().columns - 1
    write(f"{_WIPE}{styled(shorten(text, width), 'dim')}")
    return True


def wipe() -> None:
    """Takes away what `passing` wrote."""
    write(_WIPE)


def aside(text: str) -> None:
    """One line on stderr, beside what was asked for."""
    sys.stderr.write(f"{text}\n")


def complain(message: str) -> None:
    """The one line of an error."""
    aside(f"hearthnet: {message}")


def json_line(value: Any) -> None:
    """`value` as one line of JSON on stdout, at once."""
    write(as_json(value) + "\n")


def json_page(value: Any) -> None:
    """`value` as JSON on stdout: indented where a person looks, one line for a program."""
    line(as_json(value, indent=2 if is_tty(sys.stdout) else None))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns on stdout, as wide as what is in them; cells must be escaped already.

    Lines are cut, visibly, to the width of the terminal where there is one.
    """
    cells = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in [headings, *cells]) for column in range(len(headings))]
    most = shutil.get_terminal_size().columns if is_tty(sys.stdout) else None
    line(styled(_row(headings, widths, most), "bold"))
    for row in cells:
        line(_row(row, widths, most))


def _row(cells: Sequence[str], widths: Sequence[int], most: int | None) -> str:
    text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
    return text if most is None else shorten(text, most)
