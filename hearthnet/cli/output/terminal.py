"""Output: results on stdout, other messages on stderr, colour only on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TextIO

from hearthnet.cli.output.text import as_json, shorten

Style = Literal["bold", "dim", "green", "yellow", "red"]
_CODES: Final[dict[Style, str]] = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "red": "31"}

_WIPE: Final = "\r\x1b[K"


def prepare() -> None:
    """Make both streams write unencodable characters as codes, and replace closed ones."""
    sys.stdout, sys.stderr = (sys.stdout or _nowhere()), (sys.stderr or _nowhere())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def styled(text: str, style: Style, stream: TextIO | None = None) -> str:
    """Return `text` in a style if `stream` (stdout) is a terminal and NO_COLOR is not set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_tty(stream or sys.stdout)
    return text if plain or not text else f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def is_tty(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal."""
    with contextlib.suppress(ValueError, AttributeError):
        return stream.isatty()
    return False


def screen() -> TextIO | None:
    """Return the stream on which the person at stdin sees a question; None if there is none."""
    if not is_tty(sys.stdin):
        return None
    return next((stream for stream in (sys.stdout, sys.stderr) if is_tty(stream)), None)


def line(text: str = "") -> None:
    """Write one line to stdout."""
    sys.stdout.write(f"{text}\n")


def write(text: str) -> None:
    """Write `text` to stdout and flush it."""
    sys.stdout.write(text)
    sys.stdout.flush()


def status_line(text: str) -> bool:
    """Show `text` temporarily in the current line of a terminal, until `clear_status`.

    Returns whether stdout is a terminal that can show it.
    """
    if not is_tty(sys.stdout) or os.environ.get("TERM") == "dumb":
        return False
    width = shutil.get_terminal_size().columns - 1
    write(f"{_WIPE}{styled(shorten(text, width), 'dim')}")
    return True


def clear_status() -> None:
    """Erase the text of `status_line`."""
    write(_WIPE)


def info(text: str) -> None:
    """Write one line to stderr, beside the result."""
    sys.stderr.write(f"{text}\n")


def error(message: str) -> None:
    """Write the line of an error."""
    info(f"hearthnet: {message}")


def json_line(value: Any) -> None:
    """Write `value` to stdout as one line of JSON, and flush it."""
    write(as_json(value) + "\n")


def json_page(value: Any) -> None:
    """Write `value` to stdout as JSON: indented on a terminal, one line otherwise."""
    line(as_json(value, indent=2 if is_tty(sys.stdout) else None))


def result(json: bool, value: Any, text: str | Callable[[], object]) -> None:
    """Write the result of a command: `value` as JSON, or for a person `text` as a line or by a call."""
    if json:
        json_page(value)
    elif isinstance(text, str):
        line(text)
    else:
        text()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write columns to stdout, as wide as their content; cells must be escaped already.

    On a terminal, lines are cut to its width, with a mark.
    """
    cells = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in [headings, *cells]) for column in range(len(headings))]
    most = shutil.get_terminal_size().columns if is_tty(sys.stdout) else None
    line(styled(_row(headings, widths, most), "bold"))
    for row in cells:
        line(_row(row, widths, most))


def listing(
    json: bool, values: Any, headings: Sequence[str], rows: Sequence[Sequence[str]], empty: str
) -> None:
    """Write a list: `values` as JSON, or for a person `rows` as a table, without any the line `empty`."""
    if json:
        json_page(values)
    elif rows:
        table(headings, rows)
    else:
        line(empty)


def _row(cells: Sequence[str], widths: Sequence[int], most: int | None) -> str:
    text = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
    return text if most is None else shorten(text, most)
