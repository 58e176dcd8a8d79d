"""The box: which file holds the model in this process, and loading it. Blocks; not for the event loop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hearthnet.config import LlmConfig
from hearthnet_llm.builtin import engine, model_file
from hearthnet_llm.builtin.profile import BUILT_IN, CTX, SLOTS, of_file
from hearthnet_llm.profile import Profile

if TYPE_CHECKING:
    from xllamacpp import Server


class Box:
    """The model that the settings ask for: a file they name, else the built-in one."""

    def __init__(self, config: LlmConfig, memory: Path) -> None:
        self._chosen = Path(config.model_file) if config.model_file else None
        self._threads = config.threads
        self._memory = memory

    def look(self) -> model_file.Seen | None:
        """What lies there now; it changes when a file appears or is replaced."""
        return model_file.look(self._chosen or model_file.packaged())

    def check(self) -> Path:
        """The file, found right; `not_implemented` with one line that says what is wrong and what to do."""
        return model_file.chosen(self._chosen) if self._chosen else model_file.built_in(self._memory)

    def profile(self, file: Path) -> Profile:
        """What the model in `file` can do, known before it is loaded."""
        return of_file(file) if self._chosen else BUILT_IN

    def load(self, file: Path) -> Server:
        """The model in `file`, in memory; `not_implemented` where the engine cannot use it."""
        return engine.load(file, slots=SLOTS, ctx=CTX, threads=self._threads)
