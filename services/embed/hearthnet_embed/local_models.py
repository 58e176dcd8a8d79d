"""Models in local files: validation, offering, loading, and detection of new files."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Protocol

from hearthnet import HearthNetError
from hearthnet_embed.backend import EmbeddingBackend
from hearthnet_embed.minilm import files
from hearthnet_embed.minilm.backend import MiniLm

_log = logging.getLogger(__name__)


class Loadable(EmbeddingBackend, Protocol):
    """A model that can be offered before it is loaded."""

    async def load(self) -> None:
        """Load the model.

        Raises:
            HearthNetError: `not_implemented` if it cannot be loaded.
        """
        ...


class Box(ABC):
    """One place where a model's files may be.

    `problem` is the reason why there is no model. `at_once` says that the place is examined before the first
    offers.
    """

    at_once: ClassVar[bool] = True

    def __init__(self) -> None:
        self.model: Loadable | None = None
        self.problem = ""
        self._seen: object = None

    @abstractmethod
    def seen(self) -> object:
        """Return a value that changes when the file appears or is replaced. Blocks."""

    @abstractmethod
    async def resolve(self) -> Loadable:
        """Return the model after validation of its file.

        Raises:
            HearthNetError: `not_implemented`, with a remedy, if the file is missing or invalid.
        """

    async def look(self) -> None:
        """Set `model` if the file is valid, else set `problem`."""
        self._seen = await asyncio.to_thread(self.seen)
        try:
            self.model, self.problem = await self.resolve(), ""
        except HearthNetError as error:
            self._without(error)

    async def load(self) -> bool:
        """Load the model, if there is one, and return whether it is loaded now."""
        if self.model is None:
            return False
        try:
            await self.model.load()
        except HearthNetError as error:
            failed, self.model = self.model, None
            await failed.close()
            self._without(error)
            return False
        return True

    async def changed(self, pause: float) -> None:
        """Wait until the file differs from the one examined last; check every `pause` seconds."""
        while True:
            await asyncio.sleep(pause)
            if await asyncio.to_thread(self.seen) != self._seen:
                return

    def _without(self, error: HearthNetError) -> None:
        self.model, self.problem = None, error.message
        _log.warning("%s", error.message)


class MiniLmBox(Box):
    """The place of the built-in model."""

    def __init__(self, data: Path, threads: int) -> None:
        super().__init__()
        self._data = data
        self._threads = threads

    def seen(self) -> object:
        """As `Box.seen`."""
        return files.looked()

    async def resolve(self) -> Loadable:
        """As `Box.resolve`."""
        return MiniLm(await asyncio.to_thread(files.checked_files, self._data), self._threads)
