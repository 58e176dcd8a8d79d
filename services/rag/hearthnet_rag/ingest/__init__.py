"""Documents on their way into a corpus."""

from __future__ import annotations
