"""Calls run one after another in one task, for as long as none of them has to wait.

Most handlers answer without waiting, and a task for each would cost as much as they do. The first call that
waits keeps the task, to be cancelled and timed like any other; a new task takes over those that have not
begun. Each call has its own copy of the context, as in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Final, Protocol

_MOST_TURNS: Final = 10_000


class ScheduledCall(Protocol):
    """A call that waits for its turn."""

    task: asyncio.Task[None] | None
    """The task that it runs in, once it has begun."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Begin the call; must not raise except to end the task that it runs in."""


Ended = Callable[[Any, BaseException | None], None]
"""Called with each call that has ended and its exception. Must not raise."""


class CallScheduler:
    """The calls of one process that have not begun, and the task that begins them next."""

    def __init__(self, ended: Ended) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = ended
        self._waiting: deque[tuple[ScheduledCall, Context]] = deque()
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: ScheduledCall) -> None:
        """Run `work` in the next turn of the loop, in order, in a copy of the present context."""
        self._waiting.append((work, copy_context()))
        if self._task is None:
            self._task = self._loop.create_task(_EagerTask(self))

    async def wait_begun(self) -> None:
        """Wait until no call waits for its turn."""
        for _ in range(_MOST_TURNS):
            if not self._waiting:
                return
            await asyncio.sleep(0)

    def replace_task(self) -> None:
        """Replace the task that began calls and no longer does."""
        self._task = self._loop.create_task(_EagerTask(self)) if self._waiting else None


class _EagerTask(Coroutine[Any, Any, None]):
    """The coroutine of a task of `CallScheduler`."""

    __slots__ = ("_context", "_current", "_scheduler", "_task", "_work")

    def __init__(self, turns: CallScheduler) -> None:
        self._scheduler = turns
        self._work: ScheduledCall | None = None
        self._current: Coroutine[Any, Any, None] | None = None
        self._context: Context | None = None
        self._task: asyncio.Task[None] | None = None

    def send(self, value: Any) -> Any:
        """Run one step: of the call that waits, or of as many calls as need not wait."""
        if self._current is not None:
            return self._resume(self._current.send, value)
        try:
            return self._begin()
        finally:
            # However this ended, the remaining calls need another task that begins them.
            self._scheduler.replace_task()

    def throw(self, error: Any, value: Any = None, trace: Any = None) -> Any:
        """Cancel the call that waits; before its first step, leave all calls to another task."""
        if self._current is None:
            self._scheduler.replace_task()
            raise error
        return self._resume(self._current.throw, error)

    def close(self) -> None:
        """Close the call that waits, when the loop ends."""
        if self._current is not None:
            self._current.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("only a task runs this")

    def _begin(self) -> Any:
        """Begin calls in order; return the awaitable of the first that waits."""
        waiting, ended = self._scheduler._waiting, self._scheduler._ended
        task = self._task = asyncio.current_task()
        while waiting:
            work, context = waiting.popleft()
            work.task = task
            coroutine = work.run()
            try:
                awaited = context.run(coroutine.send, None)
            except StopIteration:
                ended(work, None)
            except BaseException as error:
                ended(work, error)
                if not isinstance(error, Exception | asyncio.CancelledError):
                    raise
            else:
                self._work, self._current, self._context = work, coroutine, context
                return awaited
            if task is not None and task.cancelling():
                # It cancelled itself without waiting, which must not cancel the next one.
                break
        raise StopIteration

    def _resume(self, step: Callable[[Any], Any], value: Any) -> Any:
        if self._context is None or self._work is None:
            raise RuntimeError("nothing has begun")
        try:
            return self._context.run(step, value)
        except StopIteration:
            self._scheduler._ended(self._work, None)
            raise
        except BaseException as error:
            self._scheduler._ended(self._work, error)
            raise
