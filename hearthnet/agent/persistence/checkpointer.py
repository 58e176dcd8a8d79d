"""The saving of one run that is driven here (docs/decisions/0070).

The process that drives a run has its revision. A save that finds another revision ends the driving, and
nothing more is done: another process is responsible for the run then.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from hearthnet.agent.loop.approvals import pending_of
from hearthnet.agent.loop.events import DecisionMade
from hearthnet.agent.loop.state import CallPhase, CallState, RunState
from hearthnet.agent.persistence.decision_log import DecisionLog
from hearthnet.agent.persistence.run_record import RunRecord, Sealer, unseal
from hearthnet.agent.persistence.run_store import RunStore, Stop, Superseded, Wake
from hearthnet.agent.tools.providers import prepare_edited
from hearthnet.agent.tools.toolbox import Prepared, Toolbox
from hearthnet.agent.tools.types import Decision, Edit, PendingApproval
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust.keys import Identity

TAKEN_OVER: Final = "taken_over"
_log: Final = logging.getLogger(__name__)


class Checkpointer:
    """The record of one run and its place in the store."""

    def __init__(
        self,
        store: RunStore,
        identity: Identity,
        decision_log: DecisionLog,
        toolbox: Toolbox,
        record: RunRecord,
        revision: int = 0,
    ) -> None:
        """Create the checkpointer; `revision` is that of `record`, 0 for a run that was never saved."""
        self.record = record
        self._store = store
        self._identity = identity
        self._decision_log = decision_log
        self._toolbox = toolbox
        self._revision = revision
        self._sealer = Sealer(record, identity.runs_key())
        self._point: Any = None
        self._calls: dict[str, CallState] = {}
        self.writer = record.writer = ids.new_ulid()

    @property
    def state(self) -> RunState:
        """The run's present state."""
        return self.record.state

    @property
    def saved(self) -> bool:
        """Return whether the run is in the store."""
        return self._revision > 0

    def needs_save(self) -> bool:
        """Return whether the run has reached another decision point since it was saved.

        A run without calls is not saved: it holds only the question.
        """
        return self.state.call_count > 0 and self._present_point() != self._point

    async def save(self) -> None:
        """Save the run in its present state.

        Raises:
            HearthNetError: `bad_request` (`taken_over`) if another process has saved it since; `partition`,
                `capacity_exceeded` or `payload_too_large` if it is not on the disk.
        """
        point = self._present_point()
        self._calls |= {call.id: call for call in self.state.calls}
        self.record.note(list(self._calls.values()))
        self.record.saved_at = now_ms()
        try:
            self._revision = await self._store.save(
                self.record.run, self._sealer.seal(self.record), self._revision
            )
        except Superseded:
            raise takeover_error(self.record.run) from None
        self._calls = {name: call for name, call in self._calls.items() if call.open}
        self._point = point

    def skip(self) -> None:
        """Leave this decision point unsaved."""
        self._point = self._present_point()

    def _present_point(self) -> Any:
        state = self.state
        return (
            state.phase,
            state.iteration,
            [(call.id, call.phase, call.edits, call.provider) for call in state.calls],
        )

    async def watch(self, wake: Wake) -> Stop:
        """Call `wake` when another process has decided about the run or taken it over."""
        return await self._store.watch(self.record.run, wake)

    async def notify(self) -> None:
        """Notify the process that drove the run so far.

        If this fails, that process finds out at its next save.
        """
        try:
            await self._store.notify(self.record.run)
        except HearthNetError as error:
            _log.warning("run %s: %s", self.record.run, error.message)

    async def check(self) -> None:
        """Check that no other process has taken over the run.

        Raises:
            HearthNetError: `bad_request` (`taken_over`) if another process has saved it since.
        """
        stored = await self._store.load(self.record.run)
        if stored is None or stored.revision <= self._revision:
            return
        if unseal(stored.data, self.record.run, self._identity).writer != self.writer:
            raise takeover_error(self.record.run)

    async def decisions(self) -> list[DecisionMade]:
        """Return the decisions about the waiting calls, after putting them into the audit log.

        A decision about a call with another digest than the one shown does not count.
        """
        found = []
        for call in list(self.state.calls):
            if call.phase is CallPhase.PENDING:
                asked = pending_of(self.state.run, call)
                signed = await self._decision_log.find(asked)
                if signed is not None and signed.shown == asked.arguments_digest:
                    await self._decision_log.audit(signed)
                    found.append(signed.event)
        return found

    async def decide(self, asked: PendingApproval, decision: Decision) -> DecisionMade | None:
        """Store the decision of the person here; return the one that counts.

        None for an edit that is not valid and an approval that comes too late, which the loop handles:
        neither is a decision.
        """
        digest = asked.arguments_digest
        if isinstance(decision, Edit):
            tool = self._toolbox[asked.name]
            prepared = prepare_edited(tool, asked.arguments, decision.arguments, asked.client_id)
            if not isinstance(prepared, Prepared):
                return None
            digest = prepared.arguments_digest
        try:
            stored = await self._decision_log.put(asked, decision, self.record.via, digest)
        except HearthNetError as error:
            if error.code != "expired":
                raise
            return None
        return stored.signed.event


def takeover_error(run: str) -> HearthNetError:
    """Return the error of a process that no longer drives the run."""
    return HearthNetError(
        "bad_request",
        f"another process drives the run {run} now and goes on with it; see: hearthnet runs show {run}",
        details={"rule": TAKEN_OVER, "run": run},
    )
