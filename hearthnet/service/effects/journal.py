"""The records of a process around every call with side effects, regardless of its handler.

    expired consent, refused unless the effect may have happened: then its outcome is returned
    the use of a standing grant, claimed; and the approval if the effect is an append to an event log
    `began` in the audit log, on the disk
    the effect, claimed; the handler; its outcome      (an append to an event log is all three)
    `ended` in the audit log, on the disk
    the answer

A process that dies in between leaves a `began` without its `ended`. The next process of the same service
finds it and records its end: from the effect's claim or the service's events, else `outcome_unknown`.

See: docs/protocol/audit.md#entry.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.bus.session.session import Session
from hearthnet.bus.store import Store
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.core import process_lock
from hearthnet.core.canonical_json import content_hash, digest
from hearthnet.core.config import AuditConfig
from hearthnet.core.errors import HearthNetError, OutcomeUnknown
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.core.process_lock import DeadProcess, ProcessLock
from hearthnet.core.restore_mark import RestoreMark, read_mark
from hearthnet.core.tasks import TaskSet
from hearthnet.core.times import now_ms
from hearthnet.protocol.header import Header
from hearthnet.service.call import Call, Reply
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.service.effects.claims import ClaimStore
from hearthnet.service.effects.day_quota import DayQuota
from hearthnet.service.effects.exactly_once import Effects, Work, claimable
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.service.effects.refusal_audit import ConsentRefused, Key, Refusals, of_call
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry

_log = logging.getLogger(__name__)
_LONGEST_NAME: Final = 64
_LEAST_SECONDS: Final = 2.0
"""Minimum time for recording the end of a call, even if its caller has given up."""
_AGAIN_SECONDS: Final = 1.0
"""Pause between attempts to write an entry of which it is not known whether it was written."""
UNKNOWN: Final = "outcome_unknown"
_CLOSING_BYTES: Final = 1024
"""Bytes of the signature and the chain of an entry, and of the entry that ends the call."""
_TAKES_BACK: Final = 0.25
"""The reserve of the quota for calls that take back what earlier ones have added."""
_MB: Final = 1_000_000
_BEFORE_RESTORE: Final = (
    "this node was restored from a backup, and may have done this after the backup was made; look, then let "
    "it be requested anew"
)
Outcome = Callable[[str, str, str], Awaitable[dict[str, Any] | None]]
"""Returns the output of an earlier call, by principal, idempotency key and digest of the arguments."""


class _Parts(NamedTuple):
    restored: RestoreMark | None
    audit: AuditLog
    effects: Effects
    quota: DayQuota


class Records:
    """The records of one process of the node in `home`; `store` is called for the first one."""

    def __init__(
        self,
        home: Home,
        peer: Session,
        service: str,
        store: Callable[[], Awaitable[Store]],
        settings: AuditConfig,
    ) -> None:
        self._home = home
        self._peer = peer
        self._service = service
        self._store = store
        self._day_bytes = settings.member_mb_per_day * _MB
        self._outcome: Outcome | None = None
        self._opened: _Parts | None = None
        self._opening = asyncio.Lock()
        self._lock: ProcessLock | None = None
        self._open: set[str] = set()
        self._noting = asyncio.Lock()
        self._owed = TaskSet()
        """Entries that are written although nobody waits for them any more."""
        origin = {"node": peer.node_id, "community": peer.community, "instance": peer.instance}
        self.refusals: Final = Refusals(self._put, {**origin, "service": service})

    async def open(self, outcome: Outcome) -> None:
        """Show that this process lives, and settle the open calls of dead ones of its service.

        Calls that cannot be settled now are left for the next process that starts.
        """
        self._outcome = outcome
        self._lock = await asyncio.to_thread(ProcessLock, self._home, self._peer.instance, self._service)
        for path in process_lock.everybody(self._home):
            with process_lock.settling(path) as dead:
                if dead is None or not self._concerns_us(dead):
                    continue
                try:
                    if dead.mark.since is not None:
                        await self._settle(dead, dead.mark.since, outcome)
                except HearthNetError as error:
                    _log.error("what %s left open is not settled yet: %s", dead.instance, error)
                else:
                    path.unlink(missing_ok=True)

    async def begin(
        self, call: Call[Any, Any], *, event_sourced: bool, erasable: bool = False, takes_back: bool = False
    ) -> int:
        """Record that `call` begins, and return the number of its entry.

        After an error nothing was done. For an `erasable` call only the hash of its frame is recorded. One
        that `takes_back` what others have added has a reserve of the quota.

        Raises:
            HearthNetError: `unauthorized` for an approval or the use of a standing grant that was used for
                another effect; `expired` for consent that is too old for an effect that is not known;
                `outcome_unknown` for an effect that this node may have had before it was restored;
                `rate_limited` if the caller's calls have used up their quota of today; `capacity_exceeded` if
                the disk is full; `partition` if the store does not answer in time.
        """
        _check_names(call)
        evidence = call.evidence or b""
        frame = content_hash(evidence) if erasable else audit_chain.evidence(evidence)
        parts = await self._parts()
        await self._check_time(parts, call, event_sourced)
        entry = self._entry(
            kind="began",
            call=call.id,
            capability=call.contract.id,
            caller=call.caller,
            principal=call.principal,
            token=call.token,
            run=call.run,
            approval=call.approval.id if call.approval else "",
            grant=call.grant.id if call.grant else "",
            use=call.use,
            digest=call.arguments_digest,
            idempotency_key=call.idempotency_key,
            frame=frame,
        )
        size = len(msgspec.json.encode(entry)) + _CLOSING_BYTES
        payer = self._peer.roster.account(call.caller)
        principal = payer if call.principal == call.caller else call.principal
        await parts.quota.charge(payer, principal, size, reserve=takes_back)
        await parts.effects.claim_consent(call, event_sourced=event_sourced)
        async with self._noting:
            if not self._open and self._lock is not None:
                self._lock.note((await parts.audit.place(call.allowed())).sequence)
            self._open.add(call.id)
        since = parts.audit.known
        writing = asyncio.create_task(parts.audit.append(entry, call.allowed()))
        try:
            return await asyncio.shield(writing)
        except BaseException as error:
            if writing.done() and isinstance(error, HearthNetError) and error.code != "partition":
                self._open.discard(call.id)
            else:
                code = "timeout" if call.remaining() <= 0 else "partition"
                self._owed.start(self._finish(entry, since, writing, code), f"end of {call.id}")
            raise

    async def once(self, call: Call[Any, Any], work: Work) -> Reply:
        """Run `Effects.once`."""
        return await (await self._parts()).effects.once(call, work)

    async def end(self, call: Call[Any, Any], began: int, code: str, outcome: str) -> None:
        """Record the end of the call whose entry is `began`.

        Raises:
            HearthNetError: The record is not on the disk.
        """
        entry = self._entry(kind="ended", call=call.id, began=began, code=code, outcome=outcome)
        parts = await self._parts()
        writing = asyncio.create_task(parts.audit.append(entry, max(call.remaining(), _LEAST_SECONDS)))
        try:
            await asyncio.shield(writing)
        except BaseException:
            self._owed.start(self._finish(entry, began, writing), f"end of {call.id}")
            raise
        self._open.discard(call.id)

    async def _finish(
        self, entry: AuditEntry, since: int, writing: asyncio.Task[int], code: str = ""
    ) -> None:
        """Bring `writing` to its end, and end a call that has begun with `code`: nobody waits for it.

        An entry that may be there is written only if it is not there behind `since`, so that it stands once.
        """
        began = await self._until_written(entry, since, writing)
        if began and entry.kind == "began":
            ended = self._entry(kind="ended", call=entry.call, began=began, code=code)
            await self._until_written(ended, began)
        self._open.discard(entry.call)

    async def _until_written(
        self, entry: AuditEntry, since: int, writing: asyncio.Task[int] | None = None
    ) -> int:
        """Return the number of `entry`, written or found; 0 for a `began` that certainly was not written."""
        audit = (await self._parts()).audit
        while True:
            try:
                return await (writing or audit.append(entry, _LEAST_SECONDS, since=since))
            except HearthNetError as error:
                if writing is not None and entry.kind == "began" and error.code != "partition":
                    return 0
            writing = None
            await asyncio.sleep(_AGAIN_SECONDS)

    def refused(self, header: Header, evidence: bytes | None, error: ConsentRefused) -> None:
        """Record a refused consent; `evidence` is the caller's signed frame."""
        key = Key(header.sender, error.rule, error.code)
        describe = functools.partial(of_call, self._peer, header, evidence, error.arguments_digest)
        self.refusals.record(key, describe)

    def instances(self) -> int:
        """Return the number of live processes of this service on this node, this one included."""
        return max(1, process_lock.count(self._home, self._service))

    async def close(self) -> None:
        """Write counted refusals, stop, and release this process's file."""
        await self.refusals.close()
        await self._owed.finish(_LEAST_SECONDS)
        if self._opened is not None:
            await self._opened.effects.close()
        if self._lock is not None:
            self._lock.close(settled=not self._open)

    async def _check_time(self, parts: _Parts, call: Call[Any, Any], event_sourced: bool) -> None:
        """Check the age of consent, unless the effect of `call` may have happened before.

        Nothing is recorded for a call that is refused. Appending to an event log checks the age again.

        Raises:
            HearthNetError: `expired` for consent that is too old; `outcome_unknown` for an effect that is not
                on record, and may have happened between a backup and its restore.
        """
        try:
            call.check_consent()
            if parts.restored is not None and _may_be_lost(call, parts.restored, event_sourced):
                raise OutcomeUnknown(_BEFORE_RESTORE)
        except HearthNetError:
            if not claimable(call):
                raise
            if not event_sourced:
                known = await parts.effects.has_begun(call)
            else:
                known = await parts.effects.was_used(call) or await self._has_outcome(call)
            if not known:
                raise

    async def _has_outcome(self, call: Call[Any, Any]) -> bool:
        if self._outcome is None:
            return False
        owners = dict.fromkeys((call.owner, call.principal))
        found = [await self._outcome(one, call.idempotency_key, call.arguments_digest) for one in owners]
        return any(output is not None for output in found)

    async def _put(self, entry: AuditEntry) -> int:
        return await (await self._parts()).audit.append(entry, _LEAST_SECONDS)

    async def _parts(self) -> _Parts:
        async with self._opening:
            if self._opened is None:
                store, room = await self._store(), DiskGuard(self._home)
                lives = functools.partial(process_lock.lives, self._home)
                self._opened = _Parts(
                    await asyncio.to_thread(read_mark, self._home),
                    AuditLog(store, self._peer.identity, room),
                    Effects(ClaimStore(store, room), self._peer.instance, lives),
                    DayQuota(store, self._peer.node_id, "audit", self._day_bytes, reserve=_TAKES_BACK),
                )
            return self._opened

    def _entry(self, **fields: Any) -> AuditEntry:
        peer = self._peer
        return AuditEntry(
            node=peer.node_id,
            community=peer.community,
            sequence=0,
            previous="",
            time=now_ms(),
            instance=peer.instance,
            service=self._service,
            **fields,
        )

    def _concerns_us(self, dead: DeadProcess) -> bool:
        """Return whether this process settles `dead`: of its service, or of one no longer there."""
        if dead.mark.service in ("", self._service):
            return True
        try:
            return dead.mark.service not in [service.name for service in read_node_state(self._home).services]
        except HearthNetError:
            return False

    async def _settle(self, dead: DeadProcess, since: int, outcome: Outcome) -> None:
        parts = await self._parts()
        upto = (await parts.audit.end()).sequence
        for began, entry in (await self._unfinished(parts.audit, dead.instance, since, upto)).items():
            code, result = await self._outcome_of(parts.effects, entry, outcome)
            _log.warning("%s of %s was cut off: %s", entry.capability, dead.instance, code or "it was done")
            ended = self._entry(kind="ended", call=entry.call, began=began, code=code, outcome=result)
            await parts.audit.append(ended, _LEAST_SECONDS, since=upto)

    async def _unfinished(self, log: AuditLog, instance: str, since: int, upto: int) -> dict[int, AuditEntry]:
        """Return the calls of `instance` in this part of the log that have no end, by number of entry."""
        found: dict[int, AuditEntry] = {}
        async for batch in log.lines(since, upto):
            for message in batch:
                entry = audit_chain.read(message.data)
                if entry.kind == "ended":
                    found.pop(entry.began, None)
                elif entry.kind == "began" and entry.instance == instance:
                    found[message.sequence] = entry
        return found

    async def _outcome_of(self, effects: Effects, entry: AuditEntry, outcome: Outcome) -> tuple[str, str]:
        """Return the code and the hash of the answer of a call that was cut off."""
        owners = self._owners_of(entry.principal)
        effect = await effects.outcome(entry, owners)
        if effect is not None:
            done = digest(effect.output) if effect.state == "done" else ""
            return {"done": "", "free": effect.code}.get(effect.state, UNKNOWN), done
        for owner in owners:
            output = await outcome(owner, entry.idempotency_key, entry.digest)
            if output is not None:
                return "", digest(output)
        return UNKNOWN, ""

    def _owners_of(self, principal: str) -> tuple[str, ...]:
        """Return those whose an effect of `principal` may be: of a guest, the record lacks the key."""
        roster = self._peer.roster
        if "/" in principal:
            return (principal, *(one.person for one in roster.persons))
        return tuple(dict.fromkeys((roster.owner(principal), principal)))


def _may_be_lost(call: Call[Any, Any], restored: RestoreMark, event_sourced: bool) -> bool:
    """Return whether the effect of `call` may have happened without being on record, before the restore.

    Consent that was signed before it may have been used. So may a key, of a run or a caller, that is as old;
    what such a key would append to an event log, or do to things of this home, was lost with it.
    """
    if restored.may_be_older(*(one.time for one in (call.approval, call.grant) if one is not None)):
        return True
    # A tool of a package or an MCP server reaches out of the home, though its contract is "natural", too.
    at_home = call.contract.idempotent == "natural" and not is_provider_defined(call.contract.name)
    if event_sourced or at_home:
        return False
    return restored.is_key_older(call.run or call.idempotency_key)


def _check_names(call: Call[Any, Any]) -> None:
    """Check that the names in `call` can be recorded.

    Raises:
        HearthNetError: `bad_request` if they cannot.
    """
    if call.contract.idempotent == "client_id" and call.idempotency_key != call.body["input"]["client_id"]:
        raise HearthNetError("bad_request", "the header's idempotency_key is not the body's client_id")
    approval = call.approval.id if call.approval else ""
    if max(map(len, (call.idempotency_key, call.run, approval))) > _LONGEST_NAME:
        raise HearthNetError(
            "bad_request", f"a key, a run and an approval have names of up to {_LONGEST_NAME} characters"
        )
