"""Ending tasks that wait in libraries which may swallow a cancellation.

`asyncio.wait_for` does so before Python 3.12 when the awaited task ends at the same moment, and the NATS
client waits that way, for seconds where the server is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

END_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.02


def heed_cancelling() -> None:
    """Raise `CancelledError` if this task was cancelled and a library swallowed the error.

    Call it before each wait without a time limit.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def cancellable(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; when this is cancelled, cancel `work` repeatedly for up to half a second."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await _insist(task)
        raise
    task.result()


async def with_grace(closing: Coroutine[Any, Any, None]) -> None:
    """Wait half a second for connections to close.

    Without a server they end with this process.
    """
    task = asyncio.create_task(closing)
    await asyncio.wait({task}, timeout=END_SECONDS)
    await _insist(task)


async def _insist(task: asyncio.Task[None]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_PAUSE_SECONDS)
    if task.done() and not task.cancelled():
        task.exception()
