"""Service processes and their status."""

from __future__ import annotations
