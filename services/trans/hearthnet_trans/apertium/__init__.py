"""Apertium through persistent pipelines (docs/decisions/0122)."""

from __future__ import annotations

from hearthnet_trans.apertium.backend import Apertium

__all__ = ["Apertium"]
