"""Queries against the index: words, vectors, ranking."""

from __future__ import annotations
