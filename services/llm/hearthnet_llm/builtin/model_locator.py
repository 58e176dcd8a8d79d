"""Choice, check and loading of the model file for this process.

Blocks; not for the event loop.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hearthnet.core import LlmConfig
from hearthnet_llm.builtin import engine, model_file
from hearthnet_llm.builtin.profile import BUILT_IN, CTX, SLOTS, of_file
from hearthnet_llm.interface.backend import Profile

if TYPE_CHECKING:
    from xllamacpp import Server


class ModelLocator:
    """The model of the settings: a file that they name, or else the built-in one."""

    def __init__(self, config: LlmConfig, memory: Path) -> None:
        self._chosen = Path(config.model_file) if config.model_file else None
        self._threads = config.threads
        self._memory = memory

    def look(self) -> model_file.FileStamp | None:
        """Return the current state of the file; it changes when a file appears or is replaced."""
        return model_file.file_stamp(self._chosen or model_file.packaged())

    def check(self) -> Path:
        """Return the validated file.

        Raises:
            HearthNetError: `not_implemented`, with fault and remedy in one line, if it cannot be used.
        """
        return model_file.configured_file(self._chosen) if self._chosen else model_file.built_in(self._memory)

    def profile(self, file: Path) -> Profile:
        """Return the profile of the model in `file`, which is known before it is loaded."""
        return of_file(file) if self._chosen else BUILT_IN

    def load(self, file: Path) -> Server:
        """Load the model in `file` into memory.

        Raises:
            HearthNetError: `not_implemented` if the engine cannot use it.
        """
        return engine.load(file, slots=SLOTS, ctx=CTX, threads=self._threads)
