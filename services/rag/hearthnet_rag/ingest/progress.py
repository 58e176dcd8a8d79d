"""Progress of running ingestions, for callers that follow one. For one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from hearthnet_rag.index.journal import Key
from hearthnet_rag.readers import OnProgress

FETCHING: Final = "fetching"


class Stage(msgspec.Struct, frozen=True):
    """Progress of one ingestion."""

    stage: str
    current: int
    total: int


class Ingestions:
    """The running ingestions."""

    def __init__(self) -> None:
        self._stages: dict[Key, Stage] = {}
        self._changed = asyncio.Event()

    @contextlib.contextmanager
    def begin(self, key: Key) -> Iterator[OnProgress]:
        """Register an ingestion during the block, and yield the function that takes its progress.

        That function may be called from any thread.
        """
        loop = asyncio.get_running_loop()
        self._set(key, Stage(FETCHING, 0, 1))

        def on_progress(stage: str, current: int, total: int) -> None:
            loop.call_soon_threadsafe(self._update, key, Stage(stage, current, total))

        try:
            yield on_progress
        finally:
            self._stages.pop(key, None)
            self._report_change()

    async def idle(self) -> None:
        """Wait until no ingestion is running."""
        while self._stages:
            await self._changed.wait()

    def stage(self, key: Key) -> Stage | None:
        """Return the progress of an ingestion, or None if it is not running."""
        return self._stages.get(key)

    async def follow(self, key: Key, patience: float) -> AsyncIterator[Stage]:
        """Yield the stages of an ingestion until it ends; stages may be skipped.

        If it is not running yet, wait for it for up to `patience` seconds.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while key not in self._stages:
                    await self._changed.wait()
        last: Stage | None = None
        while (stage := self._stages.get(key)) is not None:
            if stage != last:
                yield stage
                last = stage
            else:
                await self._changed.wait()

    def _update(self, key: Key, stage: Stage) -> None:
        if key in self._stages:
            self._set(key, stage)

    def _set(self, key: Key, stage: Stage) -> None:
        self._stages[key] = stage
        self._report_change()

    def _report_change(self) -> None:
        """Wake all that wait now; who waits later waits for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()
