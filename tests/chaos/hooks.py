"""Steps and sabotage, put around what a worker uses of the product, which knows nothing of them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from hearthnet.agent.loop.state import CallPhase, Phase, RunState
from hearthnet.agent.persistence.run_record import unseal
from hearthnet.agent.persistence.run_store import RunStore, Stop, StoredDocument, Superseded, Wake
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.keys import Identity
from tests.chaos import steps

Step = Callable[[str], Awaitable[None]]


def around(
    owner: type | ModuleType,
    name: str,
    before: Callable[..., None] | None,
    after: Callable[..., None] | None,
) -> None:
    """Has `owner.name` call these with its arguments."""
    inner = getattr(owner, name)

    def plain(*args: Any, **named: Any) -> Any:
        if before is not None:
            before(*args, **named)
        result = inner(*args, **named)
        if after is not None:
            after(*args, **named)
        return result

    async def outer(*args: Any, **named: Any) -> Any:
        if before is not None:
            before(*args, **named)
        result = await inner(*args, **named)
        if after is not None:
            after(*args, **named)
        return result

    setattr(owner, name, outer if inspect.iscoroutinefunction(inner) else plain)


def replace(owner: type | ModuleType, name: str, by: Callable[..., Any]) -> None:
    """Puts `by` in the place of `owner.name`."""
    setattr(owner, name, by)


def worth(state: RunState) -> str:
    """What makes a run in this state worth saving, one of `steps.SAVES`."""
    phases = {call.phase for call in state.calls if call.effect}
    if state.phase is Phase.ENDED:
        return "the end"
    if state.phase is Phase.SUSPENDED:
        return "a suspension"
    if CallPhase.RUNNING in phases:
        return "a claim"
    return "a question" if CallPhase.PENDING in phases else "an outcome"


class SteppedRuns:
    """A store of runs with steps around its writes; `say` are the steps around a decision."""

    def __init__(
        self, inner: RunStore, identity: Identity, step: Step, say: tuple[str, str], sabotage: str = ""
    ) -> None:
        self._inner = inner
        self._identity = identity
        self._step = step
        self._before, self._after = say
        self._sabotage = sabotage

    async def save(self, run: str, data: bytes, revision: int) -> int:
        """As `RunStore.save`, between two steps."""
        what = worth(unseal(data, run, self._identity).state)
        await self._step(steps.saving(what))
        new = await self._save(what, run, data, revision)
        await self._step(steps.saved(what))
        return new

    async def _save(self, what: str, run: str, data: bytes, revision: int) -> int:
        if self._sabotage == "nothing is saved" or (self._sabotage == "no claim" and what == "a claim"):
            return revision
        while True:
            try:
                return await self._inner.save(run, data, revision)
            except Superseded:
                kept = await self._inner.load(run)
                if self._sabotage != "two drivers" or kept is None:
                    raise
                revision = kept.revision

    async def save_decision(self, run: str, confirmation_id: str, data: bytes) -> bytes:
        """As `RunStore.save_decision`, between two steps."""
        await self._step(self._before)
        if self._sabotage != "a decision is lost":
            data = await self._inner.save_decision(run, confirmation_id, data)
        await self._step(self._after)
        return data

    async def load(self, run: str) -> StoredDocument | None:
        """As `RunStore.load`."""
        return await self._inner.load(run)

    async def runs(self) -> list[str]:
        """As `RunStore.runs`."""
        return await self._inner.runs()

    async def version(self) -> int:
        """As it is."""
        return await self._inner.version()

    async def load_decision(self, run: str, confirmation_id: str) -> bytes | None:
        """As `RunStore.load_decision`."""
        return await self._inner.load_decision(run, confirmation_id)

    async def watch(self, run: str, wake: Wake) -> Stop:
        """As `RunStore.watch`."""
        if self._sabotage == "two drivers":
            return await self._inner.watch(run, _deaf)
        return await self._inner.watch(run, wake)

    async def notify(self, run: str) -> None:
        """As `RunStore.notify`."""
        await self._inner.notify(run)

    async def audit_position(self) -> int:
        """As `RunStore.audit_position`."""
        return await self._inner.audit_position()

    async def append_audit(self, entry: AuditEntry, since: int) -> int:
        """As `RunStore.append_audit`."""
        return await self._inner.append_audit(entry, since)

    async def audit_entries(self, run: str, since: int) -> list[AuditEntry]:
        """As `RunStore.audit_entries`."""
        return await self._inner.audit_entries(run, since)


def _deaf() -> None:
    """Hears nothing."""
