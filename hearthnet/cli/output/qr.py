"""A text as a QR code in the terminal, for the camera of the other device."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

from hearthnet.cli.output import terminal

_BORDER: Final = 2
# By upper and lower module, dark or not. The colours make it black on white, as cameras want it.
_DARK: Final = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
_COLOURS: Final = "\x1b[38;5;16;48;5;231m"
_PLAIN: Final = "\x1b[0m"


def show(text: str) -> None:
    """Print the QR code of `text` on stdout if that is a terminal, two modules a character.

    If it does not fit, a line on stderr says so.
    """
    if not terminal.is_tty(sys.stdout):
        return
    rows = modules(text)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        terminal.info("no QR code: it needs colours, and this terminal shows none")
        return
    size = shutil.get_terminal_size()
    width = len(rows[0])
    if size.columns < width:
        terminal.info(
            f"no QR code: it takes {width} columns, and the terminal has {size.columns}; make it wider, or "
            "its letters smaller, for one"
        )
        return
    for line in lines(rows):
        terminal.line(f"{_COLOURS}{line}{_PLAIN}")


def modules(text: str) -> list[list[bool]]:
    """Return the rows of the smallest code from the top, with border; dark modules are True."""
    import segno

    code = segno.make(text, error="l", micro=False, boost_error=False)
    return [[bool(module) for module in row] for row in code.matrix_iter(border=_BORDER)]


def lines(rows: list[list[bool]]) -> list[str]:
    """Return each pair of rows as a line of text; below an odd last row it is light."""
    below = [*rows[1:], [False] * len(rows[0])]
    return [
        "".join(_DARK[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in list(zip(rows, below, strict=True))[::2]
    ]
