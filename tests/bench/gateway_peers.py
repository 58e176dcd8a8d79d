"""The other ends of the gateway's benchmark, each a process of its own:

    python -m tests.bench.gateway_peers gateway FOLDER=URL    the gateway of the node in FOLDER
    python -m tests.bench.gateway_peers plain                 a plain `websockets` server with the same frames

Each says one line of JSON when it is ready, and works until its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
from websockets.asyncio.server import ServerConnection, serve

from hearthnet.bus.bus import Bus
from hearthnet.core.config_loader import load_config
from hearthnet.core.home import Home
from hearthnet.gateway.auth.client_store import api_key
from hearthnet.gateway.context import Gateway
from hearthnet.gateway.server import serving
from hearthnet.gateway.socket.frames import SUBPROTOCOL, write
from tests.bench.bus_peers import TALK_FRAMES, TOKEN

GUESTS: Final = 50
"""Clients of the gateway's book; each has several sockets."""


def _say(**said: Any) -> None:
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()


async def _over() -> None:
    """Returns when the standard input closes."""
    await asyncio.to_thread(sys.stdin.read)


async def _gateway(place: str) -> None:
    folder, _, url = place.partition("=")
    home = Home.resolve(Path(folder))
    async with await Bus.join(home, url, "gateway") as bus:
        gateway = Gateway.on(bus, home, load_config(home))
        made = [gateway.clients.book.add(f"g{number}", f"g{number}") for number in range(GUESTS)]
        keys = [api_key(entry, secret) for entry, secret in made]
        async with serving(gateway):
            _say(url=f"ws{gateway.url.removeprefix('http')}/v1/socket", keys=keys)
            await _over()


def same_frames(count: int) -> list[str]:
    """The frames that the gateway sends for a stream of `count` tokens, ready to be sent."""
    opened = write("opened", {"stream": "01JZZZZZZZZZZZZZZZZZZZZZ01", "run": ""}, 0)
    tokens = [write("token", TOKEN, seq) for seq in range(1, count + 1)]
    meta: dict[str, Any] = {"model": "bench", "tokens_in": 0, "tokens_out": count, "stop_reason": "end"}
    meta |= {"ms": 0, "happened": [{"state": "nothing"}]}
    return [frame.decode() for frame in (opened, *tokens, write("done", meta, count + 1))]


async def _talk(socket: ServerConnection) -> None:
    """Answers the one question of a connection."""
    asked = msgspec.json.decode(await socket.recv())
    for frame in _FRAMES[int(asked["body"]["input"]["messages"][0]["content"])]:
        await socket.send(frame)


_FRAMES: Final = {count: same_frames(count) for count in (1, TALK_FRAMES)}


async def _plain() -> None:
    async with serve(_talk, "127.0.0.1", 0, subprotocols=[SUBPROTOCOL], compression=None) as server:  # type: ignore[list-item]
        _say(url=f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", keys=[""])
        await _over()


if __name__ == "__main__":
    asyncio.run(_gateway(sys.argv[2]) if sys.argv[1] == "gateway" else _plain())
