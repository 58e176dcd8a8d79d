"""Calls run one after another in one task, for as long as none of them has to wait.

Most handlers answer without waiting for anything, and a task for each would cost as much as they do. The
first call that waits keeps the task for itself, to be cancelled and asked for its time like any other; a new
task takes over those that have not begun. Each call has its own copy of the context, as in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Final, Protocol

_MOST_TURNS: Final = 10_000


class Work(Protocol):
    """A call that waits for its turn."""

    task: asyncio.Task[None] | None
    """The task that it runs in, once it has begun."""

    def run(self) -> Coroutine[Any, Any, None]:
        """Begins; must not raise but to end the task that it runs in."""


Ended = Callable[[Any, BaseException | None], None]
"""Hears of each call that has ended, and of what it raised. Must not raise."""


class Turns:
    """The calls of one process that have not begun, and the task that begins them in the next turn."""

    def __init__(self, ended: Ended) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = ended
        self._waiting: deque[tuple[Work, Context]] = deque()
        self._task: asyncio.Task[None] | None = None

    def begin(self, work: Work) -> None:
        """Runs `work` in the next turn of the loop, after those that came before, in a copy of the context of
        whoever begins it.
        """
        self._waiting.append((work, copy_context()))
        if self._task is None:
            self._task = self._loop.create_task(_Batch(self))

    async def begun(self) -> None:
        """Waits until none waits for its turn any more."""
        for _ in range(_MOST_TURNS):
            if not self._waiting:
                return
            await asyncio.sleep(0)

    def left(self) -> None:
        """The task that began calls does so no more."""
        self._task = self._loop.create_task(_Batch(self)) if self._waiting else None


class _Batch(Coroutine[Any, Any, None]):
    """What a task of `Turns` runs."""

    __slots__ = ("_context", "_current", "_task", "_turns", "_work")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._work: Work | None = None
        self._current: Coroutine[Any, Any, None] | None = None
        self._context: Context | None = None
        self._task: asyncio.Task[None] | None = None

    def send(self, value: Any) -> Any:
        """One step: of the call that waits, or of as many as need not wait."""
        if self._current is not None:
            return self._resume(self._current.send, value)
        try:
            return self._begin()
        finally:
            # In whichever way it ended, the next call has to find somebody who begins it.
            self._turns.left()

    def throw(self, error: Any, value: Any = None, trace: Any = None) -> Any:
        """Cancels the call that waits; before its first step, leaves all calls to another task."""
        if self._current is None:
            self._turns.left()
            raise error
        return self._resume(self._current.throw, error)

    def close(self) -> None:
        """The loop ends."""
        if self._current is not None:
            self._current.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("only a task runs this")

    def _begin(self) -> Any:
        """Begins one call after another; what the first that waits is waiting for."""
        waiting, ended = self._turns._waiting, self._turns._ended
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
                # It cancelled itself and did not wait: that must not meet the next one.
                break
        raise StopIteration

    def _resume(self, step: Callable[[Any], Any], value: Any) -> Any:
        if self._context is None or self._work is None:
            raise RuntimeError("nothing has begun")
        try:
            return self._context.run(step, value)
        except StopIteration:
            self._turns._ended(self._work, None)
            raise
        except BaseException as error:
            self._turns._ended(self._work, error)
            raise
