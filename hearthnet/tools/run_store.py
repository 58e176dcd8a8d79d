"""Where runs are kept: the port, and the implementation in memory (docs/decisions/0070).

A run is one document, replaced by compare-and-set on its revision; whoever has an old one drives the run no
more. What people say about its calls stands beside it, each word once: that needs no right to drive the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import msgspec

from hearthnet.trust.audit import Entry

Wake = Callable[[], None]
Stop = Callable[[], Awaitable[None]]


class Kept(NamedTuple):
    """A stored document, and the revision to replace it by."""

    data: bytes
    revision: int


class Superseded(Exception):
    """Not saved: somebody else has saved this run since."""


class RunStore(Protocol):
    """The runs of one node.

    Everything raises `partition` where it is not known in time what happened, and what writes
    `capacity_exceeded` where there is no room and `payload_too_large` for what does not fit.
    """

    async def load(self, run: str) -> Kept | None:
        """The run as it was saved last; None where none is kept under that id."""

    async def save(self, run: str, data: bytes, revision: int) -> int:
        """Replaces what was saved at `revision` (0: nothing); the new revision, once it is on the disk.

        Raises `Superseded` where something else stands there.
        """

    async def runs(self) -> list[str]:
        """The ids of all runs that are kept, oldest first."""

    async def mark(self) -> int:
        """A number that is larger whenever a run was saved or something was decided since."""

    async def said(self, run: str, confirmation_id: str) -> bytes | None:
        """What was decided about a call; None where nothing was."""

    async def say(self, run: str, confirmation_id: str, data: bytes) -> bytes:
        """Writes a decision down, once; returns what stands there: this one, or the one that was first."""

    async def watch(self, run: str, wake: Wake) -> Stop:
        """Calls `wake` whenever somebody else has decided something about `run`, or taken it over."""

    async def tell(self, run: str) -> None:
        """Wakes those who watch `run`."""

    async def place(self) -> int:
        """How many entries the audit log has."""

    async def note(self, entry: Entry, since: int) -> int:
        """Puts `entry` on record, once: not where one of its kind and `call` stands after number `since`."""

    async def noted(self, run: str, since: int) -> list[Entry]:
        """The entries about `run` after number `since`, each `ended` with its `began`."""


class MemoryRuns:
    """Runs kept in this process, for as long as it lives."""

    def __init__(self) -> None:
        self._runs: dict[str, Kept] = {}
        self._said: dict[tuple[str, str], bytes] = {}
        self._watching: dict[str, list[Wake]] = {}
        self._log: list[Entry] = []
        self._saves = 0

    async def load(self, run: str) -> Kept | None:
        """As `RunStore.load`."""
        await asyncio.sleep(0)  # others have their turn, as with any other store
        return self._runs.get(run)

    async def save(self, run: str, data: bytes, revision: int) -> int:
        """As `RunStore.save`."""
        await asyncio.sleep(0)
        kept = self._runs.get(run)
        if (kept.revision if kept else 0) != revision:
            raise Superseded
        self._runs[run] = Kept(data, revision + 1)
        self._saves += 1
        return revision + 1

    async def runs(self) -> list[str]:
        """As `RunStore.runs`."""
        return list(self._runs)

    async def mark(self) -> int:
        """As `RunStore.mark`."""
        return self._saves + len(self._said)

    async def said(self, run: str, confirmation_id: str) -> bytes | None:
        """As `RunStore.said`."""
        return self._said.get((run, confirmation_id))

    async def say(self, run: str, confirmation_id: str, data: bytes) -> bytes:
        """As `RunStore.say`."""
        return self._said.setdefault((run, confirmation_id), data)

    async def watch(self, run: str, wake: Wake) -> Stop:
        """As `RunStore.watch`."""
        watching = self._watching.setdefault(run, [])
        watching.append(wake)

        async def stop() -> None:
            watching.remove(wake)

        return stop

    async def tell(self, run: str) -> None:
        """As `RunStore.tell`."""
        for wake in self._watching.get(run, ()):
            wake()

    async def place(self) -> int:
        """As `RunStore.place`."""
        return len(self._log)

    async def note(self, entry: Entry, since: int) -> int:
        """As `RunStore.note`."""
        for there in self._log[since:]:
            if (there.kind, there.call) == (entry.kind, entry.call):
                return there.sequence
        self._log.append(msgspec.structs.replace(entry, sequence=len(self._log) + 1))
        return len(self._log)

    async def noted(self, run: str, since: int) -> list[Entry]:
        """As `RunStore.noted`."""
        return entries_of(run, self._log[since:])


def entries_of(run: str, log: list[Entry]) -> list[Entry]:
    """The entries of `log` about `run`, each `ended` with its `began`."""
    began = {entry.sequence for entry in log if entry.run == run}
    return [entry for entry in log if entry.run == run or entry.began in began]
