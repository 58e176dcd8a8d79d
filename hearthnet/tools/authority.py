"""What a run may do in its owner's name: run tokens and signed approvals (wire.md, "Tokens", "Approvals").

A call that a model made is never sent under the owner's bare key. It carries a run token, which covers one
declared tool and nothing else; so the provider of a side effect demands an approval, and the loop could not
act unasked even if it wanted to.
"""

from __future__ import annotations

from typing import Final, Protocol

from hearthnet import ids
from hearthnet.bus.registry import OfferView
from hearthnet.errors import HearthNetError
from hearthnet.tools.events import Dispatch
from hearthnet.tools.toolbox import BoundTool
from hearthnet.trust.approval import ANY_PROVIDER, Approval, sign_approval
from hearthnet.trust.keys import Identity
from hearthnet.trust.token import Scope, mint

TOKEN_TTL_SECONDS: Final = 300
RENEW_SECONDS: Final = 60
APPROVAL_TTL_MS: Final = 120_000


class Offers(Protocol):
    """Who offers a capability now, as `Bus.offers` says."""

    async def offers(self, capability: str | None = None) -> list[OfferView]: ...


class RunAuthority:
    """The authority of one run, whose owner and executor are the same node."""

    def __init__(self, identity: Identity, community: str, run: str) -> None:
        self._identity = identity
        self._community = community
        self._run = run
        self._tokens: dict[str, tuple[str, int]] = {}

    def token(self, tool: BoundTool, now_ms: int) -> str:
        """A run token for this tool alone: its capability, its bound params. Renewed before it runs out."""
        token, renew_at = self._tokens.get(tool.definition.name, ("", 0))
        if now_ms >= renew_at:
            token = self._mint(tool, now_ms)
            renew_at = now_ms + (TOKEN_TTL_SECONDS - RENEW_SECONDS) * 1000
            self._tokens[tool.definition.name] = (token, renew_at)
        return token

    def _mint(self, tool: BoundTool, now_ms: int) -> str:
        bound = tool.contract.split_arguments({}, tool.definition.bound_params)
        constraints = {name: [value] for name, value in bound["params"].items()}
        constraints |= {f"input.{name}": [value] for name, value in bound["input"].items()}
        return mint(
            self._identity,
            subject=self._identity.node_id,
            audience=self._community,
            scope=Scope(capabilities=(tool.capability,), params_constraints=constraints),
            now_ms=now_ms,
            ttl_seconds=TOKEN_TTL_SECONDS,
            run=self._run,
        )

    async def approve(self, tool: BoundTool, call: Dispatch, bus: Offers, now_ms: int) -> Approval:
        """The owner's signed yes to exactly this call. Only for what a person has confirmed."""
        node = self._identity.node_id
        return sign_approval(
            self._identity,
            Approval(
                id=ids.new_ulid(now_ms),
                community=self._community,
                approver=node,
                actor=node,
                provider=await self._provider(tool, bus),
                capability=tool.capability,
                arguments_digest=call.arguments_digest,
                idempotency_key=call.client_id,
                run=self._run,
                tool_call_id=call.tool_call_id,
                time=now_ms,
                expires=now_ms + APPROVAL_TTL_MS,
            ),
        )

    async def _provider(self, tool: BoundTool, bus: Offers) -> str:
        """For which node the approval is: any for an effect on the community, else the only one there is."""
        if tool.contract.effect_scope == "community":
            return ANY_PROVIDER
        nodes = sorted({view.node for view in await bus.offers(tool.capability)})
        if len(nodes) != 1:
            found = ", ".join(ids.short_id(node) for node in nodes) or "nobody"
            raise HearthNetError(
                "not_found", f"an approval of {tool.capability} is for one node; it is offered by: {found}"
            )
        return nodes[0]
