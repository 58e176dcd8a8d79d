"""Steps that several commands share, or that are too long for one."""

from __future__ import annotations
