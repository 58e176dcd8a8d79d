"""Persons of one home: guests of its node with a key each, who approve their own effects."""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet.bus.bus import Bus, find_contract
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.client_tokens import everything
from hearthnet.trust.authorization.approval import Approval, sign_approval
from hearthnet.trust.authorization.token import Scope, mint
from hearthnet.trust.keys import Identity


class Resident:
    """The person `name` of the home of `node`, whose calls leave by `bus`: under a session token with a key.

    Without `key` it is a client of that name which has none, and the gateway approves.
    """

    def __init__(
        self,
        node: Identity,
        bus: Bus,
        name: str,
        key: Identity | None = None,
        scope: Scope | None = None,
    ) -> None:
        self.bus, self.name = bus, name
        self.principal = f"{node.node_id}/{name}"
        self.provider = node.node_id
        self._signer = key or node
        self._has_key = key is not None
        self.token = mint(
            node,
            subject=bus.peer.node_id,
            audience=bus.peer.community,
            scope=scope or Scope(everything()),
            now_ms=now_ms(),
            ttl_seconds=3600,
            principal=name,
            cnf="" if key is None else key.node_id,
        )

    async def call(
        self, capability: str, params: dict[str, Any] | None = None, /, **given: Any
    ) -> dict[str, Any]:
        """The output of a call in this person's name, approved where it has side effects."""
        contract = find_contract(capability)
        body = {"params": params or {}, "input": given}
        key = str(given.get("client_id", ""))
        approval = self.approval(contract.id, body, key) if contract.side_effects else None
        reply = await self.bus.call(
            contract.id, body, token=self.token, approval=approval, node=self.provider
        )
        return dict(reply.output)

    def approval(self, capability: str, body: dict[str, Any], idempotency_key: str = "") -> Approval:
        """This person's yes to a call."""
        now = now_ms()
        unsigned = Approval(
            id=ids.new_ulid(),
            community=self.bus.peer.community,
            approver=self._signer.node_id,
            via=msgspec.UNSET if self._has_key else "gateway",
            actor=self.bus.peer.node_id,
            provider=self.provider,
            capability=capability,
            arguments_digest=digest(body),
            idempotency_key=idempotency_key,
            run="",
            tool_call_id="",
            time=now,
            expires=now + 60_000,
        )
        return sign_approval(self._signer, unsigned)


def resident(node: Identity, bus: Bus, name: str, scope: Scope | None = None) -> Resident:
    """A person of the home with a key of their own."""
    return Resident(node, bus, name, Identity.generate(), scope)
