"""Requests and responses over HTTP: bodies, errors, limits, server-sent events."""

from __future__ import annotations
