"""Which homes offer their corpora themselves now, and when to ask one for news."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterable
from typing import Final

from hearthnet import Bus, HearthNetError
from hearthnet.core import TaskSet
from hearthnet_rag.mirror.transfer import MANIFEST

QUERY: Final = "rag.query@1.0"
SETTLE_SECONDS: Final = 3.0
"""Time after the begin in which every home counts as present: the first find takes up to two seconds."""
LOOK_SECONDS: Final = 5.0
"""Pause between looks whether homes with copies here are there: an offer outlives its home by 30 s."""
_BEHIND_ALL: Final = 1_000_000
"""A place behind the last document, so that none is listed."""


class OriginalOffers:
    """The offers of other homes, followed from `begin` on.

    `copied` returns home and corpus of each copy here. `on_home` is called with a home whose contents
    appeared or changed, `on_change` when a corpus is offered or no longer is.
    """

    def __init__(
        self,
        bus: Bus,
        tasks: TaskSet,
        copied: Callable[[], Iterable[tuple[str, str]]],
        on_home: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._tasks = tasks
        self._copied = copied
        self._on_home = on_home
        self._on_change = on_change
        self._begun = self._settled = False
        self._originals: dict[tuple[str, str], frozenset[object]] = {}

    def begin(self) -> None:
        """Begin to follow the offers, if that has not begun."""
        if self._begun:
            return
        self._begun = True
        context = contextvars.Context()  # not that of a call, which has an end
        context.run(self._tasks.keep, self._watch_homes, "homes with copies here")
        context.run(self._tasks.keep, self._watch_originals, "originals of copies")
        context.run(self._tasks.keep, self._look, "homes that are there")
        context.run(self._tasks.keep, self._settle, "first look for originals")

    def offers(self, home: str, corpus: str) -> bool:
        """Return whether `home` itself offers its corpus, as far as that is known."""
        return not self._settled or bool(self._originals.get((home, corpus)))

    async def _settle(self) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        self._settled = True
        self._on_change()

    async def _look(self) -> None:
        """Call each home that offers an original: the offers of one that is away end with that call."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            corpora = {home: corpus for home, corpus in self._copied() if self._originals.get((home, corpus))}
            await asyncio.gather(*map(self._ask, corpora, corpora.values()))

    async def _ask(self, home: str, corpus: str) -> None:
        body = {"params": {"corpus": corpus}, "input": {"offset": _BEHIND_ALL}}
        with contextlib.suppress(HearthNetError):  # what it says does not matter here
            await self._bus.call(MANIFEST, body, node=home, timeout_seconds=LOOK_SECONDS)

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
                name = view.node, view.params["corpus"]
                known = self._originals.get(name, frozenset())
                now = known - {view.key} if change.event == "gone" else known | {view.key}
                if now:
                    self._originals[name] = now
                else:  # a home may offer corpora of ever new names
                    self._originals.pop(name, None)
                if bool(known) != bool(now):
                    self._on_change()
