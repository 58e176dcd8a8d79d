r"""Exactly one effect per key: claim, effect, outcome.

    absent --claim--> taken --the handler answered---------------> done      a repetition returns that answer
                        |  \--it refused, without an effect------> free      a repetition tries again
                        \----it was stopped, failed or died------> unknown   a repetition returns this error

For capabilities whose effect is not an append to an event log, which is claim and outcome in one
(`service/effects/event_log.py`). The claim is on `(owner, idempotency_key)`, so that of several devices of
one person that go on with one run only one has the effect; for a call without key, it is on the principal's
approval or use of a standing grant. An approval is also claimed for that one effect. A claim whose
process lives is waited for; one whose process is gone has an unknown outcome permanently.

See: docs/protocol/effects.md#order.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.tasks import TaskSet
from hearthnet.service.call import Call, Reply
from hearthnet.service.effects import claims
from hearthnet.service.effects.claims import Claim, ClaimStore
from hearthnet.service.effects.jetstream_records import ANSWER_SECONDS, BEGUN_SHARE
from hearthnet.service.effects.refusal_audit import ConsentRefused
from hearthnet.trust.audit_chain import AuditEntry

_log = logging.getLogger(__name__)
_UNKNOWN: Final = frozenset({"timeout", "partition", "internal_error", "outcome_unknown"})
"""Errors after which a handler may have had an effect; after any other one it had none."""
_WAITS: Final = (0.02, 0.05, 0.1, 0.2)
_WRITE_SECONDS: Final = 3.0
_AGAIN_SECONDS: Final = 1.0
_INTERRUPTED: Final = (
    "an earlier call with the same key was stopped, and may have had its effect; look, then use a new key"
)
_UNWRITTEN: Final = "it was done, but cannot be put on record now; ask again with the same key"
State = Literal["taken", "done", "free", "unknown"]
Work = Callable[[], Awaitable[Reply]]


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a claim.

    `instance` and `call` made the claim last; `code` is the error after which it is free again.
    """

    state: State
    capability: str
    digest: str
    instance: str
    call: str
    output: Any = None
    meta: dict[str, Any] = {}
    code: str = ""


class Effects:
    """The effects of one process of a node; `lives` returns whether a process of it runs."""

    def __init__(self, claims: ClaimStore, instance: str, lives: Callable[[str], bool]) -> None:
        self._claims = claims
        self._instance = instance
        self._lives = lives
        self._owed = TaskSet()

    async def once(self, call: Call[Any, Any], work: Work) -> Reply:
        """Return the answer of an earlier call with the key of `call`, else that of `work`.

        Raises:
            HearthNetError: `bad_request` if that key was used for another effect; `unauthorized` for an
                approval that was; `expired` for one that is too old and was never used; `outcome_unknown`;
                and the errors of `work`.
        """
        waits = itertools.chain(_WAITS, itertools.repeat(_WAITS[-1]))
        while True:
            key, held = await self._find(call)
            effect = None if held is None else msgspec.convert(held.record, Effect)
            if held is None or effect is None or effect.state == "free":
                taken = await self._claim(call, key, held)
                if taken is not None:
                    return await self._carry_out(call, key, taken, work)
                continue
            _check_same(effect, call)
            if effect.state == "done":
                return Reply(effect.output, {**effect.meta, "repeated": True})
            if effect.state == "unknown":
                raise HearthNetError("outcome_unknown", _INTERRUPTED)
            if await asyncio.to_thread(self._lives, effect.instance):
                await asyncio.sleep(next(waits))
                continue
            lost = msgspec.structs.replace(effect, state="unknown")
            await self._claims.write(key, msgspec.to_builtins(lost), held.revision, call.allowed())

    async def claim_consent(self, call: Call[Any, Any], *, event_sourced: bool) -> None:
        """Claim the use of a standing grant that `call` names, for this one effect.

        If the effect is an append to an event log, claim the approval too: the log records client ids but no
        approvals.

        Raises:
            HearthNetError: `unauthorized` if it was used for another effect; `expired` for a grant that is
                too old.
        """
        if event_sourced:
            try:
                await self._claim_approval(call)
            except HearthNetError as error:
                # The log returns a recorded outcome at any time, and checks the expiry before it appends.
                if error.code != "expired":
                    raise
        if call.grant is not None:
            await self._bind(call, f"use {call.use} of the standing grant {call.grant.id}")

    async def has_begun(self, call: Call[Any, Any]) -> bool:
        """Return whether an earlier call had, or may have had, the effect of `call`."""
        _, held = await self._find(call)
        return held is not None and msgspec.convert(held.record, Effect).state != "free"

    async def was_used(self, call: Call[Any, Any]) -> bool:
        """Return whether the consent of `call` was used for this very effect before."""
        held = await self._claims.get(_consent_key(call), call.allowed())
        return held is not None and held.record == _use(call)

    async def outcome(self, entry: AuditEntry, owners: Iterable[str]) -> Effect | None:
        """Return the effect of a call that is on record as begun; None if it claimed nothing.

        `owners` may have claimed it, because the record does not say whose the effect is.
        """
        for owner in owners:
            key = _key(owner, entry.idempotency_key, entry.approval, entry.grant, entry.use)
            held = await self._claims.get(key, ANSWER_SECONDS)
            effect = None if held is None else msgspec.convert(held.record, Effect)
            if effect is not None and effect.digest == entry.digest:
                return effect
        return None

    async def _find(self, call: Call[Any, Any]) -> tuple[str, Claim | None]:
        """Return the key under which the effect of `call` is claimed, and its claim.

        The principal may have claimed it before it was known whose device it is: then it stays there.
        """
        keys = [key_of(call)]
        if call.idempotency_key and call.owner != call.principal:
            keys.insert(0, claims.key("ef", call.owner, "key", call.idempotency_key))
        found = await asyncio.gather(*(self._claims.get(key, call.allowed()) for key in keys))
        return next(((key, held) for key, held in zip(keys, found, strict=True) if held), (keys[0], None))

    async def close(self) -> None:
        """Stop trying to write outcomes."""
        await self._owed.close()

    async def _claim(self, call: Call[Any, Any], key: str, held: Claim | None) -> Claim | None:
        """Claim the effect for this call; None if another call was faster."""
        call.check_consent()
        await self._claim_approval(call)
        effect = Effect(
            state="taken",
            capability=call.contract.id,
            digest=call.arguments_digest,
            instance=self._instance,
            call=call.id,
        )
        revision = 0 if held is None else held.revision
        return await self._claims.write(key, msgspec.to_builtins(effect), revision, call.allowed())

    async def _claim_approval(self, call: Call[Any, Any]) -> None:
        if call.approval is not None:
            await self._bind(call, f"the approval {call.approval.id}")

    async def _bind(self, call: Call[Any, Any], what: str) -> None:
        """Record that `what` was used for the effect of `call`.

        Raises:
            HearthNetError: `unauthorized` if it was used for another effect.
        """
        key, wanted = _consent_key(call), _use(call)
        for _ in range(2):
            held = await self._claims.get(key, call.allowed())
            if held is not None:
                if held.record != wanted:
                    message = f"{what} was used before; ask the person again"
                    used = HearthNetError("unauthorized", message, rule="used")
                    raise ConsentRefused.of(used, call.arguments_digest)
                return
            call.check_consent()
            if await self._claims.write(key, wanted, 0, call.allowed()) is not None:
                return

    async def _carry_out(self, call: Call[Any, Any], key: str, taken: Claim, work: Work) -> Reply:
        effect = msgspec.convert(taken.record, Effect)
        try:
            reply = await work()
        except HearthNetError as error:
            state: State = "unknown" if error.code in _UNKNOWN else "free"
            await self._conclude(key, msgspec.structs.replace(effect, state=state, code=error.code), taken)
            raise
        except BaseException:
            await self._conclude(key, msgspec.structs.replace(effect, state="unknown"), taken)
            raise
        output = msgspec.to_builtins(reply.output)
        done = msgspec.structs.replace(
            effect, state="done", output=output, meta=msgspec.to_builtins(reply.meta)
        )
        if not await self._conclude(key, done, taken):
            raise HearthNetError("outcome_unknown", _UNWRITTEN)
        return reply

    async def _conclude(self, key: str, effect: Effect, taken: Claim) -> bool:
        """Record the outcome; if that fails now, keep trying while this process lives."""
        record: dict[str, Any] = msgspec.to_builtins(effect)
        try:
            await self._claims.write(key, record, taken.revision, _WRITE_SECONDS, share=BEGUN_SHARE)
        except HearthNetError as error:
            _log.error("the outcome of %s is not on the disk yet: %s", effect.call, error)
            self._owed.start(self._until_written(key, record, taken.revision), f"outcome of {effect.call}")
            return False
        return True

    async def _until_written(self, key: str, record: dict[str, Any], revision: int) -> None:
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            with contextlib.suppress(HearthNetError):
                await self._claims.write(key, record, revision, _WRITE_SECONDS, share=BEGUN_SHARE)
                return


def claimable(call: Call[Any, Any]) -> bool:
    """Return whether `call` has anything by which its repetition would be recognised."""
    return bool(call.idempotency_key or call.approval or call.grant)


def key_of(call: Call[Any, Any]) -> str:
    """Return the key of the effect of `call` for its principal, which consent is bound to."""
    approval, grant = call.approval.id if call.approval else "", call.grant.id if call.grant else ""
    return _key(call.principal, call.idempotency_key, approval, grant, call.use)


def _consent_key(call: Call[Any, Any]) -> str:
    """Return the key of the record of what the approval of `call`, or its use of a grant, was used for."""
    if call.grant is not None:
        return claims.key("gr", call.grant.approver, call.grant.id, str(call.use))
    return "" if call.approval is None else claims.key("ap", call.approval.approver, call.approval.id)


def _use(call: Call[Any, Any]) -> dict[str, str]:
    return {"effect": key_of(call), "capability": call.contract.id, "digest": call.arguments_digest}


def _key(principal: str, idempotency_key: str, approval: str, grant: str, use: int) -> str:
    if idempotency_key:
        return claims.key("ef", principal, "key", idempotency_key)
    if approval:
        return claims.key("ef", principal, "approval", approval)
    return claims.key("ef", principal, "grant", grant, str(use))


def _check_same(effect: Effect, call: Call[Any, Any]) -> None:
    if (effect.capability, effect.digest) != (call.contract.id, call.arguments_digest):
        raise HearthNetError(
            "bad_request",
            f"the key {call.idempotency_key} was used for something else; make a new one",
            details={"path": "/input/client_id", "rule": "reused"},
        )
