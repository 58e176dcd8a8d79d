"""Sources of the service's data: calls over the bus, made when a request needs them.

Results are kept for a moment, so that ten requests of a model in a row cause one round of calls. They contain
all that this node may see; `visibility.py` filters them for each caller.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from hearthnet import Bus, HearthNetError, Home
from hearthnet.bus import UNTRACED
from hearthnet.core import living_processes, now_ms
from hearthnet_mesh.snapshot import Snapshot
from hearthnet_mesh.trace_queries import TraceStep

CACHE_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 1.5
"""Time after which a source is left out; the reply names it."""
MOST_STEPS: Final = 1_000
MOST_POSTS: Final = 500
T = TypeVar("T")


class Gathered(msgspec.Struct, frozen=True):
    """Rows, each with the node that returned it, and a line for each source without a reply.

    `at_home` has those lines about this node, each with the corpus that it is about, if any: what they say is
    for the home.
    """

    rows: tuple[tuple[str, dict[str, Any]], ...]
    missing: tuple[str, ...] = ()
    at_home: tuple[tuple[str | None, str], ...] = ()


class CachedAnswer(Generic[T]):
    """The last result of `ask`, kept for `CACHE_SECONDS`; concurrent requests share one call."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking = asyncio.Lock()
        self._until = 0.0
        self._last: list[T] = []

    async def get(self) -> T:
        """Return the last result or a new one; errors of `ask` are raised and not kept."""
        async with self._asking:
            clock = asyncio.get_running_loop().time
            if not self._last or clock() >= self._until:
                self._last = [await self._ask()]
                self._until = clock() + CACHE_SECONDS
            return self._last[0]


class Sources:
    """The mesh as visible to this node."""

    def __init__(self, bus: Bus, home: Home) -> None:
        self._bus = bus
        self._home = home
        self._seen: dict[str, int] = {}
        self.snapshot: Final = CachedAnswer(self._snapshot)
        self.steps: Final = CachedAnswer(self._steps)
        self.posts: Final = CachedAnswer(self._posts)
        self.corpora: Final = CachedAnswer(self._corpora)
        self.documents: Final = CachedAnswer(self._documents)

    async def _snapshot(self) -> Snapshot:
        offers = await self._bus.offers()
        peer = self._bus.peer
        now = now_ms()
        self._seen.update({view.node: now for view in offers})
        self._seen[peer.node_id] = now
        return Snapshot(peer.node_id, peer.roster, tuple(offers), dict(self._seen))

    async def _steps(self) -> list[TraceStep]:
        """Return the newest steps of this node's processes.

        A process that ends or does not reply is left out.
        """
        instances = living_processes(self._home)
        found = await asyncio.gather(*(self._steps_of(instance) for instance in instances))
        return [step for steps in found for step in steps]

    async def _steps_of(self, instance: str) -> list[TraceStep]:
        body = {"params": {}, "input": {"limit": MOST_STEPS}}
        try:
            output = await self._ask(UNTRACED, body, self._bus.peer.node_id, instance=instance)
        except HearthNetError:
            return []
        return msgspec.convert(output["steps"], list[TraceStep])

    async def _posts(self) -> Gathered:
        """Return the posts of one market, preferably that of this node, as any caller gets them."""
        body = {"params": {}, "input": {"limit": MOST_POSTS}}
        try:
            output = await self._ask("market.list@1.0", body)
        except HearthNetError as error:
            return Gathered((), () if error.code == "not_found" else (f"posts: {error.message}",))
        return Gathered(tuple((post["author"], post) for post in output["posts"]))

    async def _corpora(self) -> Gathered:
        body: dict[str, Any] = {"params": {}, "input": {}}
        found = await self._bus.gather("rag.list_corpora@1.0", body, timeout_seconds=ANSWER_SECONDS)
        return self._rows([found], "corpora")

    async def _documents(self) -> Gathered:
        """Return the documents of the corpora that are listed, of each home as many as of every other.

        The number of private corpora here does not change which others are left out.
        """
        listed, snapshot = await self.corpora.get(), await self.snapshot.get()
        offering = {view.node for view in snapshot.offers if view.capability.name == "rag.list_documents"}
        own, shared = snapshot.own, snapshot.shared_corpora()
        groups: dict[str, list[tuple[str, dict[str, Any]]]] = {"shared": [], "private": [], "elsewhere": []}
        for node, corpus in listed.rows:
            if node in offering:
                is_shared = "shared" if corpus["name"] in shared else "private"
                call = node, {"params": {"corpus": corpus["name"]}, "input": {}}
                groups[is_shared if node == own else "elsewhere"].append(call)
        found = await asyncio.gather(
            *(
                self._bus.gather_from("rag.list_documents@1.0", calls, timeout_seconds=ANSWER_SECONDS)
                for calls in groups.values()
            )
        )
        rows = self._rows(found, "documents")
        return Gathered(rows.rows, (*listed.missing, *rows.missing), (*listed.at_home, *rows.at_home))

    def _rows(self, found: Iterable[Any], key: str) -> Gathered:
        """Return the rows under `key` of all replies, and the lines about those that are missing."""
        own, every = self._bus.peer.node_id, [one for gathered in found for one in gathered.providers]
        rows = [
            (one.node, {**one.body["params"], **row})
            for one in every
            for reply in one.replies
            for row in reply.output[key]
        ]
        at_home: list[tuple[str | None, str]] = []
        missing: list[str] = []
        left_out = Counter(one.node == own for one in every if one.state == "not_asked")
        if left_out[False]:
            missing.append(f"{key}: {left_out[False]} more were not asked")
        for one in every:
            line = f"{key} of {one.node}: {one.reason}"
            if one.state == "not_asked":
                line = f"{key}: {left_out[True]} more of this node were not asked"
            if one.node == own and one.state != "answered":
                at_home.append((one.body["params"].get("corpus"), line))
            elif one.state in ("failed", "silent"):
                missing.append(line)
        return Gathered(tuple(rows), tuple(missing), tuple(at_home))

    async def _ask(
        self, capability: str, body: dict[str, Any], node: str = "", instance: str = ""
    ) -> dict[str, Any]:
        reply = await self._bus.call(
            capability, body, node=node, instance=instance, timeout_seconds=ANSWER_SECONDS
        )
        output: dict[str, Any] = reply.output
        return output
