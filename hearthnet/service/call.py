"""What a handler gets and gives (architecture.md, "service/")."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import msgspec

from hearthnet.canonical import digest
from hearthnet.contracts import Contract
from hearthnet.trust.approval import Approval
from hearthnet.wire.header import Header

P = TypeVar("P")
I = TypeVar("I")  # noqa: E741


class Reply(msgspec.Struct, frozen=True):
    """A handler's answer: `output` and `meta` as the contract says, Structs or dicts.

    `meta.ms` is filled in.
    """

    output: Any
    meta: dict[str, Any] = {}


class Call(Generic[P, I]):
    """One authenticated, authorised and validated call.

    `caller` is the node that sent it, `principal` the member on whose behalf; `evidence` the caller's
    signed frame where
    the contract has side effects; `body` the complete `{params, input}` as it came.
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
    ) -> None:
        self.id = header.id
        self.caller = header.sender
        self.run = header.run
        self.hops = header.hops
        self.idempotency_key = header.idempotency_key
        self.contract = contract
        self.body = body
        self.params = params
        self.input = input
        self.principal = principal
        self.approval = approval
        self.evidence = evidence
        self._until = until

    @property
    def arguments_digest(self) -> str:
        """What an approval of this call names: BLAKE3 over the canonical JSON of the body."""
        return digest(self.body)

    def remaining(self) -> float:
        """Seconds until the caller gives up."""
        return max(0.0, self._until - asyncio.get_running_loop().time())
