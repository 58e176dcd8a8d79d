"""The executor that may be killed: real, over the real bus; its model and its person follow the schedule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hearthnet.agent.loop.approvals import PendingCalls
from hearthnet.agent.loop.state import CallState, CallStep, Limits
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.runtime.driver import ToolRun
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.ports import AnswerPort, StreamPort
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit, PendingApproval
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.gathering import Gathered
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.store import Store
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from tests.chaos import steps
from tests.chaos.hooks import SteppedRuns, replace
from tests.chaos.line import Line
from tests.chaos.nursery import Order
from tests.chaos.plan import Call, Plan

LATE_MS = 40
"""How long a question lives that is answered late."""
_TOOLS = ("market_post", "list_marketplace", "search_marketplace")
_REQUEST = {"params": {}, "input": {"messages": [{"role": "user", "content": "See to it."}]}}


class _Frame(NamedTuple):
    event: str
    data: dict[str, Any]
    signed_by: str = ""
    entry: str = ""


class _Talk:
    """One turn of the model: what the schedule says comes next."""

    def __init__(self, plan: Plan, messages: list[dict[str, Any]], line: Line) -> None:
        spoken = sum(message["role"] == "assistant" for message in messages)
        self._calls = plan.turns[spoken] if spoken < len(plan.turns) else ()
        self._line = line

    async def __aenter__(self) -> AsyncIterator[_Frame]:
        self._line.step(steps.ASKING)
        return self._frames()

    async def __aexit__(self, *_error: object) -> None:
        return None

    async def _frames(self) -> AsyncIterator[_Frame]:
        yield _Frame("token", {"text": "Very well. "})
        for place, call in enumerate(self._calls):
            yield _Frame("tool_call", {"id": "", "name": call.tool, "arguments": _arguments(call)})
            if place == len(self._calls) // 2:
                await asyncio.sleep(0.005)  # what was called is taken up while the model talks on
                self._line.step(steps.TALKING)
        meta = {"tokens_in": 1, "tokens_out": 1, "ms": 1, "model": "scripted"}
        yield _Frame("done", {**meta, "stop_reason": "tool_calls" if self._calls else "end"})


def _arguments(call: Call) -> dict[str, Any]:
    if call.tool == "search_marketplace":
        return {"query": call.key}
    if call.tool == "list_marketplace":
        return {"limit": 1}
    return {"category": "offer", "title": call.key, "body": "To lend."}


class _SteppedBus:
    """The bus as a run uses it, with the model of the schedule, and steps around every effect."""

    def __init__(self, bus: Bus, plan: Plan, line: Line, sabotage: str) -> None:
        self.peer = bus.peer
        self._bus = bus
        self._plan = plan
        self._line = line
        self._sabotage = sabotage

    async def call(
        self, capability: str, body: dict[str, Any], *, idempotency_key: str = "", **more: Any
    ) -> AnswerPort:
        if not idempotency_key:
            return await self._bus.call(capability, body, **more)
        self._line.step(steps.SENDING)
        if self._sabotage == "arguments are changed":
            body = {**body, "input": {**body["input"], "title": body["input"]["title"] + "!"}}
        reply = await self._bus.call(capability, body, idempotency_key=idempotency_key, **more)
        self._line.step(steps.ANSWERED)
        return reply

    async def gather(self, capability: str, body: dict[str, Any], **more: Any) -> Gathered:
        return await self._bus.gather(capability, body, **more)

    def stream(self, capability: str, body: dict[str, Any], **_more: Any) -> StreamPort:
        return _Talk(self._plan, body["input"]["messages"], self._line)

    async def offers(self, capability: str | None = None) -> list[OfferView]:
        return await self._bus.offers(capability)


class _Person:
    """Who sits at the executor, as the schedule has it."""

    def __init__(self, plan: Plan, line: Line) -> None:
        self._plan = plan
        self._line = line

    async def decide(self, asked: PendingApproval) -> Decision | None:
        """Says what is to be said here and now; nothing where a client says it."""
        call = self._plan.calls[asked.arguments["title"]]
        self._line.step(
            steps.ASKED,
            key=call.key,
            run=asked.run,
            call=asked.tool_call_id,
            digest=asked.arguments_digest,
            expires_at=asked.expires_at,
        )
        if call.how == "meanwhile" and call.word != "silence":
            await asyncio.Event().wait()
        if call.how != "here":
            return None
        if self._plan.late:
            await asyncio.sleep(max(0, asked.expires_at + 1 - now_ms()) / 1000)
        return decision(call, asked.arguments)


def decision(call: Call, arguments: dict[str, Any]) -> Decision | None:
    """What is said about `call`."""
    match call.word:
        case "yes":
            return Approve()
        case "edit":
            return Edit({**arguments, "title": call.title})
        case "no":
            return Deny("not today")
        case _:
            return None


def _ask_nobody() -> None:
    """What waits for a person is taken for confirmed."""
    show: Callable[[PendingCalls, CallState], None] = PendingCalls.show

    def shown(calls: PendingCalls, call: CallState) -> None:
        show(calls, call)
        call.step(CallStep.APPROVED)

    replace(PendingCalls, "show", shown)


async def _main(order: Order, plan: Plan) -> None:
    line = Line(order.socket, order.token)
    if order.sabotage == "nobody is asked":
        _ask_nobody()
    home = Home(Path(order.home))

    async def step(name: str) -> None:
        line.step(name)

    async with (
        await Bus.join(home, order.url, "executor") as bus,
        await Store.join(home, order.url, "runs") as store,
    ):
        identity = bus.peer.identity
        runs = SteppedRuns(
            StoredRuns(store, identity), identity, step, (steps.SAYING, steps.SAID), order.sabotage
        )
        ttl = LATE_MS if plan.late else Limits().confirmation_ttl_ms
        executor = ToolExecutor(
            _SteppedBus(bus, plan, line, order.sabotage),
            builtin_tools(_TOOLS),
            limits=Limits(confirmation_ttl_ms=ttl),
            store=runs,
            via="here",
        )
        person = _Person(plan, line)
        try:
            run: ToolRun = (
                await executor.open_saved(order.run, decide=person.decide)
                if order.run
                else executor.open_run(_REQUEST, decide=person.decide)
            )
            line.tell(run=run.run)
            outcome = await run.drive()
        except HearthNetError as error:
            line.tell(error=msgspec.to_builtins(error.to_body()))
        else:
            line.tell(ended="suspended" if outcome.pending else "done")


def work(order: Order) -> None:
    """Drives one run to its end, unless it is killed before."""
    if order.plan is None:
        raise ValueError("an executor follows a schedule")
    asyncio.run(_main(order, order.plan))
