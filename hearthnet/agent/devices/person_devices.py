"""The runs and conversations of a person at the person's other nodes: served to them, and sent to them.

    asked by another device     answer
    the list                    the runs of this node's owner, with the calls that wait
    one run                     a copy; with `take` it is this node's no longer
    a decision                  is made here as the device's, and counts if it is the first
    copies                      are kept here until the run has ended there

Each node sends copies of its open runs, and the conversations of its owner's pages, to the other nodes that
are there, when they change. Nothing is sent while the person has no other node.

See: docs/protocol/persons.md#runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from typing import Any, Final

import msgspec

from hearthnet.agent.devices import run_copy
from hearthnet.agent.devices.conversation_exchange import ConversationExchange
from hearthnet.agent.devices.copy_store import MAX_RUNS, CopyStore
from hearthnet.agent.devices.pushes import Pushes
from hearthnet.agent.devices.run_copy import RunCopy
from hearthnet.agent.persistence import run_view
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.run_record import RunRecord
from hearthnet.agent.persistence.saved_runs import SavedRuns, no_run
from hearthnet.agent.tools.types import Decision
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.core.ids import short_id
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import now_ms
from hearthnet.service.call import Call
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.service.hosting.context import NodeContext

COPY: Final = "community.device.copy@1.0"
ROUND_SECONDS: Final = 1.0
MAX_LIST_BYTES: Final = 256 * 1024
_CALL_SECONDS: Final = 10.0
_State = tuple[int, int]
"""When a run was saved, or how often it was taken over, and how many decisions there are."""
_log = logging.getLogger(__name__)


class PersonDevices:
    """The part of a node that its person's other nodes reach."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._own = node.identity.node_id
        self._copies = CopyStore(node.home, node.identity)
        self._runs: StoredRuns | None = None
        self._tasks = TaskSet()
        self._open: list[RunCopy] = []
        self._taken: list[dict[str, Any]] = []
        self._version = -1
        self._pushes = Pushes()
        self.conversations: Final = ConversationExchange(node)

    async def open(self) -> None:
        """Begin to send to the other devices."""
        self._runs = StoredRuns(await self._node.store(), self._node.identity, DiskGuard(self._node.home))
        self._tasks.start(self._rounds(), "the devices of the person")

    async def close(self) -> None:
        """End it."""
        await self._tasks.close()

    def check(self, call: Call[Any, Any]) -> None:
        """Check that a node of this node's person calls, by its own key.

        Raises:
            HearthNetError: `unauthorized` if not.
        """
        roster = self._node.bus.peer.roster
        person = roster.person_of(self._own)
        is_itself = call.claims is None and call.principal == call.caller
        if not (is_itself and roster.is_device(call.caller, person)):
            raise HearthNetError(
                "unauthorized", "this is for the devices of the person whose node it is", rule="device"
            )

    async def listing(self) -> dict[str, Any]:
        """Return the runs of the owner here, newest first, as far as they fit into one answer."""
        saved, left, rows = self._saved(), MAX_LIST_BYTES, []
        for record in (await saved.listing()).runs:
            if _is_here(record):
                row = run_view.summary(record, await saved.waiting(record))
                left -= len(msgspec.json.encode(row))
                if left < 0:
                    break
                rows.append(row)
        return {"runs": rows}

    async def copy(self, run: str) -> dict[str, Any]:
        """Return a copy of one run.

        Raises:
            HearthNetError: `not_found` if the owner has none with this id; `bad_request` (`moved`) if
                another device has it.
        """
        saved = self._saved()
        return {"copy": run_copy.to_text(await run_copy.copy_of(saved, await self._shared(saved, run)))}

    async def take(self, run: str, device: str) -> dict[str, Any]:
        """Leave a run to `device` and return it, again if it has been left to it; raises as `copy`."""
        saved = self._saved()
        record = await self._shared(saved, run)
        text = run_copy.to_text(await run_copy.copy_of(saved, record))
        if record.moved_to != device:
            await saved.give_up(run, device)
        return {"copy": text}

    async def decide(
        self, run: str, call: str, decision: dict[str, Any], shown: str, device: str
    ) -> dict[str, Any]:
        """Decide about a call in the name of `device`; return the decision that counts.

        Raises:
            HearthNetError: `bad_request` for a malformed decision; as `SavedRuns.decide`.
        """
        try:
            wanted = msgspec.convert(decision, Decision)
        except msgspec.ValidationError as error:
            raise HearthNetError("bad_request", f"this is no decision: {error}") from error
        saved = self._saved(by=device)
        await self._shared(saved, run)
        stored = await saved.decide(run, call, wanted, via="device", shown=shown)
        return {"repeated": stored.repeated, **run_view.decision_view(stored.signed)}

    async def keep(
        self, device: str, kept: list[str], taken: list[dict[str, Any]], copy: str
    ) -> dict[str, Any]:
        """Keep what `device` has sent: a copy of one of its runs, and which of them are open.

        `taken` are the runs that it took over, with the number of times. One of this node among them is left
        to it.

        Raises:
            HearthNetError: `bad_request` for a malformed copy; `unauthorized` if it is another's;
                `capacity_exceeded` if there are too many.
        """
        await asyncio.to_thread(self._copies.keep_only, device, kept)
        if copy:
            one = run_copy.from_text(copy, device)
            if one.record.run in kept:
                await asyncio.to_thread(self._copies.put, one)
        for run in taken:
            await self._leave(run["run"], run["moves"], device)
        return {"copies": await asyncio.to_thread(self._copies.count, device)}

    async def _leave(self, run: str, moves: int, device: str) -> None:
        """Leave a run to a device that took it over while the two were parted.

        The one that was taken over more often goes on; of equals, that of the smaller id.
        """
        saved = self._saved()
        try:
            record = await self._shared(saved, run)
            if not record.moved_to and (record.moves, device) < (moves, self._own):
                await saved.give_up(run, device)
        except HearthNetError as error:
            if error.code not in ("not_found", "bad_request", "expired"):
                raise

    async def _shared(self, saved: SavedRuns, run: str) -> RunRecord:
        """Return a run that the devices of the owner share."""
        record = (await saved.load(run)).record
        if not record.is_owners:
            raise no_run(run)
        return record

    def _saved(self, by: str = "") -> SavedRuns:
        if self._runs is None:
            raise Unavailable("this node is starting; try again in a moment", rule="provider_starting")
        peer = self._node.bus.peer
        return SavedRuns(self._runs, peer.identity, peer.community, by=by)

    async def _rounds(self) -> None:
        while True:
            try:
                await self._round()
            except (HearthNetError, OSError) as error:
                _log.info("nothing goes to the other devices now: %s", error)
            await asyncio.sleep(ROUND_SECONDS)

    async def _round(self) -> None:
        """Send changes to those of the other nodes that are there."""
        roster = self._node.bus.peer.roster
        person = roster.person_of(self._own)
        others = {one.key for one in roster.devices(person) if one.kind == "node"} - {self._own}
        await asyncio.to_thread(self._copies.forget_others, others)
        if others:
            await self.conversations.round(others)
            await self._copy_runs(others)

    async def _copy_runs(self, others: Set[str]) -> None:
        """Send changes in the runs to those of `others` that are there."""
        await self._look()
        state: dict[str, _State] = {copy.record.run: _state(copy) for copy in self._open}
        state |= {f"taken {one['run']}": (one["moves"], 0) for one in self._taken}
        due = self._pushes.due(others, state, asyncio.get_running_loop().time())
        if not due:
            return
        there = {view.node for view in await self._node.bus.offers(COPY)}
        for node in sorted(due & there):
            await self._send(node, state)

    async def _look(self) -> None:
        """Read which runs are open, and which this node has taken over, if the store has changed."""
        saved, now = self._saved(), now_ms()
        version = await saved.store.version()
        if version == self._version:
            return
        found = [one for one in (await saved.listing()).runs if _is_here(one) and one.expires_at > now]
        still_open = [one for one in found if not one.ended][:MAX_RUNS]
        self._open = [await run_copy.copy_of(saved, one) for one in still_open]
        self._taken = [{"run": one.run, "moves": one.moves} for one in found if one.moves][:MAX_RUNS]
        self._version = version

    async def _send(self, node: str, state: dict[str, _State]) -> None:
        """Send `node` the copies that it lacks, or the list of the open runs alone."""
        sent = self._pushes.at(node)
        news = [copy for copy in self._open if sent.get(copy.record.run) != state[copy.record.run]]
        sendings: list[RunCopy | None] = [*news] or [None]
        try:
            for copy in sendings:
                await self._call(node, copy)
        except HearthNetError as error:
            _log.info("runs are not copied to %s now: %s", short_id(node), error.message)
        else:
            self._pushes.arrived((node,), state)

    async def _call(self, node: str, copy: RunCopy | None) -> None:
        kept = [one.record.run for one in self._open]
        fields: dict[str, Any] = {"kept": kept, "taken": self._taken}
        try:
            if copy is not None:
                fields["copy"] = run_copy.to_text(copy)
        except HearthNetError as error:  # it is too large, and stays here
            _log.info("%s", error.message)
        await self._node.bus.call(
            COPY, {"params": {}, "input": fields}, node=node, timeout_seconds=_CALL_SECONDS
        )


def _is_here(record: RunRecord) -> bool:
    """Return whether a run is the owner's, and not left to another device."""
    return record.is_owners and not record.moved_to


def _state(copy: RunCopy) -> _State:
    return copy.record.saved_at, len(copy.decisions)
