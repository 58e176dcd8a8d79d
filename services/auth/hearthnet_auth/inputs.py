"""What the capabilities of `auth` take (contracts/auth.*, contracts/community.*)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hearthnet.trust.community import CoSigner
from hearthnet.trust.revocation import Reason


class NoParams(msgspec.Struct, frozen=True):
    """None of them has params."""


class InviteInput(msgspec.Struct, frozen=True):
    """`community.invite`: for whom, in words or by node id, and for how many seconds or until when."""

    client_id: str
    ttl_seconds: int
    display_name: str = ""
    invitee_node_id: str = ""
    expires_at: str = ""
    co_signers: tuple[CoSigner, ...] = ()


class JoinInput(msgspec.Struct, frozen=True):
    """`community.join`: the newcomer's signed event, and what else it has."""

    event: dict[str, Any]
    heads: dict[str, tuple[str, ...]]


class SyncInput(msgspec.Struct, frozen=True):
    """`community.sync`: what the caller has."""

    heads: dict[str, tuple[str, ...]]
    limit: int


class RoleInput(msgspec.Struct, frozen=True):
    """`community.promote` and `community.demote`."""

    client_id: str
    target_node_id: str
    new_level: Literal["member", "trusted", "anchor"]
    co_signers: tuple[CoSigner, ...] = ()


class RevokeInput(msgspec.Struct, frozen=True):
    """`community.revoke`."""

    client_id: str
    target_node_id: str
    reason: str
    co_signers: tuple[CoSigner, ...] = ()


class WithdrawInput(msgspec.Struct, frozen=True):
    """`community.withdraw`."""

    client_id: str
    invite_event_id: str


class PolicyInput(msgspec.Struct, frozen=True):
    """`community.policy`: what is left out stays as it is."""

    client_id: str
    min_signatures_to_demote: int | None = None
    min_signatures_to_revoke: int | None = None
    min_signatures_to_invite: int | None = None
    capability_token_ttl_seconds: int | None = None
    default_member_can_invite: bool | None = None


class IssueInput(msgspec.Struct, frozen=True):
    """`auth.token.issue`."""

    client_id: str
    subject: str
    scope: dict[str, Any]
    ttl_seconds: int
    corpora: tuple[str, ...] = ()
    audience: str = ""
    principal: str = ""
    cnf: dict[str, Any] | None = None


class RevokeTokenInput(msgspec.Struct, frozen=True):
    """`auth.token.revoke`: of this node's tokens, or of another issuer's."""

    client_id: str
    token_id: str
    reason: Reason
    issuer: str = ""


class IntrospectInput(msgspec.Struct, frozen=True):
    """`auth.token.introspect`."""

    token: str
