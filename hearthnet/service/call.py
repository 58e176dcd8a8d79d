"""The request that a handler receives, and its reply.

See: docs/services.md#what-a-call-says.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.core.canonical_json import digest
from hearthnet.core.times import now_ms
from hearthnet.protocol.header import Header
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.authorization.grant import Grant
from hearthnet.trust.authorization.token import Claims

P = TypeVar("P")
I = TypeVar("I")  # noqa: E741
_SPARE_SECONDS: Final = 1.0
"""Maximum time reserved for the answer before the caller gives up."""


class Reply(msgspec.Struct, frozen=True):
    """A handler's answer: `output` and `meta` as in the contract, Structs or dicts.

    `meta.ms` is filled in by the library.
    """

    output: Any
    meta: dict[str, Any] = {}


class Call(Generic[P, I]):
    """One authenticated, authorised and validated call.

    `caller` is the node that sent it, `principal` the member or guest for whom, `owner` the person whose
    effect it is, which is the principal where it has no person, `token` the id of the token
    that proves this, empty without one, and `claims` its contents. `approval`, or `grant` and `use`, is the
    person's consent if one is required. `evidence` is the caller's signed frame if the contract has side
    effects; `body` the complete `{params, input}` as received; `until` the loop time at which the caller
    gives up, and by which the calls of its handler end. Calls of one `session` are sent to the same process.
    `bearer` is the token itself, for further calls by the node that holds it; it is written nowhere.
    `traceparent` is this call's step of its trace; calls over the bus continue it automatically.
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
        owner: str = "",
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
        self.owner = owner or principal
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
        """BLAKE3 over the canonical JSON of the body, which an approval of this call names."""
        return digest(self.body)

    def check_consent(self) -> None:
        """Check that the approval or the standing grant is not too old for an effect.

        Decides about new effects alone, since a recorded outcome never expires.

        Raises:
            HearthNetError: `expired` if it is too old.
        """
        for consent in (self.approval, self.grant):
            if consent is not None:
                consent.check_time(now_ms())

    def remaining(self) -> float:
        """Return the seconds until the caller gives up."""
        return max(0.0, self.until - asyncio.get_running_loop().time())

    def allowed(self) -> float:
        """Return the seconds that this call may take to be answered before the caller gives up."""
        left = self.remaining()
        return left - min(_SPARE_SECONDS, left / 4)
