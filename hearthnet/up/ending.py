"""Ending a task that waits on libraries."""

from __future__ import annotations

import asyncio


def heed_cancelling() -> None:
    """Raises `CancelledError` where this task was told to end and something it awaited kept that to itself.

    `asyncio.wait_for` does so before Python 3.12 when what it waits for ends in the same moment, and the NATS
    client waits that way. To be asked before each wait without end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
