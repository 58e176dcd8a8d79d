"""Who asks, and what they may see: every answer of this service goes through here.

- Members, their levels and what they offer: whoever may call the service at all (contracts: `member`).
- An offer for its own node alone (`personal`): that node, and nobody in its name.
- Posts, corpora and documents: whoever may call what lists them. A token shows what it covers and no more.
- Calls and runs: those that the asking node made itself. A guest, or whoever holds the token of another, sees
  none: the trace names nodes and not guests.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet.trust.authority import SELF, Demand, Standing, Token, effective
from hearthnet.trust.roster import RANK
from hearthnet.trust.token import Claims
from hearthnet.types import Capability

_BODY: Final[dict[str, Any]] = {"params": {}, "input": {}}


class Viewer(msgspec.Struct, frozen=True):
    """Who asks: the node that calls, on whose behalf, its level, its token's claims; `own` is this node."""

    caller: str
    principal: str
    level: str
    own: str
    claims: Claims | None = None

    @property
    def is_self(self) -> bool:
        """Whether this node asks for itself."""
        return self.caller == self.principal == self.own

    @property
    def is_node(self) -> bool:
        """Whether a node asks for itself, and neither for a guest nor under another's token."""
        return self.caller == self.principal

    def may_call(self, capability: Capability, params: dict[str, Any] | None = None) -> bool:
        """Whether the token, if there is one, covers this call."""
        if self.claims is None:
            return True
        scope = self.claims.scope
        return scope.covers(capability) and scope.constraints.violated({"params": params or {}}) is None

    def may_see(self, trust: str) -> bool:
        """Whether an offer with that demand (empty: its contract's) is shown."""
        return trust != SELF or self.is_self

    def why_not(self, capability: Capability, trust: str, node: str, *, side_effects: bool = False) -> str:
        """Why a call of `capability` at `node` would be refused; empty where it would not."""
        # A token that is bound to values says nothing of a call whose values are not known yet.
        claims = self.claims
        free = claims and msgspec.structs.replace(
            claims, scope=msgspec.structs.replace(claims.scope, params_constraints={})
        )
        issuer = Standing(self.principal.partition("/")[0], self.level)
        caller = issuer if claims is None else Standing(self.caller, "member")
        token = None if free is None else Token(free, issuer)
        demand = Demand(capability=capability, trust=trust, node=node, side_effects=side_effects)
        if trust != SELF and trust not in RANK:
            return f"{capability} has a rule of its own, {trust}: what decides is what the call says"
        try:
            effective(caller, token, demand, _BODY)
        except HearthNetError as error:
            return error.message
        return ""
