"""The server of a hostile home, as far as another server can tell: the leaf protocol, spoken by hand."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import nkeys

from hearthnet.trust.keys import Login


class RawLeaf:
    """A leaf link that says what a test wants and keeps what it hears."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.said: list[bytes] = []
        self.heard: list[bytes] = []
        self.over = False
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, port: int, login: Login, **claims: Any) -> RawLeaf:
        """Logs in at a leaf listener on this computer; `claims` go on top of what a server says of itself."""
        leaf = cls(*await asyncio.open_connection("127.0.0.1", port))
        nonce = msgspec.json.decode((await leaf._reader.readline())[5:])["nonce"]
        signature = nkeys.from_seed(bytearray(login.seed)).sign(nonce.encode())
        greeting = {
            "nkey": login.public,
            "sig": base64.urlsafe_b64encode(signature).rstrip(b"=").decode("ascii"),
            "name": "hostile",
            "remote_account": "HN",
            "version": "2.15.1",
            "protocol": 1,
            "headers": True,
            **claims,
        }
        leaf.send("CONNECT " + msgspec.json.encode(greeting).decode(), "PING")
        leaf._reading = asyncio.create_task(leaf._read())
        return leaf

    def send(self, *lines: str) -> None:
        """Lines of the protocol, in one piece: what the other side leaves unread when it hangs up would
        take its last words along.
        """
        self._writer.write(b"".join(line.encode() + b"\r\n" for line in lines))

    def publish(self, subject: str, data: str = "x") -> None:
        """A message, on whatever subject."""
        self.send(f"LMSG {subject} {len(data)}", data)

    @property
    def welcome(self) -> bool:
        """Whether the other side has accepted the login."""
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
                if line.startswith((b"LMSG", b"HMSG")):
                    self.heard.append(line + await self._reader.readexactly(int(line.split()[-1]) + 2))
        except OSError:
            pass
        self.over = True
        self._writer.close()
