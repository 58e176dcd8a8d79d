"""The pairs that Apertium has installed, and the programs that each one runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from hearthnet.service.language_codes import code_of
from hearthnet_trans.backend import Pair

_NAME: Final = re.compile(r"([a-z]{2,3})-([a-z]{2,3})\.mode")
_ENDS_WITH_US: Final = ["setpriv", "--pdeathsig", "KILL", "--"]
"""Each program is killed when the one that started it dies, however that happens."""
_TELL_SECONDS: Final = 10.0


class ModeError(Exception):
    """A pair that cannot be run, and why."""


def folder() -> Path:
    """Where Apertium keeps its modes."""
    return Path(os.environ.get("APERTIUM_DATADIR") or "/usr/share/apertium") / "modes"


def installed(modes: Path) -> dict[Pair, Path]:
    """The mode file of each pair; variants of a language (`en_US`) are left out. Blocks."""
    found: dict[Pair, Path] = {}
    if shutil.which("apertium-wblank-mode") is None:
        return found
    for file in sorted(modes.glob("*.mode")):
        match = _NAME.fullmatch(file.name)
        if match is not None:
            found.setdefault((code_of(match[1]), code_of(match[2])), file)
    return found


def command(mode: Path) -> list[str]:
    """The pair's pipeline as one program to start: answers each text at its NUL byte. Blocks.

    Raises `ModeError`.
    """
    try:
        told = subprocess.run(
            ["apertium-wblank-mode", "-z", str(mode)],
            capture_output=True, text=True, check=True, timeout=_TELL_SECONDS, stdin=subprocess.DEVNULL,
        ).stdout  # fmt: skip
        stages = _stages(told)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ModeError(f"{mode.name} cannot be read: {error}") from error
    prefix = _ENDS_WITH_US if shutil.which(_ENDS_WITH_US[0]) else []
    script = " | ".join(shlex.join([*prefix, *stage]) for stage in stages)
    return [*prefix, "/bin/sh", "-c", script]


def _stages(told: str) -> list[list[str]]:
    """The programs of a pipeline with their arguments; `$1` asks for marks at unknown words."""
    lexer = shlex.shlex(told.strip(), posix=True, punctuation_chars="|")
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
