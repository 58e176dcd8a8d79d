"""Which homes offer their corpora themselves now, and when to ask one for news."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Final

from hearthnet import Bus
from hearthnet.core import TaskSet
from hearthnet_rag.mirror.transfer import MANIFEST

QUERY: Final = "rag.query@1.0"
SETTLE_SECONDS: Final = 3.0
"""Time after the begin in which every home counts as present: the first find takes up to two seconds."""


class OriginalOffers:
    """The offers of other homes, followed from `begin` on.

    `on_home` is called with a home whose contents appeared or changed, `on_change` when a corpus is offered
    or no longer is.
    """

    def __init__(
        self, bus: Bus, tasks: TaskSet, on_home: Callable[[str], None], on_change: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._on_home = on_home
        self._on_change = on_change
        self._begun = self._settled = False
        self._originals: dict[tuple[str, str], set[object]] = {}

    def begin(self) -> None:
        """Begin to follow the offers, if that has not begun."""
        if self._begun:
            return
        self._begun = True
        context = contextvars.Context()  # not that of a call, which has an end
        context.run(self._tasks.keep, self._watch_homes, "homes with copies here")
        context.run(self._tasks.keep, self._watch_originals, "originals of copies")
        context.run(self._tasks.keep, self._settle, "first look for originals")

    def offers(self, home: str, corpus: str) -> bool:
        """Return whether `home` itself offers its corpus, as far as that is known."""
        return not self._settled or bool(self._originals.get((home, corpus)))

    async def _settle(self) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        self._settled = True
        self._on_change()

    async def _watch_homes(self) -> None:
        async with self._bus.watch(MANIFEST) as changes:
            async for change in changes:
                if change.event != "gone":
                    self._on_home(change.view.node)

    async def _watch_originals(self) -> None:
        self._originals.clear()
        async with self._bus.watch(QUERY) as changes:
            async for change in changes:
                view = change.view
                if "copy_of" in view.params:
                    continue
                known = self._originals.setdefault((view.node, view.params["corpus"]), set())
                before = bool(known)
                (known.discard if change.event == "gone" else known.add)(view.key)
                if before != bool(known):
                    self._on_change()
