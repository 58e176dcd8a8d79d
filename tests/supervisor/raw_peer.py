"""The other end of a link of nats-server, which says what a test wants and keeps what it hears."""

from __future__ import annotations

import asyncio

_WITH_DATA = (b"RMSG", b"LMSG", b"HMSG")


class RawPeer:
    """A connection; `said` has the lines of the other side, `heard` its messages with their data."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.said: list[bytes] = []
        self.heard: list[bytes] = []
        self.over = False
        self._reading: asyncio.Task[None] | None = None

    def begin(self, *lines: str) -> None:
        """Says its first lines, and hears from there on."""
        self.send(*lines)
        self._reading = asyncio.create_task(self._read())

    def send(self, *lines: str) -> None:
        """Lines of the protocol, in one piece: what the other side leaves unread when it hangs up would
        take its last words along.
        """
        self._writer.write(b"".join(line.encode() + b"\r\n" for line in lines))

    @property
    def welcome(self) -> bool:
        """Whether the other side has accepted it."""
        return any(line.startswith(b"PONG") for line in self.said)

    def errors(self) -> list[str]:
        """What the other side complained of."""
        return [line.decode().strip() for line in self.said if line.startswith(b"-ERR")]

    async def close(self) -> None:
        """Hangs up."""
        self._writer.close()
        if self._reading is not None:
            await self._reading

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                self.said.append(line)
                if line.startswith(b"PING"):
                    self.send("PONG")
                if line.startswith(_WITH_DATA):
                    self.heard.append(line + await self._reader.readexactly(int(line.split()[-1]) + 2))
        except OSError:
            pass
        self.over = True
        self._writer.close()
