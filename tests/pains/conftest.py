"""The node under attack and who attacks it, where a pain is about forgery."""

from __future__ import annotations

from tests.attacks.conftest import mallory, market, victim

__all__ = ["mallory", "market", "victim"]
