"""Application of new events of the log to the view."""

from __future__ import annotations

import asyncio

from hearthnet.service import EventLog
from hearthnet_market.read_model import View


async def apply_events(events: EventLog, view: View, after: int) -> None:
    """Apply the events after place `after`; the next batch is read while one is applied.

    Raises:
        HearthNetError: `partition` if the log does not answer.
        DamagedView: The file of the view was damaged.
    """
    applying: asyncio.Task[None] | None = None
    try:
        async for batch in events.read(after):
            if applying is not None:
                await applying
            applying = asyncio.create_task(asyncio.to_thread(view.apply, batch))
    finally:
        if applying is not None:
            await applying
