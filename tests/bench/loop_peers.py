"""The providers of the measured turn, each a process of its own: `python -m tests.bench.loop_peers NAME
HOME=URL` says one line when it is ready, and answers until its standard input closes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, ClassVar, Final

import msgspec

from hearthnet import Call, Offer, Reply, Service, Stream, capability
from tests.bench.bus_peers import host, until_input_ends
from tests.bench.loop_turn import ANSWER, CALLS, CHUNKS, CORPORA, CORPUS, META, POSTS, SLOW, SLOW_SECONDS

MODEL: Final[dict[str, Any]] = {
    "model": "bench",
    "ctx": 8000,
    "backend": "bench",
    "modalities": ["text"],
    "tools_supported": True,
}
_PLACES: Final = 64


class Anything(msgspec.Struct):
    """Takes whatever the contract lets through."""


class Talk(msgspec.Struct):
    """What the model is asked."""

    messages: list[dict[str, Any]]


class Documents(Service):
    """Answers at once; of the corpus `slow` after 50 ms."""

    name: ClassVar[str] = "documents"

    def offers(self) -> list[Offer]:
        """Two corpora to search, and their list."""
        corpora = [
            Offer(capability="rag.query@1.0", params={"corpus": corpus}, max_concurrent=_PLACES)
            for corpus in (CORPUS, SLOW)
        ]
        return [*corpora, Offer(capability="rag.list_corpora@1.0", max_concurrent=_PLACES)]

    @capability("rag.query@1.0")
    async def query(self, call: Call[Anything, Anything]) -> Reply:
        """The same passages, and when they were asked for on the clock that all processes have in common."""
        arrived = time.monotonic_ns()
        corpus = call.body["params"]["corpus"]
        if corpus == SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        return Reply(CHUNKS, {**META, "corpus": corpus, "arrived_ns": arrived})

    @capability("rag.list_corpora@1.0")
    async def corpora(self, call: Call[Anything, Anything]) -> Reply:
        """The same corpora."""
        return Reply(CORPORA, {})


class Posts(Service):
    """Answers at once that there are none."""

    name: ClassVar[str] = "posts"

    def offers(self) -> list[Offer]:
        """To list and to search."""
        return [
            Offer(capability="market.list@1.0", max_concurrent=_PLACES),
            Offer(capability="market.search@1.0", max_concurrent=_PLACES),
        ]

    @capability("market.list@1.0")
    async def list(self, call: Call[Anything, Anything]) -> Reply:
        """No posts."""
        return Reply(POSTS, {})

    @capability("market.search@1.0")
    async def search(self, call: Call[Anything, Anything]) -> Reply:
        """No posts."""
        return Reply(POSTS, {})


class Model(Service):
    """Says what the turn's model says."""

    name: ClassVar[str] = "model"

    def offers(self) -> list[Offer]:
        """One model."""
        return [Offer(capability="llm.chat@2.0", params=MODEL, max_concurrent=_PLACES)]

    @capability("llm.chat@2.0")
    async def chat(self, call: Call[Anything, Talk], stream: Stream) -> Reply:
        """Four calls; after their results, the answer."""
        last = call.input.messages[-1]
        if last["role"] == "user":
            for id, name, arguments in CALLS:
                await stream.send("tool_call", {"id": id, "name": name, "arguments": arguments})
        else:
            await stream.send("token", {"text": ANSWER})
        meta = {"model": "bench", "tokens_in": 1, "tokens_out": 1, "stop_reason": "end"}
        return Reply({"message": {"role": "assistant", "content": ""}}, meta)


SERVICES: Final[dict[str, type[Service]]] = {service.name: service for service in (Documents, Posts, Model)}

if __name__ == "__main__":
    asyncio.run(until_input_ends(lambda until: host(SERVICES[sys.argv[1]](), sys.argv[2], until)))
