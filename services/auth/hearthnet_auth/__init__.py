"""Who belongs to the community, and what its members let others do: invites, roles, tokens."""

from __future__ import annotations

from hearthnet_auth.service import AuthService

__all__ = ["AuthService"]
