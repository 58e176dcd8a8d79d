"""Tokens, approvals, grants and revocations, and what they permit."""

from __future__ import annotations
