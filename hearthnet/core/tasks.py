"""Tasks with an owner: their exceptions are logged, and all end with the owner.

See: docs/style.md#errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Set
from typing import Any, Final

_log = logging.getLogger(__name__)
_AGAIN_SECONDS: Final = 0.1
_RESTART_SECONDS: Final = 1.0
_MOST_TIMES: Final = 100


class TaskSet:
    """A set of running tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` until it ends or the set is closed."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
        """Run `work()` until the set is closed; after an exception it is logged and begun again."""
        return self.start(_kept(work, name), name)

    async def finish(self, seconds: float) -> None:
        """Wait for the running tasks, and cancel those that still run after `seconds`."""
        await asyncio.sleep(0)  # pending callbacks of tasks that have just ended may start more
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        await self.close()

    async def close(self) -> None:
        """Cancel the running tasks and wait for them."""
        await end(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the task %s failed", task.get_name(), exc_info=error)


async def _kept(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    while True:
        try:
            await work()
            return
        except Exception:  # of whatever kind: what works on for others must not end with one of them
            _log.exception("the task %s failed, and begins again", name)
            await asyncio.sleep(_RESTART_SECONDS)


async def end(tasks: Set[asyncio.Task[None]]) -> None:
    """Cancel those of `tasks` that run and wait for them.

    Repeats the cancellation, which may be swallowed: before Python 3.12 `asyncio.wait_for` does so if it ends
    at the same moment, and the NATS client waits that way.
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
    """Raise a cancellation again that the block has swallowed (see `end`).

    Otherwise a task that was cancelled just as its answer arrived would continue, and might wait for
    something else without end.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
