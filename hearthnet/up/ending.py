"""Ending tasks that wait on libraries: those may keep a cancellation to themselves.

`asyncio.wait_for` does so before Python 3.12 when what it waits for ends in the same moment, and the NATS
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
    """Raises `CancelledError` where this task was told to end and something it awaited kept that to itself.

    To be asked before each wait without end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def obeying(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work`; once this is cancelled, `work` is told to end until it does, or half a second is over."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await _insist(task)
        raise
    task.result()


async def briefly(closing: Coroutine[Any, Any, None]) -> None:
    """Waits half a second for connections to close; where the server is gone they end with this process."""
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
