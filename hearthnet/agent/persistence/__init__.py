"""Runs on disk: checkpoints, decisions, views."""

from __future__ import annotations
