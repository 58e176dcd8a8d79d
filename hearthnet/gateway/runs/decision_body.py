"""A client's decision about a call, as JSON, and the record of one that is refused.

{"decision", "shown"?, "arguments"?, "reason"?, "approval"?}

See: docs/protocol/gateway.md#runs, docs/protocol/gateway.md#follow-ups,
docs/protocol/approvals.md#refusals-on-record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from hearthnet.agent.tools.types import Approve, Decision, Deny, Edit
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization import approval as approvals

NOTED: Final = frozenset({"unauthorized", "invalid_signature", "expired", "not_found"})
"""The codes of refused decisions that the audit log gets."""
_LONGEST: Final = 64


class DecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decision; `shown` is the digest of the call as the client saw it, before an edit.

    An edit has `arguments`; a denial needs neither. `approval` is the signed one of a client with a key.
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


def refused_fields(run: str, call: str, approval: Mapping[str, Any] | None, via: str) -> dict[str, str]:
    """Return the fields of an audit entry for a refused decision, without those of a malformed approval."""
    fields = {"call": call[:_LONGEST] or "-", "run": run[:_LONGEST], "via": via}
    with contextlib.suppress(HearthNetError):
        if approval is not None:
            given = approvals.decode(dict(approval))
            fields |= {
                "approval": given.id if ids.is_ulid(given.id) else "",
                "digest": given.arguments_digest[:80],
                "capability": given.capability[:_LONGEST],
            }
    return fields
