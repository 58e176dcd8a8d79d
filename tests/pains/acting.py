"""A home with a real server, a scripted model and a provider that counts, for the failure modes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from hearthnet import Call, Stream
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.ports import Clock
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.bus.bus import Bus
from hearthnet.core.times import now_ms
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT_BODY, ProbeService

Turn = list[tuple[str, dict[str, Any]]]
POST = {"category": "offer", "title": "Water filter", "body": "I can lend it."}
QUESTION = CHAT_BODY


def wants(name: str, arguments: dict[str, Any], call_id: str) -> tuple[str, dict[str, Any]]:
    """A model's frame: it calls a tool."""
    return ("tool_call", {"id": call_id, "name": name, "arguments": arguments})


def says(words: str) -> tuple[str, dict[str, Any]]:
    """A model's frame: it says something."""
    return ("token", {"text": words})


def tools() -> list[ToolDefinition]:
    """What every model here may call."""
    return builtin_tools(["search_corpus", "market_post"], {"search_corpus": {"corpus": "probe"}})


def asked_to_confirm() -> ToolDefinition:
    """A tool whose provider promises nothing of repetitions; its caller wants each call confirmed."""
    (search,) = builtin_tools(["search_corpus"], {"search_corpus": {"corpus": "probe"}})
    return ToolDefinition(
        name="foreign",
        description="Does something elsewhere.",
        parameters_schema=search.parameters_schema,
        bound_capability=search.bound_capability,
        bound_version=search.bound_version,
        side_effects=True,
        bound_params=search.bound_params,
    )


class Acting(ProbeService):
    """Offers the model and the market. The model's turn follows from how often it has spoken, so that it says
    the same to whoever asks again; `answered` is waited for before a post is answered.
    """

    def __init__(self, *turns: Turn) -> None:
        super().__init__()
        self.turns = turns
        self.requests: list[list[dict[str, Any]]] = []
        self.talk = self._talk
        self.answered: Callable[[], Any] | None = None

    async def _talk(self, call: Call[Any, Any], stream: Stream) -> None:
        messages = call.body["input"]["messages"]
        self.requests.append(messages)
        spoken = sum(message["role"] == "assistant" for message in messages)
        for event, data in self.turns[spoken]:
            await stream.send(event, data)

    async def start(self, node: Any) -> None:
        """Opens the event log; its appends can be held up after they are done."""
        await super().start(node)
        events = self.events
        if events is None:
            raise RuntimeError("not started")
        append = events.append

        async def held(*given: Any, **more: Any) -> Any:
            recorded = await append(*given, **more)
            if self.answered is not None:
                await self.answered()
            return recorded

        events.append = held  # type: ignore[method-assign]

    def seen(self, name: str = "market.post") -> list[Call[Any, Any]]:
        """The calls of a capability that reached the provider."""
        return [call for call in self.calls if call.contract.name == name]


class _Later(Clock):
    def __init__(self, ms: int) -> None:
        super().__init__()
        self._ms = ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ms


class Scene:
    """The home, as a process of it sees it."""

    def __init__(self, mesh: Mesh, service: Acting, bus: Bus, runs: StoredRuns) -> None:
        self.mesh = mesh
        self.service = service
        self.bus = bus
        self.runs = runs

    def executor(self, more: list[ToolDefinition] | None = None, **options: Any) -> ToolExecutor:
        """A process's executor."""
        return ToolExecutor(self.bus, more or tools(), store=self.runs, **options)

    @property
    def saved(self) -> SavedRuns:
        """The runs as another process sees them."""
        return SavedRuns(self.runs, self.mesh.identity, self.bus.peer.community)

    def later(self, ms: int) -> tuple[ToolExecutor, SavedRuns]:
        """Executor and saved of processes whose clocks are `ms` ahead."""
        executor = self.executor()
        executor._clock = _Later(ms)
        community = self.bus.peer.community
        return executor, SavedRuns(self.runs, self.mesh.identity, community, clock=lambda: now_ms() + ms)

    async def suspended(self, **options: Any) -> str:
        """A run that waits for somebody, its process gone; its id."""
        answer = await self.executor(**options).run_chat_with_tools(QUESTION)
        assert answer["requires_follow_up"] is True
        return str(answer["run"])

    async def effects(self) -> list[str]:
        """The titles of all that was really posted, from the market's log: the effect counter."""
        import msgspec

        async with await self.mesh.store() as store:
            info = await store.js.stream_info("MARKET")
            found = []
            for number in range(1, info.state.messages + 1):
                message = await store.js.get_msg("MARKET", number, direct=True)
                found.append(_title(msgspec.json.decode(message.data or b"{}")))
            return found


def _title(event: Any) -> str:
    """The title, wherever in the event it stands."""
    if isinstance(event, dict):
        if isinstance(event.get("title"), str):
            return str(event["title"])
        return next((found for member in event.values() if (found := _title(member))), "")
    return ""


@contextlib.asynccontextmanager
async def acting(mesh: Mesh, *turns: Turn) -> AsyncIterator[Scene]:
    """The home at work, its model saying these turns."""
    service = Acting(*turns)
    async with mesh.hosting(service), await mesh.bus() as bus, await mesh.store() as store:
        yield Scene(mesh, service, bus, StoredRuns(store, mesh.identity))


class Held:
    """Where a process is held up: reached, until it is let go."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self) -> None:
        """Waits there."""
        self.reached.set()
        await self.go.wait()
