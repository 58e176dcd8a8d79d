"""A service for tests of bus and service library: does what a test tells it to, under three real
contracts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import msgspec

from hearthnet import Call, NodeContext, Offer, Reply, Service, Stream, capability
from hearthnet.service.effects.event_log import EventLog

ROW = {
    "rank": 1,
    "score": 1.0,
    "text": "",
    "metadata": {"doc_cid": "blake3:" + "0" * 64, "doc_title": "t", "chunk_id": "c"},
}
QUERY = "rag.query@1.0"
CHAT = "llm.chat@2.0"
POST = "market.post@1.0"
CHAT_BODY: dict[str, Any] = {"params": {}, "input": {"messages": [{"role": "user", "content": "hello"}]}}
CHAT_META = {"model": "probe", "tokens_in": 1, "tokens_out": 1, "stop_reason": "end"}

MODEL = {"model": "probe", "ctx": 100, "backend": "probe", "modalities": ["text"], "tools_supported": False}

Behaviour = Callable[[Call[Any, Any]], Awaitable[None]]
Talk = Callable[[Call[Any, Any], Stream], Awaitable[None]]


def query(text: str = "water", **params: Any) -> dict[str, Any]:
    """A body for `rag.query`."""
    return {"params": {"corpus": "probe", **params}, "input": {"query": text}}


def post(client_id: str, title: str = "Water filter") -> dict[str, Any]:
    """A body for `market.post`."""
    text = {"client_id": client_id, "category": "offer", "title": title, "body": "To lend."}
    return {"params": {}, "input": text}


class Anything(msgspec.Struct):
    """Takes whatever the contract lets through."""


async def _nothing(call: Call[Any, Any]) -> None:
    """Answers at once."""


async def _three_tokens(call: Call[Any, Any], stream: Stream) -> None:
    for number in range(3):
        await stream.send("token", {"text": f"t{number}"})


class ProbeService(Service):
    """Offers `rag.query` for the corpus `probe`, `llm.chat` for the model `probe`, and `market.post`."""

    name: ClassVar[str] = "probe"

    def __init__(self, places: int = 4, trust: str = "") -> None:
        super().__init__()
        self.places = places
        self.trust = trust
        self.answer: Behaviour = _nothing
        self.talk: Talk = _three_tokens
        self.calls: list[Call[Any, Any]] = []
        self.stopped: list[str] = []
        self.meta: dict[str, Any] = {}
        self.events: EventLog | None = None

    async def start(self, node: NodeContext) -> None:
        """Opens the event log."""
        self.events = EventLog(await node.store(), "MARKET", "mk.post", node.bus.peer.community)

    async def outcome(
        self, principal: str, idempotency_key: str, arguments_digest: str
    ) -> dict[str, Any] | None:
        """What stands in the event log."""
        if self.events is None:
            raise RuntimeError("not started")
        return await self.events.outcome(principal, idempotency_key, arguments_digest)

    def offers(self) -> list[Offer]:
        """The three."""
        return [
            Offer(capability=QUERY, params={"corpus": "probe"}, max_concurrent=self.places, trust=self.trust),
            Offer(capability=CHAT, params=MODEL, max_concurrent=self.places),
            Offer(capability=POST, max_concurrent=64),
        ]

    @capability(QUERY)
    async def query(self, call: Call[Anything, Anything]) -> Reply:
        """One row, after the test's behaviour."""
        self.calls.append(call)
        try:
            await self.answer(call)
        except asyncio.CancelledError:
            self.stopped.append(call.id)
            raise
        return Reply({"chunks": [ROW]}, {"corpus": "probe", "embedding_model": None, **self.meta})

    @capability(CHAT)
    async def chat(self, call: Call[Anything, Anything], stream: Stream) -> Reply:
        """What the test says."""
        self.calls.append(call)
        try:
            await self.talk(call, stream)
        except asyncio.CancelledError:
            self.stopped.append(call.id)
            raise
        return Reply({"message": {"role": "assistant", "content": "done"}}, {**CHAT_META, **self.meta})

    @capability(POST, event_sourced=True)
    async def post(self, call: Call[Anything, Anything]) -> Reply:
        """Appends to the real event log."""
        self.calls.append(call)
        if self.events is None:
            raise RuntimeError("not started")
        recorded = await self.events.append(call, "market.post.created", dict(call.body["input"]))
        return Reply(
            {"event_id": recorded.event.event_id, "lamport": recorded.lamport},
            {"repeated": recorded.repeated},
        )
