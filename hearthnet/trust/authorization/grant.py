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
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.authorization.approval import Claimed, Consent
from hearthnet.trust.authorization.constraints import Constraints
from hearthnet.trust.keys import Identity

PURPOSE: Final = "grant"
MOST_USES: Final = 10_000
UseCount = Annotated[int, msgspec.Meta(ge=1, le=MOST_USES)]


class Grant(Consent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signed consent to several calls.

    `provider` is one node, never any; `tool_hash` is the schema hash of the contract that the person saw, so
    that a changed tool voids the grant.
    """

    KIND = "standing grant"

    params_constraints: dict[str, list[Any]]
    tool_hash: str
    max_uses: UseCount


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
    grant.check_members(
        ("version", grant.v, 1),
        ("approver", grant.approver, grant.approver_for(call)),
        ("community", grant.community, call.community),
        ("actor", grant.actor, call.actor),
        ("provider", grant.provider, call.provider),
        ("capability", grant.capability, call.capability),
        ("tool", grant.tool_hash, tool_hash),
        ("arguments", Constraints(grant.params_constraints).violated(body), None),
    )
    if not 1 <= use <= grant.max_uses:
        raise HearthNetError(
            "unauthorized",
            f"the standing grant has {grant.max_uses} uses, not a use {use}",
            details={"rule": "use"},
        )
