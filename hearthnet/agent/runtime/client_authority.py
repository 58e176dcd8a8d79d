"""The authority of a run: tokens and approvals of the node's owner or of one client of its gateway.

    owner's run     run tokens that the node makes for itself, approvals that the node signs    authority.py
    client's run    the client's own token, for the model too; approvals signed by the client's key, or,
                    where it has none, by its gateway, which marks them with `via`              here
    owner's page    as a client; calls that the owner approved at the command line are sent as those of
                    an owner's run (docs/decisions/0164)                                        here

A gateway never acts with its node's bare key for a client: without a token nothing is sent.

See: docs/protocol/agent.md#authority-of-the-calls, docs/protocol/tokens.md#run-tokens, docs/decisions/0101.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from hearthnet.agent.loop.events import Dispatch
from hearthnet.agent.loop.state import confirmation_id_of
from hearthnet.agent.persistence.decision_log import DecisionLog, SignedDecision
from hearthnet.agent.runtime.authority import RunAuthority, unsigned_approval
from hearthnet.agent.tools.providers import Offers
from hearthnet.agent.tools.toolbox import TOOLS_CALL_ID, BoundTool, Tool
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization import approval as approvals
from hearthnet.trust.authorization.approval import ANY_PROVIDER, Approval, Claimed, sign_approval
from hearthnet.trust.authorization.constraints import Constraints
from hearthnet.trust.authorization.token import Scope, is_owner
from hearthnet.trust.keys import Identity


class ClientPrincipal(msgspec.Struct, frozen=True):
    """The client for whom a run works.

    `principal` is as trust/authorization/authority.py gives it. `key` is the node id whose signature counts
    for its approvals, empty where its gateway approves. `token(approver)` returns the token for calls: the
    client's own for "", else one under which `approver`, another key of the same principal, signs approvals.
    `is_owner`: this is the page of the node's owner.

    Raises:
        HearthNetError: `token` raises `unauthorized` if there is no such token.
    """

    principal: str
    key: str
    scope: Scope
    token: Callable[[str], str]
    is_owner: bool = False

    def covers(self, tool: Tool) -> bool:
        """Return whether the scope lets the client call `tool` with its bound params."""
        if not isinstance(tool, BoundTool):
            return True
        covered = self.scope.covers(tool.contract.capability)
        if tool.composed:
            covered = covered and self.scope.covers_name(TOOLS_CALL_ID)
        return covered and self._allows(tool)

    def _allows(self, tool: BoundTool) -> bool:
        """Return whether some call of `tool` can meet the scope's constraints."""
        fixed = tool.contract.split_arguments({}, tool.bound_params)
        for key, values in self.scope.params_constraints.items():
            section, _, name = key.rpartition(".")
            section = section or "params"
            if name in fixed[section]:
                if Constraints({key: values}).violated(fixed) is not None:
                    return False
            elif name not in _fields(tool, section):
                return False
        return True


def _fields(tool: BoundTool, section: str) -> Mapping[str, Any]:
    part = tool.contract.request_schema["properties"].get(section, {})
    fields: Mapping[str, Any] = part.get("properties", {})
    return fields


class ClientAuthority:
    """The authority of one client's run, as `RunAuthority` is the owner's."""

    def __init__(
        self,
        identity: Identity,
        community: str,
        run: str,
        acting: ClientPrincipal,
        decisions: DecisionLog | None,
        owner: RunAuthority | None = None,
        devices: Collection[str] = (),
    ) -> None:
        """Create the authority of the run `run`.

        `decisions` returns the decisions that were made. `owner` is the authority of the node's owner over
        this run, where the client is a page of the owner; `devices` are the other nodes of the owner, whose
        decisions count as those of the command line.
        """
        self._devices = devices
        self._identity = identity
        self._community = community
        self._run = run
        self._acting = acting
        self._decisions = decisions
        self._owner = owner

    def token(self, tool: BoundTool, holder: str = "", approval: Approval | None = None) -> str:
        """Return the token under which a call of `tool` is sent.

        It is the client's token, that of the approver where another key of the client has approved, or the
        owner's for a call that the owner approved at the command line.

        Raises:
            HearthNetError: `unauthorized` for a `holder` other than this node: a client without a key here
                cannot let another node act for it (docs/protocol/tokens.md#run-tokens).
        """
        self._check_node(holder)
        key = "" if approval is None or approval.via else approval.approver
        if self._owner is not None and key == self._identity.node_id:
            return self._owner.token(tool, holder, approval)
        return self._acting.token("" if key == self._acting.key else key)

    def model_token(self) -> str:
        """Return the token for requests to the model."""
        return self._acting.token("")

    async def approve(self, tool: BoundTool, call: Dispatch, bus: Offers, actor: str = "") -> Approval:
        """Return the approval of exactly this call, signed by the client or its gateway.

        The gateway signs for a client that has no key.

        Raises:
            HearthNetError: `unauthorized` if the client has a key and has not signed an approval.
        """
        self._check_node(actor)
        signed = None
        if self._decisions is not None:
            signed = await self._decisions.decided(
                self._run, confirmation_id_of(self._run, call.tool_call_id)
            )
        if signed is not None and signed.signed_approval is not None:
            return signed.signed_approval
        if self._owner is not None and signed is not None and self._allowed_by_owner(signed, call):
            return await self._owner.approve(tool, call, bus, actor)
        if self._acting.key:
            raise HearthNetError("unauthorized", f"{tool.capability} takes the client's own signed approval")
        node = self._identity.node_id
        unsigned = await unsigned_approval(
            tool, call, bus, approver=node, actor=node, community=self._community, run=self._run, now=now_ms()
        )
        return sign_approval(self._identity, msgspec.structs.replace(unsigned, via="gateway"))

    def _allowed_by_owner(self, signed: SignedDecision, call: Dispatch) -> bool:
        """Return whether `signed` is the owner's approval, at the command line, of exactly `call`."""
        is_owners = signed.by == self._identity.node_id or signed.by in self._devices
        return is_owners and signed.digest == call.arguments_digest

    def _check_node(self, node: str) -> None:
        if node not in ("", self._identity.node_id):
            raise HearthNetError(
                "unauthorized",
                "only this node can make calls for its client; llm.tools.call is not offered here",
            )


async def approval_template(
    tool: BoundTool, asked: PendingApproval, key: str, actor: str, community: str, bus: Offers
) -> Approval:
    """Return the approval of exactly the call in `asked`, without the signature of `key`.

    `actor` is this node. The approval expires with the pending approval. Raises what `provider_of` raises
    where the home that an effect is for is not settled.
    """
    now = now_ms()
    approval = await unsigned_approval(
        tool, asked, bus, approver=key, actor=actor, community=community, run=asked.run, now=now
    )
    return msgspec.structs.replace(approval, expires=max(asked.expires_at, now))


def verify_approval(approval: Approval, expected: Approval, now: int) -> None:
    """Check that `approval` matches `expected` (of `approval_template`) and is signed by its approver.

    Its id and time may differ.

    Raises:
        HearthNetError: `unauthorized` if it is for another call or expires later than `expected`;
            `invalid_signature` if the signature does not verify; `expired` outside its lifetime.
    """
    claimed = Claimed(
        community=expected.community,
        approver=expected.approver,
        via="",
        actor=expected.actor,
        provider=expected.provider,
        capability=expected.capability,
        arguments_digest=expected.arguments_digest,
        idempotency_key=expected.idempotency_key,
        run=expected.run,
        shared_effect=expected.provider == ANY_PROVIDER,
    )
    approvals.check_binding(approval, claimed)
    if approval.tool_call_id != expected.tool_call_id or not ids.is_ulid(approval.id):
        raise HearthNetError(
            "unauthorized", "the approval is for another tool call; ask the person again", rule="tool call"
        )
    approval.check_time(now)
    if approval.expires > expected.expires:
        raise HearthNetError(
            "unauthorized",
            "the approval is to live longer than the question; sign what was shown",
            rule="expires",
        )


class ClientApprover:
    """A client that decides about its runs (`saved_runs.RunApprover`)."""

    def __init__(
        self, principal: str, key: str, actor: str, community: str, bus: Offers, *, is_owner: bool = False
    ) -> None:
        """Create a client; `actor` is this node, `is_owner` marks the page of its owner."""
        self.principal: Final = principal
        self.key: Final = key
        self._actor = actor
        self._community = community
        self._bus = bus
        self._is_owner = is_owner

    def sees(self, principal: str) -> bool:
        """Implement `saved_runs.RunApprover.sees`."""
        return principal == self.principal or (self._is_owner and is_owner(principal, self._actor))

    async def approval_template(self, tool: Tool, asked: PendingApproval) -> Approval | None:
        """Return the approval that the client has to sign for `asked`.

        None where the client has no key, or the call has no effect that a provider carries out. Raises what
        `approval_template` raises.
        """
        if not self.key or not isinstance(tool, BoundTool) or not tool.contract.side_effects:
            return None
        return await approval_template(tool, asked, self.key, self._actor, self._community, self._bus)

    async def check(self, tool: Tool, allowed: PendingApproval, approval: Approval | None, now: int) -> None:
        """Implement `saved_runs.RunApprover.check`."""
        expected = await self.approval_template(tool, allowed)
        if expected is None:
            return
        if approval is None:
            raise HearthNetError(
                "unauthorized",
                f"a yes to {allowed.name} takes your signed approval of exactly what is shown",
                rule="approval",
            )
        verify_approval(approval, expected, now)
