"""The command with which a person runs this installation of HearthNet."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

_NAME: Final = "hearthnet"


def program() -> str:
    """Return `hearthnet` where a shell finds this installation by that name, else its path.

    The path is relative to the current folder where that is shorter.
    """
    running = _running()
    found = shutil.which(_NAME)
    if found is not None and (running is None or os.path.realpath(found) == os.path.realpath(running)):
        return _NAME
    return _shorter(running) if running is not None else _NAME


def _running() -> Path | None:
    """Return the started command, else the one beside the interpreter, if there is one."""
    beside = Path(sys.executable).with_name(_NAME)
    for path in (Path(os.path.abspath(sys.argv[0])), beside):
        if path.name == _NAME and path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def _shorter(path: Path) -> str:
    relative = os.path.relpath(path)
    if os.sep not in relative:
        relative = os.path.join(os.curdir, relative)
    return min(str(path), relative, key=len)
