"""Standing grants: a person's signed consent to some uses of one tool.

A call names the grant and the number of its use; the provider accepts each use once
(service/effects/exactly_once.py). A grant lives at most a day, like a token, and is revoked like one
(trust/authorization/revocation.py).

See: docs/protocol/approvals.md#standing-grant.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from hearthnet.core import ids
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.approval import MAX_LIFE_MS, SKEW_MS, Claimed
from hearthnet.trust.authorization.constraints import Constraints
from hearthnet.trust.keys import Identity

PURPOSE: Final = "grant"
MOST_USES: Final = 10_000
Use = Annotated[int, msgspec.Meta(ge=1, le=MOST_USES)]


class Grant(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed consent to several calls; `time` and `expires` are Unix milliseconds.

    `provider` is one node, never any; `tool_hash` is the schema hash of the contract that the person saw, so
    that a changed tool voids the grant.
    """

    id: str
    community: str
    approver: str
    actor: str
    provider: str
    capability: str
    params_constraints: dict[str, list[Any]]
    tool_hash: str
    max_uses: Use
    time: Count
    expires: Count
    v: int = 1


def sign_grant(identity: Identity, grant: Grant) -> Grant:
    """Sign the grant with `identity`, which must be its approver.

    Raises:
        HearthNetError: `unauthorized` if it is not.
    """
    if identity.node_id != grant.approver:
        raise HearthNetError("unauthorized", "a standing grant is signed by the one who approves")
    return signed_document.sign(grant, identity, PURPOSE)


def decode(value: object) -> Grant:
    """Read the grant in a header.

    Raises:
        HearthNetError: `bad_request` if it is malformed.
    """
    try:
        grant = msgspec.convert(value, type=Grant)
        ids.public_key(grant.approver)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"the standing grant is malformed: {error}") from error
    if not ids.is_ulid(grant.id):
        raise HearthNetError("bad_request", "the standing grant is malformed: its id is no ULID")
    return grant


def check_binding(grant: Grant, use: int, call: Claimed, tool_hash: str, body: dict[str, Any]) -> None:
    """Check that the right key signed this grant for this call of the tool with `tool_hash`.

    Ignores time and earlier uses.

    Raises:
        HearthNetError: `invalid_signature` if the signature is not the approver's; `unauthorized` for all
            other reasons.
    """
    signed_document.check(grant, grant.approver, PURPOSE)
    for what, granted, claimed in (
        ("version", grant.v, 1),
        ("approver", grant.approver, call.approver),
        ("community", grant.community, call.community),
        ("actor", grant.actor, call.actor),
        ("provider", grant.provider, call.provider),
        ("capability", grant.capability, call.capability),
        ("tool", grant.tool_hash, tool_hash),
        ("arguments", Constraints(grant.params_constraints).violated(body), None),
    ):
        if granted != claimed:
            raise _unfit(what, f"the standing grant is for another {what}; ask the person again")
    if not 1 <= use <= grant.max_uses:
        raise _unfit("use", f"the standing grant has {grant.max_uses} uses, not a use {use}")


def check_time(grant: Grant, now_ms: int) -> None:
    """Check that the grant is valid at `now_ms`.

    Not called for a repetition, whose recorded outcome never expires.

    Raises:
        HearthNetError: `expired` outside the grant's lifetime, or if that is over a day.
    """
    alive = grant.time <= now_ms + SKEW_MS and now_ms <= grant.expires + SKEW_MS
    if not alive or grant.expires - grant.time > MAX_LIFE_MS:
        raise HearthNetError(
            "expired",
            f"the standing grant {grant.id} is no longer valid; ask the person again",
            details={"now": now_ms},
        )


def _unfit(rule: str, message: str) -> HearthNetError:
    return HearthNetError("unauthorized", message, details={"rule": rule})
