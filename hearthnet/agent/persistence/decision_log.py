"""Decisions of people about the calls of a run: signed, stored once, logged once.

Any process of the node that keeps the run can make a decision, whether or not another process drives the
run. The decision alone moves nothing: the process that drives the run reads it (docs/decisions/0070).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from hearthnet.agent.loop.events import DecisionMade
from hearthnet.agent.persistence.run_record import altered
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.tools.types import Decision, Deny, Edit, PendingApproval
from hearthnet.core.canonical_json import content_hash, read_json
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust import signed_document
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.keys import Identity

PURPOSE: Final = "run decision"


class SignedDecision(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One person's decision about one call, signed by the node that keeps the run.

    `shown` is the digest of the call that the person saw, `digest` that of the call that they allow: another
    one after an edit, empty after a denial. `by` is the principal who decided, `via` the way in which it was
    given, `time` is in milliseconds since the epoch, `since` the length of the audit log at that time.
    `approval` is the approval that the person signed, where they have a key.
    """

    run: str
    tool_call_id: str
    confirmation_id: str
    capability: str
    client_id: str
    shown: str
    digest: str
    decision: Decision
    by: str
    via: str
    time: Count
    since: Count
    v: int = 1
    approval: Approval | msgspec.UnsetType = msgspec.UNSET

    @property
    def signed_approval(self) -> Approval | None:
        """The approval that came with the decision, or None."""
        return self.approval or None

    @property
    def word(self) -> str:
        """The decision as one word: `approved`, `edited` or `denied`."""
        match self.decision:
            case Deny():
                return "denied"
            case Edit():
                return "edited"
        return "approved"

    @property
    def event(self) -> DecisionMade:
        """The event for the tool loop."""
        return DecisionMade(now=self.time, confirmation_id=self.confirmation_id, decision=self.decision)


class StoredDecision(NamedTuple):
    """The decision that counts, and whether it had been made before."""

    signed: SignedDecision
    repeated: bool


class DecisionLog:
    """The decisions about the runs of one node, as one of its processes makes and reads them."""

    def __init__(
        self,
        store: RunStore,
        identity: Identity,
        community: str,
        instance: str = "",
        clock: Callable[[], int] = now_ms,
        by: str = "",
    ) -> None:
        """Create the access of one process to the decisions.

        `clock` returns milliseconds since the epoch; `by` is the principal who decides, by default the node.
        """
        self._by = by or identity.node_id
        self._store = store
        self._identity = identity
        self._community = community
        self._instance = instance
        self._clock = clock

    async def find(self, asked: PendingApproval) -> SignedDecision | None:
        """Return the decision about the call `asked`; None where there is none.

        Raises:
            HearthNetError: `invalid_signature` if it was altered or is about another call.
        """
        data = await self._store.load_decision(asked.run, asked.confirmation_id)
        return None if data is None else self._read(data, asked)

    async def decided(self, run: str, confirmation_id: str) -> SignedDecision | None:
        """Return the decision about a call of `run`; None where there is none.

        Raises:
            HearthNetError: `invalid_signature` if the stored decision was not written by this node.
        """
        data = await self._store.load_decision(run, confirmation_id)
        return None if data is None else self._proved(data, run, confirmation_id)

    async def put(
        self,
        asked: PendingApproval,
        decision: Decision,
        via: str,
        digest: str,
        approval: Approval | None = None,
    ) -> StoredDecision:
        """Decide about `asked`; where there is a decision already, return that one.

        `digest` is the digest of the call that is allowed. `approval` is the person's own signature, checked
        by the caller. Returns when the decision is in the audit log.

        Raises:
            HearthNetError: `expired` for an approval that comes too late; nothing is written then.
        """
        now = self._clock()
        if now >= asked.expires_at and not isinstance(decision, Deny):
            raise HearthNetError(
                "expired", f"the question about {asked.name} has expired; ask again", details={"now": now}
            )
        signed = signed_document.sign(
            SignedDecision(
                run=asked.run,
                tool_call_id=asked.tool_call_id,
                confirmation_id=asked.confirmation_id,
                capability=asked.capability,
                client_id=asked.client_id,
                shown=asked.arguments_digest,
                digest="" if isinstance(decision, Deny) else digest,
                decision=decision,
                by=self._by,
                via=via,
                time=now,
                since=await self._store.audit_position(),
                approval=msgspec.UNSET if approval is None else approval,
            ),
            self._identity,
            PURPOSE,
        )
        data = _encode(signed)
        stored = await self._store.save_decision(asked.run, asked.confirmation_id, data)
        decided = (
            StoredDecision(signed, False)
            if stored == data
            else StoredDecision(self._read(stored, asked), True)
        )
        await self.audit(decided.signed)
        return decided

    async def take_over(self, signed: SignedDecision, home: str) -> None:
        """Store a decision of another device's log, which `home` has signed, as one that counts here.

        It is signed anew by this node. An approval in it is left out, since this node makes its own.

        Raises:
            HearthNetError: `invalid_signature` if `home` has not signed it.
        """
        signed_document.check(signed, home, PURPOSE)
        own = msgspec.structs.replace(
            signed, by=home, since=await self._store.audit_position(), approval=msgspec.UNSET, signature=""
        )
        own = signed_document.sign(own, self._identity, PURPOSE)
        await self._store.save_decision(signed.run, signed.confirmation_id, _encode(own))
        await self.audit(own)

    async def audit(self, signed: SignedDecision) -> None:
        """Put a decision into the audit log, once, even if several processes do so repeatedly."""
        entry = AuditEntry(
            node=self._identity.node_id,
            community=self._community,
            sequence=0,
            previous="",
            time=signed.time,
            kind="decided",
            call=signed.confirmation_id,
            instance=self._instance,
            capability=signed.capability,
            caller=self._identity.node_id,
            principal=signed.by,
            run=signed.run,
            approval="" if signed.signed_approval is None else signed.signed_approval.id,
            via=signed.via,
            digest=signed.digest or signed.shown,
            idempotency_key=signed.client_id,
            code=signed.word,
            outcome=content_hash(_encode(signed)),
        )
        await self._store.append_audit(entry, signed.since)

    def _read(self, data: bytes, asked: PendingApproval) -> SignedDecision:
        signed = self._proved(data, asked.run, asked.confirmation_id)
        about = (asked.tool_call_id, asked.capability, asked.client_id)
        if about != (signed.tool_call_id, signed.capability, signed.client_id):
            raise altered(asked.run)
        return signed

    def _proved(self, data: bytes, run: str, confirmation_id: str) -> SignedDecision:
        try:
            signed = read_json(data, _DECODER)
            signed_document.check(signed, self._identity.node_id, PURPOSE)
        except HearthNetError as error:
            raise altered(run) from error
        if (signed.run, signed.confirmation_id) != (run, confirmation_id):
            raise altered(run)
        return signed


def _encode(signed: SignedDecision) -> bytes:
    return msgspec.json.encode(signed)


_DECODER: Final = msgspec.json.Decoder(SignedDecision)
