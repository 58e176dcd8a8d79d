"""The community's market: posts as signed events, and a view of the current posts."""

from __future__ import annotations

from hearthnet_market.service import MarketService

__all__ = ["MarketService"]
