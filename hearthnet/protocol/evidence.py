"""Evidence: the caller's signed frame in an audit entry.

The provider alone signs an entry, the caller the frame in it. With that frame the caller cannot deny the
call, and the provider cannot claim another one.

See: docs/protocol/audit.md#evidence.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest, read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame as frames
from hearthnet.protocol.frame import Frame, FrameError
from hearthnet.protocol.header import Header
from hearthnet.trust import signed_document
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization import approval as approvals
from hearthnet.trust.authorization import grant as grants
from hearthnet.trust.authorization import token as tokens
from hearthnet.trust.authorization.approval import Approval
from hearthnet.trust.authorization.authority import approver_of

_HASH: Final = "blake3:"
_BODY: Final = msgspec.json.Decoder(dict[str, Any])


def problem(entry: AuditEntry) -> str:
    """Describe why the frame in `entry` does not prove the entry; empty if nothing is wrong.

    A frame of which only the hash is kept, and an entry other than `began`, which has no frame, prove nothing
    but are not wrong.
    """
    if entry.kind != "began" or entry.frame.startswith(_HASH):
        return ""
    try:
        frame = frames.read_signed(ids.unb64(entry.frame), entry.caller)
        return _differences(entry, frame)
    except (FrameError, HearthNetError) as error:
        return f"the caller's frame proves nothing: {error}"


class SignedCall(msgspec.Struct, frozen=True):
    """What a caller signed: the arguments, and who consented by an approval or a standing grant, if any.

    `other` is what the approval differs in from the call, empty if it is for exactly this one.
    """

    arguments: dict[str, Any]
    approver: str = ""
    person: str = ""
    grantor: str = ""
    other: str = ""


def signed_call(entry: AuditEntry) -> SignedCall | None:
    """Return the signed call in an `entry` without a `problem`; None if it has only its hash, or none.

    Raises:
        HearthNetError: `invalid_signature` if the approval in it is for another call.
    """
    if entry.kind != "began" or entry.frame.startswith(_HASH):
        return None
    frame = frames.read_signed(ids.unb64(entry.frame), entry.caller)
    body, header = read_json(frame.body, _BODY), frame.header
    if header.grant is not None:
        return SignedCall(body, grantor=grants.decode(header.grant).approver)
    if header.approval is None:
        return SignedCall(body)
    approval = approvals.decode(header.approval)
    bound = approval.arguments_digest, approval.idempotency_key, approval.run, _name(approval.capability)
    if bound != (entry.digest, entry.idempotency_key, entry.run, _name(entry.capability)):
        raise HearthNetError(
            "invalid_signature", f"the approval in entry {entry.sequence} is for another call"
        )
    person, other = approval.person or "", _not_for_it(approval, header)
    return SignedCall(body, approver=approval.approver, person=person, other=other)


def _not_for_it(approval: Approval, header: Header) -> str:
    """Return what the provider would have refused in `approval`, as far as the signed frame tells."""
    claims = tokens.decode(header.token) if header.token else None
    approver, via = approver_of(claims) if claims is not None else (header.sender, "")
    may_be_any = approval.provider == approvals.ANY_PROVIDER and _is_shared_effect(header.capability)
    try:
        approval.check_members(
            ("version", approval.v, 1),
            # Whose devices two keys are stands in a roster, of the time of the call: a proof has none.
            ("approver", approval.approver, approval.approver if approval.person else approver),
            ("way of consent", approval.via or "", via),
            ("community", approval.community, header.community),
            ("actor", approval.actor, header.sender),
            ("provider", header.to if may_be_any else approval.provider, header.to),
        )
        approval.check_time(header.time)
    except HearthNetError as error:
        return "time" if error.code == "expired" else error.rule
    return ""


def _is_shared_effect(capability: str) -> bool:
    """Return whether an effect is known here as one on a shared log; False for a contract that is not known.

    Without its contract that is unknown, and an approval that names no provider proves no place.
    """
    try:
        return contracts().find(capability).is_shared_effect
    except HearthNetError:
        return False


def _differences(entry: AuditEntry, frame: Frame) -> str:
    header = frame.header
    for what, said, kept in (
        ("call", header.id, entry.call),
        ("node", header.to, entry.node),
        ("process", header.to_instance, entry.instance),
        ("community", header.community, entry.community),
        ("capability", _name(header.capability), _name(entry.capability)),
        ("token", tokens.decode(header.token).jti if header.token else "", entry.token),
        ("run", header.run, entry.run),
        ("idempotency key", header.idempotency_key, entry.idempotency_key),
        ("arguments", digest(read_json(frame.body, _BODY)), entry.digest),
        ("approval", _approval(header), entry.approval),
        ("standing grant", _grant(header), (entry.grant, entry.use)),
        ("principal", _principal(header), entry.principal),
    ):
        if said != kept:
            return f"the caller's frame says otherwise: {what}"
    return ""


def _principal(header: Header) -> str:
    return tokens.decode(header.token).on_behalf_of if header.token else header.sender


def _name(capability: str) -> str:
    """Strip the version: the provider may serve a call of an older minor version."""
    return capability.partition("@")[0]


def _approval(header: Header) -> str:
    """Verify the approval in the header and return its id; empty without one."""
    if header.approval is None:
        return ""
    approval = approvals.decode(header.approval)
    signed_document.check(approval, approval.approver, approvals.PURPOSE)
    return approval.id


def _grant(header: Header) -> tuple[str, int]:
    """Verify the standing grant in the header and return its id and the number of this use.

    Empty and 0 without a standing grant.
    """
    if header.grant is None:
        return "", 0
    grant = grants.decode(header.grant)
    signed_document.check(grant, grant.approver, grants.PURPOSE)
    return grant.id, header.use
