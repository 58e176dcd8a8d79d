"""Runs of the agent loop that clients of the gateway start and follow."""

from __future__ import annotations
