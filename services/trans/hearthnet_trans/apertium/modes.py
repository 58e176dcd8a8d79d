"""The installed language pairs of Apertium, and the programs that each one runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from hearthnet.text import language_code
from hearthnet_trans.backend import Pair

_NAME: Final = re.compile(r"([a-z]{2,3})-([a-z]{2,3})\.mode")
_ENDS_WITH_US: Final = ["setpriv", "--pdeathsig", "KILL", "--"]
"""Each program is killed when its parent process dies, in whatever way."""
_LIST_SECONDS: Final = 10.0


class ModeError(Exception):
    """Raised when a pair's programs cannot be determined."""


def folder() -> Path:
    """Return the folder of Apertium's modes."""
    return Path(os.environ.get("APERTIUM_DATADIR") or "/usr/share/apertium") / "modes"


def installed(modes: Path) -> dict[Pair, Path]:
    """Return the mode file of each pair, without variants of a language (`en_US`). Blocks."""
    found: dict[Pair, Path] = {}
    if shutil.which("apertium-wblank-mode") is None:
        return found
    for file in sorted(modes.glob("*.mode")):
        match = _NAME.fullmatch(file.name)
        if match is not None:
            found.setdefault((language_code(match[1]), language_code(match[2])), file)
    return found


def command(mode: Path) -> list[str]:
    """Return the command of the pair's pipeline, which answers each text at its NUL byte.

    Blocks.

    Raises:
        ModeError: the mode file cannot be read.
    """
    try:
        pipeline = subprocess.run(
            ["apertium-wblank-mode", "-z", str(mode)],
            capture_output=True, text=True, check=True, timeout=_LIST_SECONDS, stdin=subprocess.DEVNULL,
        ).stdout  # fmt: skip
        stages = _stages(pipeline)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ModeError(f"{mode.name} cannot be read: {error}") from error
    prefix = _ENDS_WITH_US if shutil.which(_ENDS_WITH_US[0]) else []
    script = " | ".join(shlex.join([*prefix, *stage]) for stage in stages)
    return [*prefix, "/bin/sh", "-c", script]


def _stages(pipeline: str) -> list[list[str]]:
    """Return the programs of a pipeline; the placeholder `$1` becomes `-g`.

    With that option unknown words are marked.
    """
    lexer = shlex.shlex(pipeline.strip(), posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    stages: list[list[str]] = [[]]
    for token in lexer:
        if token == "|":
            stages.append([])
        elif token == "$1":
            stages[-1].append("-g")
        elif token != "$2":
            stages[-1].append(token)
    if not all(stages):
        raise ValueError("a program is missing in it")
    return stages
