"""A text as a QR code in the terminal, for the camera of the other device."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

from hearthnet.cli import terminal

_BORDER: Final = 2
# By upper and lower module, dark or not. The colours make it black on white, as cameras want it.
_DARK: Final = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
_COLOURS: Final = "\x1b[38;5;16;48;5;231m"
_PLAIN: Final = "\x1b[0m"


def show(text: str) -> None:
    """The QR code of `text` on stdout, two modules a character, where a person looks at it.

    Where it does not fit, stderr says so; in a pipe or a file there is none.
    """
    if not terminal.is_tty(sys.stdout):
        return
    rows = modules(text)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        terminal.aside("no QR code: it needs colours, and this terminal shows none")
        return
    size = shutil.get_terminal_size()
    width = len(rows[0])
    if size.columns < width:
        terminal.aside(
            f"no QR code: it takes {width} columns, and the terminal has {size.columns}; make it wider, or "
            "its letters smaller, for one"
        )
        return
    for line in lines(rows):
        terminal.line(f"{_COLOURS}{line}{_PLAIN}")


def modules(text: str) -> list[list[bool]]:
    """The code's rows from the top, dark modules true, its quiet border with it; as small as it gets."""
    import segno

    code = segno.make(text, error="l", micro=False, boost_error=False)
    return [[bool(module) for module in row] for row in code.matrix_iter(border=_BORDER)]


def lines(rows: list[list[bool]]) -> list[str]:
    """The rows in pairs, each pair a line of text; an odd last row has light below it."""
    below = [*rows[1:], [False] * len(rows[0])]
    return [
        "".join(_DARK[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in list(zip(rows, below, strict=True))[::2]
    ]
