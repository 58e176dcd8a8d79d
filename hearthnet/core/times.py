"""Time on the wire: RFC 3339 in UTC, whole seconds, ending in Z.

See: docs/protocol/identity.md#text-forms.
"""

from __future__ import annotations

import contextlib
import re
import time
from datetime import UTC, datetime
from typing import Final

from hearthnet.core.errors import HearthNetError

_FORM: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}Z")


def now_ms() -> int:
    """Return the milliseconds since the epoch; the only reader of the wall clock for the wire."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return monotonic milliseconds for measuring durations.

    Setting the computer's clock changes `now_ms`, not this.
    """
    return time.monotonic_ns() // 1_000_000


def rfc3339(millis: int) -> str:
    """Format `millis` since the epoch as `2026-11-21T20:15:00Z`.

    Raises:
        HearthNetError: `bad_request` outside the years 1 to 9999.
    """
    try:
        moment = datetime.fromtimestamp(millis // 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise HearthNetError("bad_request", f"{millis} ms is no time of the calendar") from error
    return moment.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def from_rfc3339(text: str) -> int:
    """Return the milliseconds since the epoch of a time on the wire.

    Raises:
        HearthNetError: `bad_request` if `text` is not in the form of the wire.
    """
    if _FORM.fullmatch(text):
        with contextlib.suppress(ValueError):
            return int(datetime.fromisoformat(text).timestamp()) * 1000
    raise HearthNetError("bad_request", f"{text[:40]!r} is not a time such as 2026-11-21T20:15:00Z")
