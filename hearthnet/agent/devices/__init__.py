"""What the devices of one person have in common."""

from __future__ import annotations
