"""One run that a gateway drives: its creation, decisions and events, and the presence of its client.

A run waits for its client while that is connected, and a while longer. A decision of the client is
{"decision", "shown"?, "arguments"?, "reason"?, "approval"?}.

See: docs/protocol/gateway.md#runs, docs/protocol/gateway.md#follow-ups,
docs/protocol/approvals.md#refusals-on-record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.driver import Outcome, ToolRun
from hearthnet.agent.runtime.ports import Listener, RunTool
from hearthnet.agent.tools.types import Approve, ClientCallRequest, Decision, Deny, Edit, PendingApproval
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization import approval as approvals

NOTED: Final = frozenset({"unauthorized", "invalid_signature", "expired", "not_found"})
"""The codes of refused decisions that the audit log gets."""
_LONGEST: Final = 64


class DecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decision; `shown` is the digest of the call as the client saw it, before an edit.

    An edit has `arguments`; a denial needs neither. `approval` is the signed one of a client with a key.
    """

    decision: Literal["approve", "deny", "edit"]
    shown: str = ""
    arguments: dict[str, Any] | None = None
    reason: str = ""
    approval: dict[str, Any] | None = None

    def decided(self) -> Decision:
        """Return the decision as the tool loop takes it.

        Raises:
            HearthNetError: `bad_request` for an edit without arguments.
        """
        if self.decision == "deny":
            return Deny(self.reason)
        if self.decision == "approve":
            return Approve()
        if self.arguments is None:
            raise HearthNetError(
                "bad_request", "an edit says which arguments it wants", details={"path": "/arguments"}
            )
        return Edit(self.arguments)


def refused_fields(run: str, call: str, approval: Mapping[str, Any] | None, via: str) -> dict[str, str]:
    """Return the fields of an audit entry for a refused decision, without those of a malformed approval."""
    fields = {"call": call[:_LONGEST] or "-", "run": run[:_LONGEST], "via": via}
    with contextlib.suppress(HearthNetError):
        if approval is not None:
            given = approvals.decode(dict(approval))
            fields |= {
                "approval": given.id if ids.is_ulid(given.id) else "",
                "digest": given.arguments_digest[:80],
                "capability": given.capability[:_LONGEST],
            }
    return fields


AWAY_SECONDS: Final = 60.0


class NewRun(NamedTuple):
    """The creation of a run of `body`: a request of `llm.chat`, with tools as in requested_tools.py."""

    body: Mapping[str, Any]


class FollowUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The continuation of a saved run.

    It has decisions, and the results of the client's own tools, by tool call id.
    """

    run: str
    decisions: dict[str, DecisionBody] = {}
    answers: dict[str, ClientResult] = {}


RunRequest = NewRun | FollowUp


class Follower(NamedTuple):
    """The client's end of a run.

    `hear` receives its frames, `run_tool` has the client run its own tools; without it, such a call waits
    until the run is resumed. Without `waits` the run is suspended as soon as it needs the client. `via` is
    recorded for its decisions.
    """

    hear: Listener
    run_tool: RunTool | None = None
    waits: bool = True
    via: str = "gateway"


class ClientPresence:
    """One client of one run."""

    def __init__(self, away_seconds: float = AWAY_SECONDS) -> None:
        """Create a connected client, which is lost after it was away for `away_seconds`."""
        self._away = away_seconds
        self._here = asyncio.Event()
        self._gone = asyncio.Event()
        self._here.set()

    def leave(self) -> None:
        """Note that the client has disconnected; it may come back."""
        self._here.clear()
        self._gone.set()

    def come_back(self) -> None:
        """Note that the client is connected again."""
        self._gone.clear()
        self._here.set()

    async def lost(self) -> None:
        """Wait until the client has been away for `away_seconds`."""
        while True:
            await self._gone.wait()
            try:
                async with asyncio.timeout(self._away):
                    await self._here.wait()
            except TimeoutError:
                return

    async def decide(self, _asked: PendingApproval) -> Decision | None:
        """Wait for as long as the client may decide, and return None.

        Its decision is stored by `SavedRuns.decide` and read from there: it may come by any of its
        connections, and of any gateway.
        """
        await self.lost()
        return None

    def while_here(self, run_tool: RunTool) -> RunTool:
        """Return `run_tool` without a result where the client is away."""

        async def bounded(wanted: ClientCallRequest) -> ClientResult | None:
            try:
                async with asyncio.timeout(None) as waiting:
                    losing = asyncio.create_task(self._give_up(waiting))
                    try:
                        # In this task, so that it waits for the result before the client receives the call.
                        return await run_tool(wanted)
                    finally:
                        losing.cancel()
            except TimeoutError:
                return None

        return bounded

    async def _give_up(self, waiting: asyncio.Timeout) -> None:
        await self.lost()
        waiting.reschedule(asyncio.get_running_loop().time())


class GatewayRun:
    """One run that this gateway drives."""

    def __init__(self, run: ToolRun, presence: ClientPresence, ended: Callable[[], None]) -> None:
        self._run = run
        self._ended = ended
        self._over = asyncio.Event()
        self.presence: Final = presence
        """The presence of the client; update it with `leave` and `come_back`."""

    @property
    def run(self) -> str:
        """The run's id."""
        return self._run.run

    def drive(self) -> asyncio.Task[Outcome]:
        """Start driving the run; the task raises as `ToolRun.drive`. Call it once."""
        task = asyncio.create_task(self._run.drive(), name=f"run {self.run}")
        # A callback, since a task that is cancelled before its first step would never count its end.
        task.add_done_callback(self._driven)
        return task

    def _driven(self, _task: asyncio.Task[Outcome]) -> None:
        self._over.set()
        self._ended()

    async def over(self) -> None:
        """Wait until the run is no longer driven."""
        await self._over.wait()

    def cancel(self) -> None:
        """End the run: `drive` returns with stop reason `cancelled` and the text so far."""
        self._run.cancel()
