"""Errors, ids, time, settings and small algorithms that every other package uses."""

from __future__ import annotations
