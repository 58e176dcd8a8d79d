"""Tasks that somebody owns: an exception in one is logged, and all end with their owner.

See: docs/style.md#errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator, Set
from typing import Any, Final

_log = logging.getLogger(__name__)
_AGAIN_SECONDS: Final = 0.1
_MOST_TIMES: Final = 100


class TaskSet:
    """A set of running tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs `work` until it ends or the set is closed."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, seconds: float) -> None:
        """Waits for what runs, and cancels what still does after so many seconds."""
        await asyncio.sleep(0)  # what was done just now has its callbacks still to come, which may start more
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        await self.close()

    async def close(self) -> None:
        """Cancels what still runs and waits for it."""
        await end(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the task %s failed", task.get_name(), exc_info=error)


async def end(tasks: Set[asyncio.Task[None]]) -> None:
    """Cancels those of `tasks` that run and waits for them.

    Again and again: what a task waits for may keep the cancellation to itself. `asyncio.wait_for` does so
    before Python 3.12 where its end and the cancellation meet, and the NATS client waits that way.
    """
    for _ in range(_MOST_TIMES):
        running = {task for task in tasks if not task.done()}
        if not running:
            return
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_AGAIN_SECONDS)
    _log.error("still running: %s", ", ".join(task.get_name() for task in tasks))


@contextlib.contextmanager
def heeding_cancellation() -> Iterator[None]:
    """Around what may keep a cancellation to itself (see `end`): one that came is raised afterwards.

    Without it, a task that was cancelled while it waited for an answer that was just there goes on, and may
    wait for ever for something else.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
