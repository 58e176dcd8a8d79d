"""Community events, their replay, and the roster that results."""

from __future__ import annotations
