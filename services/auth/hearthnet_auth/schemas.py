"""Inputs of the capabilities of `auth` (contracts/auth.*, contracts/community.*)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hearthnet import HearthNetError
from hearthnet.trust import CommunityEvent, Confirmation, CoSigner


class InviteInput(msgspec.Struct, frozen=True):
    """Input of `community.invite`.

    The invitee is described by a name or given as a node id; the end is `ttl_seconds` from now, or
    `expires_at`.
    """

    client_id: str
    ttl_seconds: int
    display_name: str = ""
    invitee_node_id: str = ""
    expires_at: str = ""
    co_signers: tuple[CoSigner, ...] = ()


class DeviceInviteInput(msgspec.Struct, frozen=True):
    """Input of `community.device.invite`: what the new node is called, and for how long the text is good."""

    client_id: str
    ttl_seconds: int
    display_name: str = ""


class NoInput(msgspec.Struct, frozen=True):
    """Input of a capability that takes nothing."""


class JoinInput(msgspec.Struct, frozen=True):
    """Input of `community.join`: the joining node's signed event, and the heads that it holds."""

    event: CommunityEvent
    heads: dict[str, tuple[str, ...]]


class SyncInput(msgspec.Struct, frozen=True):
    """Input of `community.sync`: the heads that the caller holds."""

    heads: dict[str, tuple[str, ...]]
    limit: int


class RoleInput(msgspec.Struct, frozen=True):
    """Input of `community.promote` and `community.demote`."""

    client_id: str
    target_node_id: str
    new_level: Literal["member", "trusted", "anchor"]
    co_signers: tuple[CoSigner, ...] = ()


class RevokeInput(msgspec.Struct, frozen=True):
    """Input of `community.revoke`."""

    client_id: str
    target_node_id: str
    reason: str
    co_signers: tuple[CoSigner, ...] = ()


class WithdrawInput(msgspec.Struct, frozen=True):
    """Input of `community.withdraw`."""

    invite_event_id: str


class DoorInput(msgspec.Struct, frozen=True):
    """Input of `community.door.open` and `community.door.check`."""

    address: str
    route: str
    key: str


class DoorCloseInput(msgspec.Struct, frozen=True):
    """Input of `community.door.close`."""

    node_id: str


class DeviceInput(msgspec.Struct, frozen=True):
    """Input of `community.device.remove`."""

    client_id: str
    device: str
    reason: str = ""


class DeviceAddInput(msgspec.Struct, frozen=True):
    """Input of `community.device.add`: the device, and its signature on the statement about it."""

    client_id: str
    person: str
    device: str
    kind: Literal["browser", "phone", "program"]
    name: str
    device_signature: str


class RecoverInput(msgspec.Struct, frozen=True):
    """Input of `community.person.recover`; the statements are in the home."""

    client_id: str


class KeepInput(msgspec.Struct, frozen=True):
    """Input of `community.recovery.keep`: the statement that names the helpers, and a share, sealed."""

    statement: dict[str, Any]
    sealed: str


class GiveInput(msgspec.Struct, frozen=True):
    """Input of `community.recovery.give`: a share for the recovery of a person, sealed."""

    person: str
    sealed: str


class RunInput(msgspec.Struct, frozen=True):
    """Input of `community.device.run` and `community.device.take`."""

    run: str


class DecideInput(msgspec.Struct, frozen=True):
    """Input of `community.device.decide`."""

    run: str
    call: str
    shown: str
    decision: dict[str, Any]


class CopyInput(msgspec.Struct, frozen=True):
    """Input of `community.device.copy`."""

    kept: list[str]
    taken: list[dict[str, Any]]
    copy: str = ""


class ConversationsInput(msgspec.Struct, frozen=True):
    """Input of `community.device.conversations`."""

    heads: list[dict[str, str]]
    conversation: str = ""


class PolicyInput(msgspec.Struct, frozen=True):
    """Input of `community.policy`; omitted members stay unchanged."""

    min_signatures_to_demote: int | None = None
    min_signatures_to_revoke: int | None = None
    min_signatures_to_invite: int | None = None
    capability_token_ttl_seconds: int | None = None
    default_member_can_invite: bool | None = None
    admissions_per_day: int | None = None


class IssueInput(msgspec.Struct, frozen=True):
    """Input of `auth.token.issue`."""

    subject: str
    scope: dict[str, Any]
    ttl_seconds: int
    corpora: tuple[str, ...] = ()
    audience: str = ""
    principal: str = ""
    cnf: Confirmation | None = None


class RevokeTokenInput(msgspec.Struct, frozen=True):
    """Input of `auth.token.revoke`: a token of this node, or of another `issuer`."""

    token_id: str
    reason: Literal["manual", "policy", "compromise"]
    issuer: str = ""


class IntrospectInput(msgspec.Struct, frozen=True):
    """Input of `auth.token.introspect`."""

    token: str


def invalid(field: str, rule: str, message: str) -> HearthNetError:
    """Return the error for a field of the input."""
    return HearthNetError("bad_request", message, details={"path": f"/input/{field}", "rule": rule})
