"""Runs that are kept, for tests: executors as processes of one node, and a store between them."""

from __future__ import annotations

from typing import Any

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.builtin import builtin_tools
from tests.agent.scripted import PROVIDER, Handler, Line, Peer, ScriptedBus, calls, done, gives

QUESTION: dict[str, Any] = {"params": {}, "input": {"messages": [{"role": "user", "content": "Lend it."}]}}
POST = {"category": "offer", "title": "Water filter", "body": "I can lend it."}
POSTED = {"event_id": "01JZZZZZZZZZZZZZZZZZZZZZ02", "lamport": 1}
WANTS = [calls("market_post", POST, "p"), done("tool_calls")]
TOOLS = ["search_corpus", "market_post", "market_expire"]


class Node:
    """One node: its key, its store, the scripts of its model, and every executor that was started on it."""

    def __init__(
        self, store: RunStore, *turns: list[Line], tools: dict[str, Handler | list[Line]] | None = None
    ) -> None:
        self.store = store
        self.bus = ScriptedBus(*turns, tools={"market.post@1.0": gives(POSTED), **(tools or {})})

    @property
    def peer(self) -> Peer:
        return self.bus.peer

    @property
    def posts(self) -> list[Any]:
        """The posts that reached the provider."""
        return [call for call in self.bus.calls if call.capability == "market.post@1.0"]

    def executor(self, limits: Limits | None = None, **options: Any) -> ToolExecutor:
        """What a process of the node starts."""
        tools = builtin_tools(TOOLS, {"search_corpus": {"corpus": "system"}})
        return ToolExecutor(self.bus, tools, store=self.store, limits=limits, **options)

    def saved(self, **options: Any) -> SavedRuns:
        """The runs of the node as another process of it sees them."""
        return SavedRuns(self.store, self.peer.identity, self.peer.community, **options)


__all__ = ["POST", "POSTED", "PROVIDER", "QUESTION", "WANTS", "Node"]
