"""Bodies, sockets and slowness of clients that nobody let in, against the gateway of a running node."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from tests.helpers.neighbourhood import settle_in
from tests.helpers.shell import Shell

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio]
ATTACKERS = 600
PIECE = b"x" * 65_536
MAX_GROWTH_BYTES = 8_000_000
"""Of the gateway's memory, for 600 connections with their buffers of a moment; the bodies are 600 MB."""
SECONDS = 60
HEADS = [
    b"POST /v1/call HTTP/1.1\r\nContent-Length: 1000000",
    b"POST /v1/call HTTP/1.1\r\nTransfer-Encoding: chunked",
    b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 25000000",
    b"POST /v1/runs/x/decisions HTTP/1.1\r\nContent-Length: 1000000\r\nAuthorization: Bearer hnk_a_b",
    b"POST /mcp HTTP/1.1\r\nContent-Length: 1000000\r\nAuthorization: Bearer hntoken://v1/a.b.c",
    b"POST /page/markdown HTTP/1.1\r\nContent-Length: 1000000\r\nCookie: hearthnet_client_a=b_c",
    b"POST /v1/session HTTP/1.1\r\nContent-Length: 1000000",
    b"GET /health HTTP/1.1\r\nContent-Length: 1000000",
]


@dataclass(frozen=True)
class Attacked:
    """A node with a gateway, and the key of a client that its owner let in."""

    url: str
    gateway: psutil.Process
    key: dict[str, str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """`hearthnet up` with its processes."""
    neighbourhood = settle_in(tmp_path_factory.mktemp("attacked"), services=("market", "mesh"))
    settings: Path = neighbourhood.founder.config_file
    settings.write_text(settings.read_text().replace("[gateway]\nenabled = false", "[gateway]\nport = 0"))
    shell = Shell(neighbourhood.founder.path)
    with shell.node():
        gateway = next(one for one in shell.json("status", "--json")["services"] if one["name"] == "gateway")
        added = shell.json("clients", "add", "phone", "--scope", "market.list", "--json")
        key = {"Authorization": f"Bearer {added['secret']}"}
        yield Attacked(gateway["address"], psutil.Process(gateway["pid"]), key)


@contextlib.asynccontextmanager
async def watched(attacked: Attacked) -> AsyncIterator[list[int]]:
    """Yield a list that then holds by how many bytes the gateway's memory grew, at most."""
    growth, before, over = [0], attacked.gateway.memory_info().rss, asyncio.Event()

    async def look() -> None:
        while not over.is_set():
            growth[0] = max(growth[0], attacked.gateway.memory_info().rss - before)
            await asyncio.sleep(0.005)

    looking = asyncio.create_task(look())
    try:
        yield growth
    finally:
        over.set()
        await looking


async def flood(attacked: Attacked, head: bytes, begun: asyncio.Event) -> bytes:
    """Send a body for as long as the gateway takes it; return the status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", attacked.port)
    begun.set()
    try:
        writer.write(head + b"\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(16):
                piece = PIECE if b"chunked" not in head else b"%x\r\n%s\r\n" % (len(PIECE), PIECE)
                writer.write(piece)
                await writer.drain()
        with contextlib.suppress(OSError):
            return (await reader.readline())[9:12]
        return b"cut"
    finally:
        writer.close()


async def served(attacked: Attacked) -> int:
    """Call the market as the client that was let in; return the status."""
    body = {"capability": "market.list", "body": {"params": {}, "input": {}}}
    async with httpx2.AsyncClient(headers=attacked.key, timeout=SECONDS, trust_env=False) as http:
        return (await http.post(f"{attacked.url}/v1/call", json=body)).status_code


@pytest.mark.req("ATTACK-43")
async def test_bodies_of_nobody_are_not_read(attacked: Attacked) -> None:
    for _ in range(2):
        await asyncio.gather(*(flood(attacked, head, asyncio.Event()) for head in HEADS))
    assert await served(attacked) == 200
    begun = asyncio.Event()
    async with asyncio.timeout(SECONDS), watched(attacked) as growth:
        floods = [
            asyncio.create_task(flood(attacked, HEADS[number % len(HEADS)], begun))
            for number in range(ATTACKERS)
        ]
        await begun.wait()
        assert [await served(attacked) for _ in range(5)] == [200] * 5
        answers = Counter(await asyncio.gather(*floods))
    assert growth[0] < MAX_GROWTH_BYTES
    assert set(answers) <= {b"401", b"413", b"429", b"cut", b""}, answers
    assert answers[b"401"] > 0


@pytest.mark.req("ATTACK-43")
async def test_sockets_of_nobody_get_no_room(attacked: Attacked) -> None:
    """Each opens a socket and sends most of a message of a megabyte, which names no client."""
    url = f"ws{attacked.url.removeprefix('http')}/v1/socket"

    async def hold() -> int:
        try:
            async with connect(
                url,
                subprotocols=[Subprotocol("hearthnet-bus.v2")],
                proxy=None,
                open_timeout=SECONDS,
                close_timeout=1,
            ) as socket:
                await socket.send((PIECE for _ in range(15)), text=True)
                await socket.wait_closed()
                code = socket.close_code or 0
                return 0 if code == CloseCode.ABNORMAL_CLOSURE else code  # cut off, as below
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 0
        except (InvalidHandshake, OSError):
            return 503

    await asyncio.gather(*(hold() for _ in range(4)))
    async with asyncio.timeout(SECONDS), watched(attacked) as growth:
        floods = [asyncio.create_task(hold()) for _ in range(ATTACKERS)]
        assert await served(attacked) == 200
        answers = Counter(await asyncio.gather(*floods))
    assert growth[0] < 32_000_000, "600 sockets take some 30 kB each, and 64 of them a message of 64 KiB"
    assert set(answers) <= {0, 503, 1009, 4400, 4413}, answers
