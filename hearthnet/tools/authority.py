"""What a run may do in its owner's name: run tokens and signed approvals (wire.md, "Tokens", "Approvals").

A call that a model made is never sent under the owner's bare key. It carries a run token, which covers one
declared tool, a few calls and a few minutes; so the provider of a side effect demands an approval, and the
loop could not act unasked even if it wanted to.

Times come from the wall clock, as the provider's do, and not from the run's own clock, which never jumps:
where a computer learns the time while a run lasts, what it signs afterwards must be right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from hearthnet import ids
from hearthnet.bus.registry import OfferView
from hearthnet.errors import HearthNetError
from hearthnet.times import now_ms
from hearthnet.tools.events import Dispatch
from hearthnet.tools.toolbox import BoundTool
from hearthnet.trust.approval import ANY_PROVIDER, Approval, sign_approval
from hearthnet.trust.keys import Identity
from hearthnet.trust.token import Scope, mint

TOKEN_TTL_SECONDS: Final = 300
RENEW_SECONDS: Final = 60
DISPATCHES_PER_TOKEN: Final = 10
MAX_CALLS: Final = 64
"""What a token allows at one node: each dispatch may be tried at several processes of it (bus/calls.py)."""
APPROVAL_TTL_MS: Final = 120_000


class Offers(Protocol):
    """Who offers a capability now, as `Bus.offers` says."""

    async def offers(self, capability: str | None = None) -> list[OfferView]: ...


@dataclass
class _Minted:
    """A token, when it was made, and how often it may still be handed out."""

    token: str
    made_at: int
    left: int = DISPATCHES_PER_TOKEN

    def serves(self, now: int) -> bool:
        """Whether it may be handed out at `now`, which a clock that was set may put before it was made."""
        age = now - self.made_at
        return self.left > 0 and 0 <= age < (TOKEN_TTL_SECONDS - RENEW_SECONDS) * 1000


class RunAuthority:
    """The authority of one run, whose owner and executor are the same node."""

    def __init__(
        self, identity: Identity, community: str, run: str, clock: Callable[[], int] = now_ms
    ) -> None:
        """`clock` gives the milliseconds since the epoch."""
        self._identity = identity
        self._community = community
        self._run = run
        self._clock = clock
        self._tokens: dict[str, _Minted] = {}

    def token(self, tool: BoundTool) -> str:
        """A run token for one dispatch of this tool: its capability, its bound params.

        The same one serves several dispatches, and is renewed before its time or its calls run out.
        """
        now = self._clock()
        minted = self._tokens.get(tool.definition.name)
        if minted is None or not minted.serves(now):
            minted = self._tokens[tool.definition.name] = _Minted(self._mint(tool, now), now)
        minted.left -= 1
        return minted.token

    def _mint(self, tool: BoundTool, now: int) -> str:
        bound = tool.contract.split_arguments({}, tool.definition.bound_params)
        constraints = {name: [value] for name, value in bound["params"].items()}
        constraints |= {f"input.{name}": [value] for name, value in bound["input"].items()}
        return mint(
            self._identity,
            subject=self._identity.node_id,
            audience=self._community,
            scope=Scope(
                capabilities=(tool.capability,), params_constraints=constraints, max_calls_total=MAX_CALLS
            ),
            now_ms=now,
            ttl_seconds=TOKEN_TTL_SECONDS,
            run=self._run,
        )

    async def approve(self, tool: BoundTool, call: Dispatch, bus: Offers) -> Approval:
        """The owner's signed yes to exactly this call. Only for what a person has confirmed."""
        node, now = self._identity.node_id, self._clock()
        return sign_approval(
            self._identity,
            Approval(
                id=ids.new_ulid(now),
                community=self._community,
                approver=node,
                actor=node,
                provider=await self._provider(tool, bus),
                capability=tool.capability,
                arguments_digest=call.arguments_digest,
                idempotency_key=call.client_id,
                run=self._run,
                tool_call_id=call.tool_call_id,
                time=now,
                expires=now + APPROVAL_TTL_MS,
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
