"""The neighbourhood market: posts as signed events, a view of those that are current."""

from __future__ import annotations

from hearthnet_market.service import MarketService

__all__ = ["MarketService"]
