"""Clients of a gateway and their runs, with a scripted bus (tests/agent/scripted.py) and the real checks."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec

from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.driver import Outcome
from hearthnet.agent.tools.types import Decision
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.clients import Client, Clients
from hearthnet.gateway.runs.run import DecisionBody, Follower, FollowUp, GatewayRun, NewRun
from hearthnet.gateway.runs.runs import GatewayRuns
from hearthnet.trust.authorization import token as tokens
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope
from hearthnet.trust.keys import Identity
from tests.agent.scripted import Line, ScriptedBus, calls, done, gives, says

EVERYTHING = Scope(("llm.chat", "market.post", "market.expire", "market.list", "rag.query"))
POST = {"category": "offer", "title": "Water filter", "body": "I can lend it."}
POSTED = {"event_id": "01JZZZZZZZZZZZZZZZZZZZZZ02", "lamport": 1}
WANTS = [calls("market_post", POST, "p"), done("tool_calls")]
ENDS = [says("Posted."), done()]


class Guest(NamedTuple):
    """A client, and the key in its browser."""

    client: Client
    identity: Identity | None = None

    def sign(self, unsigned: dict[str, Any]) -> dict[str, Any]:
        """What the browser sends for the approval that it was shown."""
        assert self.identity is not None
        return sign_approval(self.identity, msgspec.convert(unsigned, Approval)).as_json()


class Tokens(Clients):
    """Mints session tokens for guests, without a book of clients."""

    def __init__(self, bus: ScriptedBus) -> None:
        self._scripted = bus.peer
        self.known: list[Client] = []

    def token(self, client: Client) -> str:
        """The token under which the client's calls go out."""
        return tokens.mint(
            self._scripted.identity,
            subject=self._scripted.identity.node_id,
            audience=self._scripted.community,
            scope=client.scope,
            now_ms=now_ms(),
            ttl_seconds=600,
            principal=client.principal.partition("/")[2],
            cnf=client.key,
        )

    def with_key(self, principal: str, key: str) -> Client | None:
        """The client that is known by this key."""
        known = ((one.principal, one.key) == (principal, key) for one in self.known)
        return next((one for one, fits in zip(self.known, known, strict=True) if fits), None)


class RunsOfClients:
    """Runs of a gateway, as its doors open and decide them."""

    runs: GatewayRuns

    async def open(
        self, client: Client, body: dict[str, Any], hear: Ear, *, waits: bool = True, run_tool: Any = None
    ) -> GatewayRun:
        """A new run, which is not driven yet."""
        return await self.runs.open(client, NewRun(body), Follower(hear, run_tool, waits))

    async def resume(
        self,
        client: Client,
        run: str,
        *,
        waits: bool = True,
        answers: dict[str, ClientResult] | None = None,
        at: GatewayRuns | None = None,
    ) -> GatewayRun:
        """A saved run, which this or another gateway goes on with."""
        return await (at or self.runs).open(
            client, FollowUp(run, {}, answers or {}), Follower(Ear(), None, waits)
        )

    async def decide(
        self,
        client: Client,
        run: str,
        call: str,
        decision: Decision,
        *,
        shown: str = "",
        approval: dict[str, Any] | None = None,
        via: str = "gateway",
        at: GatewayRuns | None = None,
    ) -> dict[str, Any]:
        """The decision that counts after this one."""
        given = DecisionBody(shown=shown, approval=approval, **msgspec.to_builtins(decision))
        return await (at or self.runs).decide(client, run, call, given, via)


class House(RunsOfClients):
    """A gateway, its node's store, and what its model says."""

    def __init__(self, store: RunStore, *turns: list[Line], **options: Any) -> None:
        self.bus = ScriptedBus(*(turns or (WANTS, ENDS)), tools={"market.post@1.0": gives(POSTED)})
        self.store = store
        self.options = options
        self.tokens = Tokens(self.bus)
        self.runs = self.gateway()

    def gateway(self, **more: Any) -> GatewayRuns:
        """Another process of the gateway, or the same after a restart."""
        return GatewayRuns(self.bus, self.tokens, self.store, **{**self.options, **more})

    def guest(
        self,
        name: str = "anna",
        *,
        own_key: bool = True,
        scope: Scope = EVERYTHING,
        is_owner: bool = False,
    ) -> Guest:
        """A client of this gateway; `is_owner`: a page that the node's owner opened by a link."""
        identity = Identity.generate() if own_key else None
        client = Client(
            id=name,
            name=name,
            principal=f"{self.bus.peer.identity.node_id}/{name}",
            key="" if identity is None else identity.node_id,
            scope=scope,
            expires_at=now_ms() + 3_600_000,
            is_owner=is_owner,
        )
        self.tokens.known.append(client)
        return Guest(client, identity)


def ask(*tools: Any) -> dict[str, Any]:
    """A request of llm.chat as a client sends it."""
    wanted = list(tools) or ["market_post"]
    return {
        "params": {},
        "input": {"messages": [{"role": "user", "content": "Lend it."}], "tools": wanted},
    }


class Ear:
    """A client that listens."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._changed = asyncio.Event()

    async def __call__(self, frame: dict[str, Any]) -> None:
        """Hears a frame."""
        self.frames.append(frame)
        self._changed.set()

    def all(self, event: str) -> list[dict[str, Any]]:
        """The data of all frames of that kind."""
        return [frame["data"] for frame in self.frames if frame["event"] == event]

    async def heard(self, event: str, count: int = 1) -> dict[str, Any]:
        """The data of the `count`th frame of that kind, when it is there."""
        async with asyncio.timeout(30):
            while len(self.all(event)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.all(event)[count - 1]


def driving(run: GatewayRun) -> asyncio.Task[Outcome]:
    """The run, under way."""
    return run.drive()
