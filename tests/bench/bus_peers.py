"""The other end of each benchmark of the bus: `python -m tests.bench.bus_peers NAME ADDRESS` says one line
when it is ready, and answers until its standard input closes.

All answer the same 200-byte request with the same 1 KB reply, so that what differs is the way between.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import msgspec

from hearthnet import Call, Offer, Reply, Service, Stream, capability

QUERY: Final = "rag.query@1.0"
CHAT: Final = "llm.chat@2.0"
REQUEST: Final[dict[str, Any]] = {
    "params": {"corpus": "bench"},
    "input": {"query": "how long does rainwater have to boil before it is safe to drink " * 2, "k": 3},
}
"""About 200 bytes of JSON."""
_ROW: Final[dict[str, Any]] = {
    "rank": 1,
    "score": 3.25,
    "text": "Bring the water to a rolling boil and keep it there for a whole minute. " * 4,
    "metadata": {"doc_cid": "blake3:" + "0" * 64, "doc_title": "Water", "chunk_id": "c1", "language": "en"},
}
ANSWER: Final[dict[str, Any]] = {"chunks": [_ROW, {**_ROW, "rank": 2}]}
"""About 1 KB of JSON."""
MODEL: Final[dict[str, Any]] = {
    "model": "bench",
    "ctx": 100,
    "backend": "bench",
    "modalities": ["text"],
    "tools_supported": False,
}
TOKEN: Final[dict[str, Any]] = {"text": "otter"}
TALK_FRAMES: Final = 200
BODY: Final = msgspec.json.encode(REQUEST)
REPLY: Final[dict[str, Any]] = {
    "output": ANSWER,
    "meta": {"corpus": "bench", "embedding_model": None, "ms": 0},
}
BACK: Final = msgspec.json.encode(REPLY)


class Anything(msgspec.Struct):
    """Takes whatever the contract lets through."""


class Frames(msgspec.Struct):
    """How many frames a stream is to have, which its one message says."""

    messages: list[dict[str, Any]]


class BenchService(Service):
    """Answers at once, and talks for as long as it is told."""

    name: ClassVar[str] = "bench"

    def offers(self) -> list[Offer]:
        """Both with more places than are used."""
        return [
            Offer(capability=QUERY, params={"corpus": "bench"}, max_concurrent=20_000),
            Offer(capability=CHAT, params=MODEL, max_concurrent=2_000),
        ]

    @capability(QUERY)
    async def query(self, call: Call[Anything, Anything]) -> Reply:
        """The same two passages."""
        return Reply(ANSWER, {"corpus": "bench", "embedding_model": None})

    @capability(CHAT)
    async def chat(self, call: Call[Anything, Frames], stream: Stream) -> Reply:
        """As many tokens as the message says."""
        for _ in range(int(call.input.messages[0]["content"])):
            await stream.send("token", TOKEN)
        meta = {"model": "bench", "tokens_in": 1, "tokens_out": 1, "stop_reason": "end"}
        return Reply({"message": {"role": "assistant", "content": "done"}}, meta)


async def host(service: Service, address: str, until: Awaitable[None]) -> None:
    """Hosts `service` at the node of `HOME=URL`."""
    from hearthnet import NodeContext
    from hearthnet.bus.bus import Bus
    from hearthnet.core.config_loader import load_config
    from hearthnet.core.home import Home
    from hearthnet.service.hosting.host import Host
    from hearthnet.service.hosting.status import Status

    folder, url = address.split("=", 1)
    home = Home.resolve(Path(folder))
    bus = await Bus.join(home, url, service.name)
    hosting = Host(service, NodeContext(home, load_config(home), url, service.name, bus, Status(None)))
    await hosting.open()
    _ready()
    await until
    await hosting.close(drain_seconds=0)
    await bus.close()


async def _raw(address: str, until: Awaitable[None]) -> None:
    import nats

    client = await nats.connect(address)

    async def answer(message: Any) -> None:
        await client.publish(message.reply, BACK)

    async def talk(message: Any) -> None:
        token = msgspec.json.encode(TOKEN)
        for _ in range(int(message.data)):
            await client.publish(message.reply, token)

    await client.subscribe("bench.call", cb=answer)
    await client.subscribe("bench.talk", cb=talk)
    await client.flush()
    _ready()
    await until
    await client.close()


async def _micro(address: str, until: Awaitable[None]) -> None:
    import nats
    from nats import micro

    client = await nats.connect(address)
    service = await micro.add_service(client, name="bench", version="1.0.0")

    async def answer(request: Any) -> None:
        await request.respond(BACK)

    await service.add_endpoint(name="call", subject="bench.micro", handler=answer)
    await client.flush()
    _ready()
    await until
    await client.close()


async def _faststream(address: str, until: Awaitable[None]) -> None:
    from faststream.nats import NatsBroker

    broker = NatsBroker(address, logger=None)

    @broker.subscriber("bench.faststream")
    async def answer(body: dict[str, Any]) -> dict[str, Any]:
        return REPLY

    await broker.start()
    _ready()
    await until
    await broker.stop()


async def _grpc(address: str, until: Awaitable[None]) -> None:
    import grpc

    async def answer(body: bytes, context: Any) -> bytes:
        return BACK

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Bench", {"Call": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    _ready(f"127.0.0.1:{port}")
    await until
    await server.stop(0)


PEERS: Final[dict[str, Callable[[str, Awaitable[None]], Awaitable[None]]]] = {
    "ours": lambda address, until: host(BenchService(), address, until),
    "floor": _raw,
    "micro": _micro,
    "faststream": _faststream,
    "grpc": _grpc,
}


def _ready(where: str = "") -> None:
    """Says that it answers now, and where, if at an address of its own."""
    sys.stdout.write(f"ready {where}\n")
    sys.stdout.flush()


async def until_input_ends(serve: Callable[[Awaitable[None]], Awaitable[None]]) -> None:
    """Serves until standard input closes."""
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    async def closed() -> None:
        await over

    await serve(closed())


if __name__ == "__main__":
    peer, where = sys.argv[1:]
    asyncio.run(until_input_ends(lambda until: PEERS[peer](where, until)))
