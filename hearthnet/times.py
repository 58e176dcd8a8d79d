"""Time on the wire: RFC 3339 in UTC, whole seconds, ending in Z (conventions.md 2)."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from hearthnet.errors import HearthNetError


def now_ms() -> int:
    """Milliseconds since the epoch: the one place that reads the wall clock for the wire."""
    return time.time_ns() // 1_000_000


def rfc3339(millis: int) -> str:
    """`millis` since the epoch as `2026-11-21T20:15:00Z`."""
    return datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_rfc3339(text: str) -> int:
    """Milliseconds since the epoch; `bad_request` where `text` is not in the form of the wire."""
    try:
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise HearthNetError(
            "bad_request", f"{text[:40]!r} is not a time such as 2026-11-21T20:15:00Z"
        ) from error
    return int(moment.timestamp()) * 1000
