"""The counts of the calls of one endpoint, for `$SRV.STATS` (service/hosting/micro.py)."""

from __future__ import annotations


class Statistics:
    """Counts of one endpoint since its process started, without contents of calls."""

    __slots__ = ("errors", "last_error", "nanoseconds", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.errors = 0
        self.nanoseconds = 0
        self.last_error = ""

    def answered(self, nanoseconds: int) -> None:
        """Count a call that succeeded after `nanoseconds`."""
        self.requests += 1
        self.nanoseconds += nanoseconds

    def failed(self, nanoseconds: int, code: str) -> None:
        """Count a call that ended with the wire code `code`; a refused one took no time."""
        self.requests += 1
        self.errors += 1
        self.nanoseconds += nanoseconds
        self.last_error = code
