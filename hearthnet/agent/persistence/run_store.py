"""The port of the store of runs (docs/decisions/0070).

A run is one document, replaced by compare-and-set on its revision; a process with an older revision no
longer drives the run. Decisions about its calls are stored beside it, each once: that does not require
driving the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

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


def entries_of(run: str, log: list[AuditEntry]) -> list[AuditEntry]:
    """Return the entries of `log` about `run`, each `ended` with its `began`."""
    began = {entry.sequence for entry in log if entry.run == run}
    return [entry for entry in log if entry.run == run or entry.began in began]
