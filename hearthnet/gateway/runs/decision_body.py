"""A client's decision about a call, as JSON.

{"decision", "shown"?, "arguments"?, "reason"?, "approval"?}

See: docs/protocol/gateway.md#runs, docs/protocol/gateway.md#follow-ups.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit
from hearthnet.core.errors import HearthNetError


class DecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decision; `shown` is the digest of the call as the client saw it.

    An edit has `arguments`. A denial needs neither.
    """

    decision: Literal["approve", "deny", "edit"]
    shown: str = ""
    arguments: dict[str, Any] | None = None
    reason: str = ""
    approval: dict[str, Any] | None = None

    def decided(self) -> Decision:
        """Return the decision as the tool loop takes it.

        Raises:
            HearthNetError: `bad_request` for an edit without arguments.
        """
        if self.decision == "deny":
            return Deny(self.reason)
        if self.decision == "approve":
            return Approve()
        if self.arguments is None:
            raise HearthNetError(
                "bad_request", "an edit says which arguments it wants", details={"path": "/arguments"}
            )
        return Edit(self.arguments)
