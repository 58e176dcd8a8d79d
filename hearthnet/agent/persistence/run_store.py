"""The port of the store of runs, and its implementation in memory (docs/decisions/0070).

A run is one document, replaced by compare-and-set on its revision; a process with an older revision no
longer drives the run. Decisions about its calls are stored beside it, each once: that does not require
driving the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import msgspec

from hearthnet.trust.audit_chain import AuditEntry

Wake = Callable[[], None]
Stop = Callable[[], Awaitable[None]]


class StoredDocument(NamedTuple):
    """A stored document, and the revision under which to replace it."""

    data: bytes
    revision: int


class Superseded(Exception):
    """Raised when another process has saved this run since; nothing was saved."""


class RunStore(Protocol):
    """The runs of one node.

    Raises:
        HearthNetError: all methods raise `partition` if the outcome is not known in time; those that write
            raise `capacity_exceeded` if there is no room and `payload_too_large` for a document that is too
            large.
    """

    async def load(self, run: str) -> StoredDocument | None:
        """Return the run as it was saved last; None where none is stored under that id."""

    async def save(self, run: str, data: bytes, revision: int) -> int:
        """Replace the document of `revision` (0: none); return the new revision once on the disk.

        Raises:
            Superseded: The stored document has another revision.
        """

    async def runs(self) -> list[str]:
        """Return the ids of all stored runs, oldest first."""

    async def version(self) -> int:
        """Return a number that grows with every save and every decision."""

    async def load_decision(self, run: str, confirmation_id: str) -> bytes | None:
        """Return the decision about a call; None where there is none."""

    async def save_decision(self, run: str, confirmation_id: str, data: bytes) -> bytes:
        """Store a decision, once; return the stored one: this decision or an earlier one."""

    async def watch(self, run: str, wake: Wake) -> Stop:
        """Call `wake` whenever another process has decided about `run` or taken it over."""

    async def notify(self, run: str) -> None:
        """Wake the processes that watch `run`."""

    async def audit_position(self) -> int:
        """Return the number of entries in the audit log."""

    async def append_audit(self, entry: AuditEntry, since: int) -> int:
        """Append `entry` unless one of its kind and `call` follows number `since`.

        Returns the number of the entry.
        """

    async def audit_entries(self, run: str, since: int) -> list[AuditEntry]:
        """Return the entries about `run` after number `since`, each `ended` with its `began`."""


class MemoryRuns:
    """Runs in the memory of this process."""

    def __init__(self) -> None:
        self._runs: dict[str, StoredDocument] = {}
        self._said: dict[tuple[str, str], bytes] = {}
        self._watching: dict[str, list[Wake]] = {}
        self._log: list[AuditEntry] = []
        self._saves = 0

    async def load(self, run: str) -> StoredDocument | None:
        """Implement `RunStore.load`."""
        await asyncio.sleep(0)  # let other tasks run, as any other store does
        return self._runs.get(run)

    async def save(self, run: str, data: bytes, revision: int) -> int:
        """Implement `RunStore.save`."""
        await asyncio.sleep(0)
        kept = self._runs.get(run)
        if (kept.revision if kept else 0) != revision:
            raise Superseded
        self._runs[run] = StoredDocument(data, revision + 1)
        self._saves += 1
        return revision + 1

    async def runs(self) -> list[str]:
        """Implement `RunStore.runs`."""
        return list(self._runs)

    async def version(self) -> int:
        """Implement `RunStore.version`."""
        return self._saves + len(self._said)

    async def load_decision(self, run: str, confirmation_id: str) -> bytes | None:
        """Implement `RunStore.load_decision`."""
        return self._said.get((run, confirmation_id))

    async def save_decision(self, run: str, confirmation_id: str, data: bytes) -> bytes:
        """Implement `RunStore.save_decision`."""
        return self._said.setdefault((run, confirmation_id), data)

    async def watch(self, run: str, wake: Wake) -> Stop:
        """Implement `RunStore.watch`."""
        watching = self._watching.setdefault(run, [])
        watching.append(wake)

        async def stop() -> None:
            watching.remove(wake)

        return stop

    async def notify(self, run: str) -> None:
        """Implement `RunStore.notify`."""
        for wake in self._watching.get(run, ()):
            wake()

    async def audit_position(self) -> int:
        """Implement `RunStore.audit_position`."""
        return len(self._log)

    async def append_audit(self, entry: AuditEntry, since: int) -> int:
        """Implement `RunStore.append_audit`."""
        for there in self._log[since:]:
            if (there.kind, there.call) == (entry.kind, entry.call):
                return there.sequence
        self._log.append(msgspec.structs.replace(entry, sequence=len(self._log) + 1))
        return len(self._log)

    async def audit_entries(self, run: str, since: int) -> list[AuditEntry]:
        """Implement `RunStore.audit_entries`."""
        return entries_of(run, self._log[since:])


def entries_of(run: str, log: list[AuditEntry]) -> list[AuditEntry]:
    """Return the entries of `log` about `run`, each `ended` with its `began`."""
    began = {entry.sequence for entry in log if entry.run == run}
    return [entry for entry in log if entry.run == run or entry.began in began]
