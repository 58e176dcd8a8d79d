"""Which ingestions are under way and how far they are, for whoever follows one. For one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from hearthnet_rag.journal import Key
from hearthnet_rag.readers import Told

FETCHING: Final = "fetching"


class Stage(msgspec.Struct, frozen=True):
    """How far one ingestion is."""

    stage: str
    current: int
    total: int


class Ingestions:
    """The ingestions under way."""

    def __init__(self) -> None:
        self._stages: dict[Key, Stage] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    @contextlib.contextmanager
    def begin(self, key: Key) -> Iterator[Told]:
        """An ingestion for the time of the block; what it is told may come from any thread."""
        loop = asyncio.get_running_loop()
        self._set(key, Stage(FETCHING, 0, 1))

        def told(stage: str, current: int, total: int) -> None:
            loop.call_soon_threadsafe(self._tell, key, Stage(stage, current, total))

        try:
            yield told
        finally:
            self._stages.pop(key, None)
            self._wake()

    async def idle(self) -> None:
        """Returns when none is under way."""
        while self._stages:
            await self._change()

    def stage(self, key: Key) -> Stage | None:
        """How far it is; None where it is not under way."""
        return self._stages.get(key)

    async def follow(self, key: Key, patience: float) -> AsyncIterator[Stage]:
        """Each stage that is new when the last one was taken, until the ingestion ends.

        One that is not under way yet is waited for, for `patience` seconds.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while key not in self._stages:
                    await self._change()
        last: Stage | None = None
        while (stage := self._stages.get(key)) is not None:
            if stage != last:
                yield stage
                last = stage
            else:
                await self._change()

    def _tell(self, key: Key, stage: Stage) -> None:
        if key in self._stages:
            self._set(key, stage)

    def _set(self, key: Key, stage: Stage) -> None:
        self._stages[key] = stage
        self._wake()

    async def _change(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
