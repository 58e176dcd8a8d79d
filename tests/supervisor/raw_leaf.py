"""The server of a hostile home, as far as another server can tell: the leaf protocol, spoken by hand."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import nkeys

from hearthnet.trust.keys import Login
from tests.supervisor.raw_peer import RawPeer


class RawLeaf(RawPeer):
    """A leaf link that says what a test wants and keeps what it hears."""

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
        leaf.begin("CONNECT " + msgspec.json.encode(greeting).decode(), "PING")
        return leaf

    def publish(self, subject: str, data: str = "x") -> None:
        """A message, on whatever subject."""
        self.send(f"LMSG {subject} {len(data)}", data)
