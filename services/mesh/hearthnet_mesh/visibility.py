"""Visibility rules, by caller, for all replies of this service.

- Members, their levels and their offers: visible to every permitted caller of the service (contracts:
  `member`).
- An offer for its own node only: visible to that node when it calls for itself.
- An offer for its home only (a corpus that is not shared): visible to those who may call it.
- Posts, corpora and documents: visible to every permitted caller of the capability that lists them, corpora
  and documents of this node to those who see its offer of the corpus. With a token only the covered part is
  visible.
- Calls and runs: visible to the node that made them. A guest, or the holder of another node's token, sees
  none, because the trace names nodes and no guests.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.core import Capability
from hearthnet.trust import CallRequirement, Claims, foreseen_refusal

_SELF: Final = "self"
HOME: Final = "home"


class Viewer(msgspec.Struct, frozen=True):
    """The caller of a reply: its node, its principal, its level and its token's claims.

    `own` is the id of this node.
    """

    caller: str
    principal: str
    level: str
    own: str
    claims: Claims | None = None

    @property
    def is_self(self) -> bool:
        """True if this node calls for itself."""
        return self.caller == self.principal == self.own

    @property
    def is_node(self) -> bool:
        """True if a node calls for itself, without a guest or a token of another node."""
        return self.caller == self.principal

    def may_call(self, capability: Capability, params: dict[str, Any] | None = None) -> bool:
        """Return whether the token, if there is one, covers this call."""
        if self.claims is None:
            return True
        scope = self.claims.scope
        return scope.covers(capability) and scope.constraints.violated({"params": params or {}}) is None

    def may_see(self, trust: str, fields: dict[str, Any]) -> bool:
        """Return whether an offer is visible that requires `trust` and serves calls with `fields`."""
        if trust == HOME:
            at_home = self.caller == self.own
            return at_home and (self.claims is None or self.claims.is_of_home(self.own, fields))
        return trust != _SELF or self.is_self

    def why_not(self, capability: Capability, trust: str, node: str, *, side_effects: bool = False) -> str:
        """Return the reason that `node` would refuse a call of `capability`, or ""."""
        demand = CallRequirement(capability=capability, trust=trust, node=node, side_effects=side_effects)
        return foreseen_refusal(
            demand, self.claims, caller=self.caller, principal=self.principal, level=self.level
        )
