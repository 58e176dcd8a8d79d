"""The `auth` service: community membership, invites, roles and tokens."""

from __future__ import annotations

from hearthnet_auth.service import AuthService

__all__ = ["AuthService"]
