"""What a handler gets and gives.

See: docs/services.md#what-a-call-says.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import msgspec

from hearthnet.canonical import digest
from hearthnet.contracts import Contract
from hearthnet.times import now_ms
from hearthnet.trust import approval as approvals
from hearthnet.trust import grant as grants
from hearthnet.trust.approval import Approval
from hearthnet.trust.grant import Grant
from hearthnet.trust.token import Claims
from hearthnet.wire.header import Header

P = TypeVar("P")
I = TypeVar("I")  # noqa: E741
_SPARE_SECONDS: Final = 1.0
"""How long before the caller gives up it has an answer, at the latest."""


class Reply(msgspec.Struct, frozen=True):
    """A handler's answer: `output` and `meta` as the contract says, Structs or dicts.

    `meta.ms` is filled in.
    """

    output: Any
    meta: dict[str, Any] = {}


class Call(Generic[P, I]):
    """One authenticated, authorised and validated call.

    `caller` is the node that sent it, `principal` the member or guest on whose behalf, `token` the id of the
    token that says so, empty without one, and `claims` what it says; `approval`, or `grant` and `use`, is the
    person's consent where one is due; `evidence` the caller's signed frame where the contract has side
    effects; `body` the complete `{params, input}` as it came; `until` the loop time at which the caller gives
    up, and by which the calls that its handler makes end. Calls of one `session` come to the same process.
    `bearer` is the token itself, for further calls by the node that holds it; it is written nowhere.
    `traceparent` is this call's step of its trace; calls over the bus continue it by themselves.
    """

    def __init__(
        self,
        *,
        header: Header,
        contract: Contract,
        body: dict[str, Any],
        params: P,
        input: I,
        principal: str,
        approval: Approval | None,
        evidence: bytes | None,
        until: float,
        grant: Grant | None = None,
        token: str = "",
        traceparent: str = "",
        claims: Claims | None = None,
    ) -> None:
        self.id = header.id
        self.caller = header.sender
        self.run = header.run
        self.session = header.session
        self.hops = header.hops
        self.bearer = header.token
        self.idempotency_key = header.idempotency_key
        self.contract = contract
        self.body = body
        self.params = params
        self.input = input
        self.principal = principal
        self.approval = approval
        self.grant = grant
        self.use = header.use if grant is not None else 0
        self.token = token
        self.claims = claims
        self.evidence = evidence
        self.traceparent = traceparent
        self.until = until

    @cached_property
    def arguments_digest(self) -> str:
        """What an approval of this call names: BLAKE3 over the canonical JSON of the body."""
        return digest(self.body)

    def check_consent(self) -> None:
        """Raises `expired` where the approval or the standing grant is too old for an effect.

        Asked once it is known that there was no effect before: an outcome is told for ever.
        """
        if self.approval is not None:
            approvals.check_time(self.approval, now_ms())
        if self.grant is not None:
            grants.check_time(self.grant, now_ms())

    def remaining(self) -> float:
        """Seconds until the caller gives up."""
        return max(0.0, self.until - asyncio.get_running_loop().time())

    def allowed(self) -> float:
        """Seconds that this call may take, so that its answer comes before the caller gives up."""
        left = self.remaining()
        return left - min(_SPARE_SECONDS, left / 4)
