"""Reading the end of a pipe inside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Final

LINE_BYTES: Final = 256 * 1024


@contextlib.asynccontextmanager
async def reading(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    """Yield a reader of `descriptor`, which is closed after the block.

    Lines may have up to `LINE_BYTES`.
    """
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    file = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), file
    )
    try:
        yield reader
    finally:
        transport.close()
