"""Saved runs, listed, read, decided about and cancelled by any process of their node.

A decision passes a ladder, and the first check that fails is the answer: the run exists, the call exists,
the person's signature fits, the call is still as it was shown, it still waits. The run need not be driven
for this, and a process that drives it is not hindered.

A run belongs to its principal: for every other client it does not exist. The node's owner sees all runs and
may deny each call, but may not approve a call for a person with a key of their own (docs/decisions/0101).
The owner at the command line and at the page is one person: each sees and decides what waits for the other
(docs/decisions/0164).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from hearthnet.agent.loop.events import Cancel
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.persistence.checkpointer import Checkpointer
from hearthnet.agent.persistence.decision_log import DecisionLog, SignedDecision, StoredDecision
from hearthnet.agent.persistence.run_record import EffectRecord, RunRecord, contracts_digest, unseal
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.tools.providers import prepare_edited
from hearthnet.agent.tools.toolbox import Prepared, Tool, Toolbox
from hearthnet.agent.tools.types import Decision, Deny, Edit, PendingApproval
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.keys import Identity

MOVED: Final = "moved"
"""The rule of errors about a run that another device of the person drives."""
_SEEN: Final = frozenset({"pending", "expired"})


class LoadedRun(NamedTuple):
    """A run as it was saved, and the revision under which to replace it."""

    record: RunRecord
    revision: int


class RunList(NamedTuple):
    """The stored runs, newest first, and the ids of those that were altered."""

    runs: list[RunRecord]
    altered: list[str]


class RunDetails(NamedTuple):
    """A run as it was saved, its decisions by confirmation id, and its audit entries."""

    record: RunRecord
    decisions: dict[str, SignedDecision]
    log: list[AuditEntry]


class RunApprover(Protocol):
    """A client that decides about its runs; `key` is empty where its gateway approves."""

    @property
    def principal(self) -> str: ...
    @property
    def key(self) -> str: ...

    def sees(self, principal: str) -> bool:
        """Return whether the runs of `principal` are the client's, too."""

    async def check(self, tool: Tool, allowed: PendingApproval, approval: Approval | None, now: int) -> None:
        """Check that `approval` is the client's signed approval of the call in `allowed`."""


class SavedRuns:
    """The runs of one node."""

    def __init__(
        self,
        store: RunStore,
        identity: Identity,
        community: str,
        instance: str = "",
        clock: Callable[[], int] = now_ms,
        client: RunApprover | None = None,
        by: str = "",
    ) -> None:
        """Open the runs of the node's owner, or of one `client`.

        `clock` returns milliseconds since the epoch; `by` is another device of the owner that decides.
        """
        self.store: Final = store
        self.decision_log: Final = DecisionLog(
            store, identity, community, instance, clock, by=by if client is None else client.principal
        )
        self._identity = identity
        self._client = client
        self._clock = clock

    async def load(self, run: str) -> LoadedRun:
        """Return a saved run.

        Raises:
            HearthNetError: `not_found` if there is none with this id, or it is not the client's;
                `invalid_signature` if it was altered.
        """
        stored = await self.store.load(run) if ids.is_ulid(run) else None
        if stored is None:
            raise no_run(run)
        loaded = LoadedRun(unseal(stored.data, run, self._identity), stored.revision)
        if self._client is not None and not self._client.sees(loaded.record.principal):
            raise no_run(run)
        return loaded

    async def listing(self) -> RunList:
        """Return the stored runs, or those of the client.

        Only the owner gets the ids of altered runs.
        """
        runs, altered = [], []
        for run in reversed(await self.store.runs()):
            try:
                runs.append((await self.load(run)).record)
            except HearthNetError as error:
                if error.code == "invalid_signature":
                    altered += [run] * (self._client is None)
                elif error.code != "not_found":
                    raise
        return RunList(runs, altered)

    async def page(self, run: str) -> RunDetails:
        """Return a run with the proposal, decision, execution and result of each of its calls."""
        record = (await self.load(run)).record
        decisions = await self.decisions(record)
        since = min((one.since for one in decisions.values()), default=None)
        log = [] if since is None else await self.store.audit_entries(run, since)
        return RunDetails(record, decisions, log)

    async def decisions(self, record: RunRecord) -> dict[str, SignedDecision]:
        """Return the decisions about the calls of a run, by confirmation id."""
        found = {one.asked.confirmation_id: await self.decision_log.find(one.asked) for one in record.effects}
        return {name: signed for name, signed in found.items() if signed is not None}

    async def waiting(self, record: RunRecord) -> list[PendingApproval]:
        """Return the calls that can still be decided about and have no decision."""
        decisions, now = await self.decisions(record), self._clock()
        return [
            one for one in record.pending if one.confirmation_id not in decisions and one.expires_at > now
        ]

    async def decide(
        self,
        run: str,
        call: str,
        decision: Decision,
        *,
        via: str,
        shown: str | None = None,
        approval: Approval | None = None,
    ) -> StoredDecision:
        """Decide about `call`, given by its tool call id or confirmation id.

        `shown` is the digest of the call as the person saw it; a denial needs neither it nor an
        `approval`. A client with a key passes the `approval` that it signed. An earlier decision stays and is
        returned, with `repeated` set.

        Raises:
            HearthNetError: `not_found` for an unknown run or call; `unauthorized` if the call has changed
                since it was shown, or an approval is not by the key that counts; `invalid_signature` for a
                signature that does not verify; `expired` for an approval that comes too late (a denial is
                accepted); `bad_request` for an edit that is not valid and for a call that no longer waits.
        """
        record = (await self.load(run)).record
        effect = _effect(record, call)
        asked = effect.asked
        earlier = await self.decision_log.find(asked)
        approval = None if isinstance(decision, Deny) else approval
        if earlier is None or earlier.signed_approval != approval:
            await self._check_key(record, asked, decision, approval)
        # After an accepted edit the digest differs from the one that its author saw; a repetition is valid.
        digests = {asked.arguments_digest, asked.arguments_digest if earlier is None else earlier.shown}
        if shown is not None and shown not in digests and not isinstance(decision, Deny):
            raise HearthNetError(
                "unauthorized",
                f"what waits has another digest than what was shown; look again: hearthnet runs show {run}",
                details={"rule": "arguments", "digest": asked.arguments_digest},
            )
        if earlier is not None:
            await self.decision_log.audit(earlier)
            await self.store.notify(run)  # the process that decided may have died before this
            return StoredDecision(earlier, True)
        self.check_waits(record, call, decision)
        allowed = allowed_call(record, asked, decision).arguments_digest
        stored = await self.decision_log.put(asked, decision, via, allowed, approval)
        await self.store.notify(run)
        return stored

    def check_waits(self, record: RunRecord, call: str, decision: Decision) -> None:
        """Check that `decision` about `call` does not come too late.

        Raises:
            HearthNetError: `expired` for an approval after the call's time; `bad_request` for a call that no
                longer waits, or a run that another device drives; `not_found` for an unknown call.
        """
        effect = _effect(record, call)
        check_here(record)
        status = status_of(effect, None, self._clock())
        if status == "pending" or (status == "expired" and isinstance(decision, Deny)):
            return
        if status == "expired":
            raise HearthNetError("expired", f"the question about {effect.asked.name} has expired; ask again")
        raise HearthNetError(
            "bad_request", f"the call {effect.asked.tool_call_id} does not wait any more: {effect.status}"
        )

    async def _check_key(
        self, record: RunRecord, asked: PendingApproval, decision: Decision, approval: Approval | None
    ) -> None:
        """Check that an approval is given in the way that counts for this run."""
        if isinstance(decision, Deny):
            return
        signs = "" if self._client is None else self._client.key
        own = self._identity.node_id
        if record.by_owner and self._client is not None and not self._client.sees(own):
            raise HearthNetError(
                "unauthorized",
                "this run is the owner's, who says yes at a page of the owner or by: hearthnet runs approve",
                rule="owner",
            )
        is_mine = self._client is None and (record.principal == own or record.by_owner)
        if record.key and not signs and not is_mine:
            raise HearthNetError(
                "unauthorized",
                "this run is of somebody with a key of their own; only that key says yes, you may say no",
                rule="own_key",
            )
        if self._client is not None and signs:
            allowed = allowed_call(record, asked, decision)
            await self._client.check(toolbox_of(record)[asked.name], allowed, approval, self._clock())
        elif approval is not None:
            raise HearthNetError("unauthorized", "whoever decides here has no key that signs approvals")

    async def preview(self, run: str, call: str, arguments: dict[str, Any]) -> PendingApproval:
        """Return `call` as it would be sent after an edit to `arguments`, without deciding.

        Raises what `decide` raises.
        """
        record = (await self.load(run)).record
        effect = _effect(record, call)
        self.check_waits(record, call, Edit(arguments))
        return allowed_call(record, effect.asked, Edit(arguments))

    async def cancel(self, run: str) -> RunRecord:
        """End the run, even if another process drives it; each open call gets a result.

        Raises:
            HearthNetError: `bad_request` if it has ended or another process saved it first; `expired` if it
                is too old.
        """
        loaded = await self.load(run)
        check_open(loaded.record, self._clock())
        toolbox = toolbox_of(loaded.record)
        checkpointer = Checkpointer(self.store, self._identity, self.decision_log, toolbox, *loaded)
        ToolLoop(checkpointer.state, toolbox).feed(Cancel(now=self._clock()))
        await checkpointer.save()
        await checkpointer.notify()
        return checkpointer.record

    async def give_up(self, run: str, to: str) -> None:
        """Leave a run to the device `to` of the same person; a process that drives it here stops.

        Raises:
            HearthNetError: As `cancel`; `bad_request` also if another device has it already.
        """
        loaded = await self.load(run)
        check_open(loaded.record, self._clock())
        loaded.record.moved_to = to
        checkpointer = Checkpointer(self.store, self._identity, self.decision_log, Toolbox([]), *loaded)
        await checkpointer.save()
        await checkpointer.notify()


def no_run(run: str) -> HearthNetError:
    """Return the error for a run that is not here, or not the caller's."""
    return HearthNetError(
        "not_found",
        f"there is no run {run[:40]!r} here: it called nothing before it broke off, is older than a day, or "
        "was never yours; ask again (those that are kept: hearthnet runs list)",
    )


def _effect(record: RunRecord, call: str) -> EffectRecord:
    """Return the call with the tool call id or confirmation id `call`.

    Raises:
        HearthNetError: `not_found` if the run has no such call.
    """
    effect = record.effect(call)
    if effect is None:
        known = ", ".join(one.asked.tool_call_id for one in record.effects) or "none"
        raise HearthNetError(
            "not_found", f"the run {record.run} has no call {call[:40]!r} to decide about; it has: {known}"
        )
    return effect


def allowed_call(record: RunRecord, asked: PendingApproval, decision: Decision) -> PendingApproval:
    """Return `asked` as `decision` allows it to be sent.

    Raises:
        HearthNetError: `bad_request` for an edit that is not valid.
    """
    if not isinstance(decision, Edit):
        return asked
    tool = toolbox_of(record)[asked.name]
    prepared = prepare_edited(tool, asked.arguments, decision.arguments, asked.client_id)
    if not isinstance(prepared, Prepared):
        raise HearthNetError("bad_request", prepared)
    return msgspec.structs.replace(
        asked,
        arguments=decision.arguments,
        body=prepared.body,
        arguments_digest=prepared.arguments_digest,
        problem="",
    )


def toolbox_of(record: RunRecord) -> Toolbox:
    """Return the tools of a saved run.

    Raises:
        HearthNetError: `schema_mismatch` if their contracts have changed since it was saved, or if a version
            saved it that did not settle which home a tool is of.
    """
    toolbox = Toolbox(record.tools)
    unsettled = [
        tool.bound_capability
        for tool in record.tools
        if tool.bound_capability
        and is_provider_defined(tool.bound_capability)
        and not (tool.provider or toolbox.bound(tool.name).names_home)
    ]
    if unsettled:
        raise HearthNetError(
            "schema_mismatch",
            f"the run {record.run} does not say which home {unsettled[0]} is of; cancel it and ask again",
            details={"run": record.run},
        )
    if contracts_digest(toolbox) != record.contracts:
        raise HearthNetError(
            "schema_mismatch",
            f"the tools of the run {record.run} have changed since it was saved; cancel it and ask again",
            details={"run": record.run},
        )
    return toolbox


def check_open(record: RunRecord, now: int) -> None:
    """Check that the run can be continued.

    Raises:
        HearthNetError: `bad_request` if the run has ended or another device drives it; `expired` if it is
            too old.
    """
    check_here(record)
    if record.ended:
        raise HearthNetError("bad_request", f"the run {record.run} has ended; ask anew")
    if now >= record.expires_at:
        raise HearthNetError("expired", f"the run {record.run} is older than a day; ask anew")


def check_here(record: RunRecord) -> None:
    """Check that no other device of the person has taken the run over.

    Raises:
        HearthNetError: `bad_request` (`moved`) if one has; `device` in the details is that one.
    """
    if record.moved_to:
        raise HearthNetError(
            "bad_request",
            f"another device of yours goes on with the run {record.run}: {ids.short_id(record.moved_to)}",
            details={"rule": MOVED, "device": record.moved_to},
        )


def status_of(effect: EffectRecord, signed: SignedDecision | None, now: int) -> str:
    """Return the status of a call at `now`, with later decisions and its expiry."""
    if effect.status not in _SEEN:
        return effect.status
    if signed is not None:
        return signed.word
    return "expired" if now >= effect.asked.expires_at else effect.status
