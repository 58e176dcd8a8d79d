"""What an audit entry keeps of the call itself: the caller's signed frame.

An entry is signed by the provider alone. The frame in it is signed by the caller: with it the caller cannot
deny what it asked for, and the provider cannot say that something else was asked.

See: docs/protocol/audit.md#evidence.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet import ids
from hearthnet.canonical import digest, read_json
from hearthnet.errors import HearthNetError
from hearthnet.trust import approval as approvals
from hearthnet.trust import grant as grants
from hearthnet.trust import signed
from hearthnet.trust import token as tokens
from hearthnet.trust.audit import Entry
from hearthnet.wire import frame as frames
from hearthnet.wire.frame import Frame, FrameError
from hearthnet.wire.header import Header

_HASH: Final = "blake3:"
_BODY: Final = msgspec.json.Decoder(dict[str, Any])


def problem(entry: Entry) -> str:
    """Why the frame that `entry` keeps does not prove what the entry says; empty where it does.

    A frame that is kept as its hash only, and what is no `began`, which keeps none, prove nothing and are not
    wrong.
    """
    if entry.kind != "began" or entry.frame.startswith(_HASH):
        return ""
    try:
        frame = frames.read_signed(ids.unb64(entry.frame), entry.caller)
        return _differences(entry, frame)
    except (FrameError, HearthNetError) as error:
        return f"the caller's frame proves nothing: {error}"


def _differences(entry: Entry, frame: Frame) -> str:
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
    ):
        if said != kept:
            return f"the caller's frame says otherwise: {what}"
    return ""


def _name(capability: str) -> str:
    """Without its version: what was asked for may be an older minor version than what answered."""
    return capability.partition("@")[0]


def _approval(header: Header) -> str:
    """The id of the approval in the header, which its approver signed; empty where there is none."""
    if header.approval is None:
        return ""
    approval = approvals.decode(header.approval)
    signed.check(approval, approval.approver, approvals.PURPOSE)
    return approval.id


def _grant(header: Header) -> tuple[str, int]:
    """The id of the standing grant in the header, which its approver signed, and which use of it this is."""
    if header.grant is None:
        return "", 0
    grant = grants.decode(header.grant)
    signed.check(grant, grant.approver, grants.PURPOSE)
    return grant.id, header.use
