"""Our side of the measured turn: the executor as it is shipped, with a model that has its lines by heart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.types import ClientCallRequest, ToolDefinition
from hearthnet.bus.bus import Bus
from hearthnet.trust.keys import Identity
from tests.bench.loop_rivals import Turn
from tests.bench.loop_turn import ANSWER, CALLS, QUESTION, RESULTS
from tests.helpers.memory_runs import MemoryRuns

Calls = Sequence[tuple[str, str, dict[str, Any]]]
BODY: dict[str, Any] = {"params": {}, "input": {"messages": [{"role": "user", "content": QUESTION}]}}
_DONE: dict[str, Any] = {"model": "bench", "tokens_in": 1, "tokens_out": 1, "stop_reason": "end", "ms": 0}
_MOST_SECONDS = 30


class Frame(msgspec.Struct, frozen=True):
    """A frame of the model."""

    event: str
    data: dict[str, Any]
    signed_by: str = ""
    entry: str = ""


class Script:
    """One turn of the model; after a call it waits for `until`."""

    def __init__(self, frames: Sequence[Frame], until: asyncio.Event) -> None:
        self._frames, self._until, self._waits = iter(frames), until, False
        self.called_ns = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        if self._waits and not self._until.is_set():
            async with asyncio.timeout(_MOST_SECONDS):
                await self._until.wait()
        frame = next(self._frames, None)
        if frame is None:
            raise StopAsyncIteration
        self.called_ns = self.called_ns or time.monotonic_ns()
        self._waits = frame.event == "tool_call"
        return frame


class ScriptedModel:
    """The calls, and after their results the answer."""

    def __init__(self, calls: Calls = CALLS) -> None:
        self.until = asyncio.Event()
        self.until.set()
        ended = Frame("done", _DONE)
        called = [
            Frame("tool_call", {"id": id, "name": name, "arguments": given}) for id, name, given in calls
        ]
        self._turns = [*called, ended], [Frame("token", {"text": ANSWER}), ended]
        self.first = Script((), self.until)

    def stream(self, capability: str, body: dict[str, Any], **_: Any) -> Script:
        """As `Bus.stream`; `first` is the turn with the calls."""
        answered = body["input"]["messages"][-1]["role"] == "tool"
        script = Script(self._turns[answered], self.until)
        if not answered:
            self.first = script
        return script


class _Owner:
    def __init__(self) -> None:
        self.identity = Identity.generate()
        self.community = Identity.generate().node_id


class NoBus(ScriptedModel):
    """Nobody but the model: every tool is one of the application's own."""

    def __init__(self) -> None:
        super().__init__()
        self.peer = _Owner()


class OverTheBus(ScriptedModel):
    """Tools wherever they are offered; only the model is of this process."""

    def __init__(self, bus: Bus, calls: Calls = CALLS) -> None:
        super().__init__(calls)
        self.peer, self.call, self.offers = bus.peer, bus.call, bus.offers


def executor(port: Any, tools: list[ToolDefinition], store: RunStore | None = None) -> ToolExecutor:
    """The executor as an application makes it; `port` has the part of the bus that it uses. Its runs are
    saved: encoded and sealed in any case, and on the disk where `store` is the node's.
    """
    return ToolExecutor(port, tools, store=store or MemoryRuns())


def ours(port: Any, tools: list[ToolDefinition], store: RunStore | None = None) -> Turn:
    """`run_chat_with_tools`, with a listener that is told of every frame; tools that are bound to no
    capability are run here, and return at once.
    """
    runs = executor(port, tools, store)

    async def show(_frame: dict[str, Any]) -> None:
        pass

    async def run_tool(wanted: ClientCallRequest) -> ClientResult:
        return ClientResult(RESULTS[wanted.name])

    async def turn() -> str:
        message = await runs.run_chat_with_tools(BODY, stream_to=show, run_tool=run_tool)
        return str(message["content"])

    return turn
