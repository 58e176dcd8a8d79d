"""The person's other nodes, as a process of this one reaches them: their runs, decisions there, take-overs.

See: docs/protocol/persons.md#runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hearthnet.agent.devices import run_copy
from hearthnet.agent.devices.copy_store import CopyStore
from hearthnet.agent.devices.run_copy import RunCopy
from hearthnet.agent.persistence import run_view
from hearthnet.agent.persistence.decision_log import SignedDecision
from hearthnet.agent.persistence.run_record import RunRecord
from hearthnet.agent.persistence.saved_runs import LoadedRun, RunDetails, SavedRuns, no_run
from hearthnet.agent.tools.types import Decision, PendingApproval
from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.core.visible import shown_line

_CALL_SECONDS: Final = 10.0
_MAX_NAME: Final = 40
_LIST: Final = "community.device.runs@1.0"
_GET: Final = "community.device.run@1.0"
_TAKE: Final = "community.device.take@1.0"
_DECIDE: Final = "community.device.decide@1.0"


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run of another device: its copy, the device's name, and whether the device answers now."""

    copy: RunCopy
    name: str
    is_there: bool

    @property
    def record(self) -> RunRecord:
        """The run as it was saved at that device."""
        return self.copy.record

    @property
    def details(self) -> RunDetails:
        """The run with its decisions; its audit entries stay at its device."""
        return RunDetails(self.record, _by_id(self.copy), [])

    @property
    def waiting(self) -> list[PendingApproval]:
        """The calls that can still be decided about."""
        return _waiting(self.copy)


class OtherDevices:
    """The other nodes of the person of the node in `home`, as a process of that node reaches them."""

    def __init__(self, home: Home, bus: Bus) -> None:
        self._bus = bus
        self._own = bus.peer.node_id
        self._copies = CopyStore(home, bus.peer.identity)

    @property
    def names(self) -> dict[str, str]:
        """The names of the other nodes that the person has now, fit for a line, by node."""
        roster = self._bus.peer.roster
        devices = roster.devices(roster.person_of(self._own))
        others = (one for one in devices if one.kind == "node" and one.key != self._own)
        return {one.key: shown_line(one.name, _MAX_NAME) for one in others}

    def stamp(self) -> int:
        """Return a number that changes when something is copied here, or removed."""
        return self._copies.stamp()

    def copied(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the runs that were copied here, each with the name of its device."""
        return [
            (name, run_view.summary(copy.record, _waiting(copy)))
            for node, name in self.names.items()
            for copy in self._copies.of(node)
        ]

    async def listing(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the runs of all of them, each with the name of its device.

        Of a device that is away, there are those that were copied here.
        """
        if not self.names:
            return []
        names, there = self.names, await self._there(_LIST)
        calls: list[tuple[str, dict[str, Any]]] = [
            (node, {"params": {}, "input": {}}) for node in names if node in there
        ]
        found = await self._bus.gather_from(_LIST, calls, timeout_seconds=_CALL_SECONDS)
        answered = {one.provider for one in found.replies}
        rows = [(names[one.provider], run) for one in found.replies for run in one.output["runs"]]
        away = {name for node, name in names.items() if node not in answered}
        if away:
            rows += [row for row in await asyncio.to_thread(self.copied) if row[0] in away]
        return rows

    async def find(self, run: str) -> FoundRun:
        """Return a run of one of them, from the device itself or, where that is away, from its copy.

        Raises:
            HearthNetError: `not_found` if none of those that answer has it, and it was not copied here.
        """
        there = (await self._there(_GET)) if self.names and ids.is_ulid(run) else set()
        for node in self.names:
            if node in there and (found := await self._asked(_GET, node, run)) is not None:
                return FoundRun(found, self.names[node], True)
        copy = await asyncio.to_thread(self._copies.find, run, self.names)
        if copy is None:
            away = ", ".join(name for node, name in self.names.items() if node not in there)
            raise HearthNetError(
                "not_found",
                f"there is no run {run[:40]!r} here or at another device of yours"
                + (f"; away is: {away}" if away else "")
                + "; see: hearthnet runs list",
            )
        return FoundRun(copy, self.names[copy.home], False)

    async def decide(self, found: FoundRun, pending: PendingApproval, decision: Decision) -> dict[str, Any]:
        """Decide at the device of the run; return the decision that counts there.

        Raises:
            HearthNetError: `partition` if that device is away; the device's error.
        """
        if not found.is_there:
            raise Unavailable(
                f"{found.name}, where this run waits, is away, and only what is decided there counts; take "
                f"the run over and decide here: hearthnet runs resume {found.record.run}",
                rule="device_away",
            )
        fields = {
            "run": pending.run,
            "call": pending.confirmation_id,
            "shown": pending.arguments_digest,
            "decision": msgspec.to_builtins(decision),
        }
        return await self._call(_DECIDE, found.copy.home, fields)

    async def take_over(self, found: FoundRun, saved: SavedRuns, earlier: LoadedRun | None) -> RunRecord:
        """Make a run one of this node; a process that drives it there stops.

        Where its device is away, the copy is continued, and that device learns of it later.
        Raises as `adopt`, and the device's error.
        """
        copy = found.copy
        if found.is_there:
            output = await self._call(_TAKE, copy.home, {"run": found.record.run})
            copy = run_copy.from_text(output["copy"], copy.home)
        own = self._bus.peer.identity
        return await run_copy.adopt(saved, copy, own, earlier, is_away=not found.is_there)

    async def bring_here(self, saved: SavedRuns, run: str) -> str:
        """Take a run over from the device that has it; return its name, empty where it is here already.

        A run that was left to a device which is none any more is taken back as it was then.

        Raises:
            HearthNetError: As `find` and `take_over`.
        """
        earlier = await own_run(saved, run)
        if earlier is not None and not earlier.record.moved_to:
            return ""
        if earlier is not None and not earlier.record.is_owners:
            raise no_run(run)
        if earlier is not None and earlier.record.moved_to not in self.names:
            copy, own = await run_copy.copy_of(saved, earlier.record), self._bus.peer.identity
            await run_copy.adopt(saved, copy, own, earlier, is_away=False)
            return ""
        if not self.names:
            raise no_run(run)
        found = await self.find(run)
        await self.take_over(found, saved, earlier)
        return found.name

    async def _there(self, capability: str) -> set[str]:
        return {view.node for view in await self._bus.offers(capability)}

    async def _asked(self, capability: str, node: str, run: str) -> RunCopy | None:
        try:
            output = await self._call(capability, node, {"run": run})
        except HearthNetError as error:
            if error.code in ("not_found", "timeout", "partition"):
                return None
            raise
        copy = run_copy.from_text(output["copy"], node)
        # One that was left to this node is taken again, where the answer did not arrive.
        return copy if copy.record.moved_to in ("", self._own) else None

    async def _call(self, capability: str, node: str, fields: dict[str, Any]) -> dict[str, Any]:
        body = {"params": {}, "input": fields}
        return dict((await self._bus.call(capability, body, node=node, timeout_seconds=_CALL_SECONDS)).output)


async def own_run(saved: SavedRuns, run: str) -> LoadedRun | None:
    """Return a run of this node; None where it has none with this id."""
    try:
        return await saved.load(run)
    except HearthNetError as error:
        if error.code != "not_found":
            raise
        return None


def _by_id(copy: RunCopy) -> dict[str, SignedDecision]:
    return {one.confirmation_id: one for one in copy.decisions}


def _waiting(copy: RunCopy) -> list[PendingApproval]:
    decided, now = _by_id(copy), now_ms()
    return [one for one in copy.record.pending if one.confirmation_id not in decided and one.expires_at > now]
