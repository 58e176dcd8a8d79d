"""Joint batches of texts of several callers, short texts first.

    call       its texts are queued by length, beside those of other calls
    batch      the next texts of the most urgent call, then of the others, up to `BATCH_TOKENS`
    urgency    time of arrival plus a delay for each token, so that a question overtakes a corpus
    overload   `capacity_exceeded`, with the time that the queued texts are expected to take

Batches are small, so that a question waits for at most one of them, and so that little work is done for calls
that were cancelled.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from hearthnet import HearthNetError
from hearthnet.core import TaskSet

_log = logging.getLogger(__name__)
BATCH_TOKENS: Final = 256
MOST_WAITING: Final = 131_072
"""Tokens; twice the largest call."""
WINDOW_SECONDS: Final = 0.001
"""Time that a batch waits for calls that arrive at nearly the same moment."""
_TOKENS_A_SECOND: Final = 4_000.0
"""Pace by which the tokens of a call become its delay; also assumed before a pace is measured."""
_LEAST_WAIT_MS: Final = 50
Run = Callable[[list[Sequence[int]]], Sequence[Any]]


class _Job:
    """One call: its texts in order of length, and its progress."""

    def __init__(self, texts: Sequence[Sequence[int]], future: asyncio.Future[list[Any]]) -> None:
        self.texts = texts
        self.order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        self.position = 0
        self.vectors: list[Any] = [None] * len(texts)
        self.missing = len(texts)
        self.future = future

    @property
    def next(self) -> Sequence[int] | None:
        """The next text, or None if all were taken or the call has ended."""
        if self.future.done() or self.position == len(self.order):
            return None
        return self.texts[self.order[self.position]]

    def take(self) -> int:
        """Take the next text and return its index in the call."""
        self.position += 1
        return self.order[self.position - 1]

    def put(self, index: int, vector: Any) -> None:
        """Store the vector of one text; the last one completes the call."""
        self.vectors[index] = vector
        self.missing -= 1
        if not self.missing and not self.future.done():
            self.future.set_result(self.vectors)


class Batching:
    """Queue of texts that `run` turns into vectors, batch by batch, in a thread of `pool`."""

    def __init__(self, run: Run, pool: Executor, most_waiting: int = MOST_WAITING) -> None:
        self._run = run
        self._pool = pool
        self._most = most_waiting
        self._jobs: list[tuple[float, int, _Job]] = []
        self._numbers = itertools.count()
        self._running: list[_Job] = []
        self._woken = asyncio.Event()
        self._pace = _TOKENS_A_SECOND
        self._tasks = TaskSet()
        self._tasks.start(self._work(), "embed in batches")
        self.waiting = 0
        """Tokens of the calls that have no reply yet."""

    async def vectors(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        """Return a vector for each text of token ids, in their order.

        Raises:
            HearthNetError: `capacity_exceeded` if too many tokens are queued.
        """
        size = sum(map(len, texts))
        if self.waiting and self.waiting + size > self._most:
            wait = max(_LEAST_WAIT_MS, round(1000 * self.waiting / self._pace))
            raise HearthNetError(
                "capacity_exceeded",
                f"{self.waiting} tokens wait to be embedded here; try again in {wait / 1000:.1f} s",
                retry_after_ms=wait,
            )
        job = _Job(texts, asyncio.get_running_loop().create_future())
        urgency = time.monotonic() + size / _TOKENS_A_SECOND
        heapq.heappush(self._jobs, (urgency, next(self._numbers), job))
        self.waiting += size
        self._woken.set()
        try:
            return await job.future
        finally:
            self.waiting -= size

    async def close(self) -> None:
        """Stop the work; calls that still wait end with an error."""
        await self._tasks.close()
        for job in (*self._running, *(waiting for _, _, waiting in self._jobs)):
            if not job.future.done():
                job.future.set_exception(
                    HearthNetError(
                        "partition",
                        "the embedding model is being unloaded",
                        details={"rule": "provider_stopping"},
                    )
                )

    async def _work(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.sleep(WINDOW_SECONDS)
            while batch := self._batch():
                await self._embed(batch)

    async def _embed(self, batch: list[tuple[_Job, int]]) -> None:
        self._running = [job for job, _ in batch]
        texts = [job.texts[index] for job, index in batch]
        began = time.monotonic()
        try:
            vectors = await asyncio.get_running_loop().run_in_executor(self._pool, self._run, texts)
        except Exception as error:
            _log.exception("a batch of %d texts could not be embedded", len(texts))
            for job, _ in batch:
                if not job.future.done():
                    reason = f"the embedding model failed: {str(error)[:200]}"
                    job.future.set_exception(HearthNetError("internal_error", reason))
            return
        pace = sum(map(len, texts)) / max(1e-6, time.monotonic() - began)
        self._pace += 0.2 * (pace - self._pace)
        for (job, index), vector in zip(batch, vectors, strict=True):
            job.put(index, vector)

    def _batch(self) -> list[tuple[_Job, int]]:
        """Return the next batch; empty if no call waits."""
        batch: list[tuple[_Job, int]] = []
        longest = 0
        while self._jobs:
            job = self._jobs[0][2]
            text = job.next
            if text is None:
                heapq.heappop(self._jobs)
                continue
            longest = max(longest, len(text))
            if batch and longest * (len(batch) + 1) > BATCH_TOKENS:
                break
            batch.append((job, job.take()))
        return batch
