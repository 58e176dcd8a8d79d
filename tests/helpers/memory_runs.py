"""Runs in the memory of one process, for tests of what uses a store of runs."""

from __future__ import annotations

import asyncio

import msgspec

from hearthnet.agent.persistence.run_store import Stop, StoredDocument, Superseded, Wake, entries_of
from hearthnet.trust.audit_chain import AuditEntry


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
