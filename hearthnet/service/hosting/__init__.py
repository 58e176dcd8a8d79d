"""A service process: admission, scheduling, announcements, statistics."""

from __future__ import annotations
