"""The agent loop as a state machine without I/O."""

from __future__ import annotations
