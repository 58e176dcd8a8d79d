"""Models that lie in files: found right, offered, then loaded; looked for where they are missing."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Protocol

from hearthnet.errors import HearthNetError
from hearthnet_embed.backend import Backend
from hearthnet_embed.minilm import files
from hearthnet_embed.minilm.backend import MiniLm

_log = logging.getLogger(__name__)


class Loadable(Backend, Protocol):
    """A model that is there before it is loaded."""

    async def load(self) -> None:
        """Loads it; `not_implemented` where that cannot be."""
        ...


class Box(ABC):
    """One place where a model may lie. `problem` says why there is none; `at_once`: it is looked at before
    anything is offered.
    """

    at_once: ClassVar[bool] = True

    def __init__(self) -> None:
        self.model: Loadable | None = None
        self.problem = ""
        self._seen: object = None

    @abstractmethod
    def seen(self) -> object:
        """What changes when the file appears or is replaced. Blocks."""

    @abstractmethod
    async def found(self) -> Loadable:
        """The model whose file was found right; `not_implemented` with what to do where it was not."""

    async def look(self) -> None:
        """Has the model there if its file is right; if not, `problem` says why."""
        self._seen = await asyncio.to_thread(self.seen)
        try:
            self.model, self.problem = await self.found(), ""
        except HearthNetError as error:
            self._without(error)

    async def load(self) -> bool:
        """Loads the model, where there is one; whether it is loaded now."""
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
        """Waits until the file is another one than the one seen, looking every `pause` seconds."""
        while True:
            await asyncio.sleep(pause)
            if await asyncio.to_thread(self.seen) != self._seen:
                return

    def _without(self, error: HearthNetError) -> None:
        self.model, self.problem = None, error.message
        _log.warning("%s", error.message)


class MiniLmBox(Box):
    """The built-in model."""

    def __init__(self, data: Path, threads: int) -> None:
        super().__init__()
        self._data = data
        self._threads = threads

    def seen(self) -> object:
        """As `Box.seen`."""
        return files.looked()

    async def found(self) -> Loadable:
        """As `Box.found`."""
        return MiniLm(await asyncio.to_thread(files.found, self._data), self._threads)
