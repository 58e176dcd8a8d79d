"""Lines typed by a person, read in the event loop, so that a question can be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import termios
from types import TracebackType
from typing import Final, Self, TextIO

_CHUNK: Final = 4096


class Keyboard:
    """A terminal as a context manager."""

    def __init__(self, stream: TextIO) -> None:
        self._descriptor = stream.fileno()
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._rest = b""
        self._ended = False

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._descriptor, self._read)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)

    def forget(self) -> None:
        """Discard all input so far."""
        with contextlib.suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        self._rest = b""
        while not self._lines.empty():
            self._lines.get_nowait()

    async def line(self) -> str | None:
        """Return the next line without its end; None at the end of the input."""
        if self._ended and self._lines.empty():
            return None
        line = await self._lines.get()
        return line.decode("utf-8", "replace").rstrip("\r\n") if line else None

    def _read(self) -> None:
        if not select.select([self._descriptor], [], [], 0)[0]:
            return  # the input was discarded since the loop saw it; reading would block
        try:
            data = os.read(self._descriptor, _CHUNK)
        except OSError:
            data = b""
        if not data:
            self._ended = True
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self._lines.put_nowait(b"")
            return
        *complete, self._rest = (self._rest + data).split(b"\n")
        for line in complete:
            self._lines.put_nowait(line + b"\n")
