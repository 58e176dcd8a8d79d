"""A hostile door, as far as another door can tell: NATS's protocol of routes, spoken by hand."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from typing import Any

import msgspec

from hearthnet.supervisor.nats.server_config import Certificate
from tests.supervisor.raw_peer import RawPeer


class RawRoute(RawPeer):
    """A route that says what a test wants and keeps what it hears; `server_id` is that of the other door."""

    server_id = ""

    @classmethod
    async def connect(cls, port: int, files: Certificate) -> RawRoute:
        """Connects to the routes of a door on this computer, with the certificate of another one."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(*files)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        about: dict[str, Any] = msgspec.json.decode((await reader.readline())[5:])
        route = cls(reader, writer)
        route.server_id = str(about["server_id"])
        name = secrets.token_hex(8)
        greeting = {
            "echo": True,
            "verbose": False,
            "pedantic": False,
            "tls_required": True,
            "name": name,
            "cluster": about["cluster"],
            "headers": True,
        }
        own = about | {"server_id": name.upper(), "server_name": name, "connect_urls": [], "nonce": ""}
        route.begin("CONNECT " + _json(greeting), "INFO " + _json(own), "PING")
        return route

    def publish(self, account: str, subject: str, data: str = "{}") -> None:
        """A message of whatever account, on whatever subject."""
        self.send(f"RMSG {account} {subject} _R_.answer {len(data)}", data)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
