"""The limits on requests and streams of one client, and of one address."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import HTTPConnection

from hearthnet.core.errors import HearthNetError
from hearthnet.core.rate_limits import TokenBucket
from hearthnet.core.times import steady_ms

REQUESTS_AT_ONCE: Final = 500.0
REQUESTS_PER_SECOND: Final = 100.0
"""Requests of one client."""
WRONG_AT_ONCE: Final = 100.0
WRONG_PER_SECOND: Final = 5.0
"""Attempts of one address with a wrong key, cookie or code."""
MOST_SOCKETS: Final = 32
"""WebSockets and streams of one client at once; each tool run of a page is one."""
MOST_ANSWERS: Final = 128
"""HTTP responses that one client waits for or reads at once, beside those streams."""
MOST_BODY_BYTES: Final = 1_048_576
MOST_WITH_IMAGES: Final = 25_165_824
"""Bytes of a completion that declares its length; its images are stored before it is processed."""
WITH_IMAGES: Final = "/v1/chat/completions"


class RateLimits:
    """The counters of clients and addresses; refusals carry `retry_after_ms`."""

    def __init__(
        self,
        requests: tuple[float, float] = (REQUESTS_AT_ONCE, REQUESTS_PER_SECOND),
        wrong: tuple[float, float] = (WRONG_AT_ONCE, WRONG_PER_SECOND),
    ) -> None:
        """Create the counters; each pair is the number at once and the number per second."""
        self._requests, self._requests_rate = TokenBucket(*requests), requests[1]
        self._wrong, self._wrong_rate = TokenBucket(*wrong), wrong[1]
        self._open: Counter[str] = Counter()

    def request(self, client: str) -> None:
        """Count a request of `client`.

        Raises:
            HearthNetError: `rate_limited` if it made too many.
        """
        _take(self._requests, client, self._requests_rate, "this client asks too often")

    def wrong(self, address: str) -> None:
        """Count a missing or wrong key, cookie or code from `address`.

        Raises:
            HearthNetError: `rate_limited` after too many.
        """
        _take(self._wrong, address, self._wrong_rate, "too many wrong keys came from here")

    def opened(self, client: str, most: int = MOST_SOCKETS) -> None:
        """Count a socket or stream of `client`, until `closed` is called.

        Raises:
            HearthNetError: `capacity_exceeded` if it has too many.
        """
        if self._open[client] >= most:
            raise HearthNetError(
                "capacity_exceeded", f"this client has {most} streams open; close one", retry_after_ms=1000
            )
        self._open[client] += 1

    def closed(self, client: str) -> None:
        """Count the end of a socket or stream of `client`."""
        self._open[client] -= 1
        if self._open[client] <= 0:
            del self._open[client]

    @contextmanager
    def held(self, client: str, most: int = MOST_ANSWERS) -> Iterator[None]:
        """Count one more answer to `client` while the block lasts.

        Raises:
            HearthNetError: `capacity_exceeded` if it has too many.
        """
        self.opened(client, most)
        try:
            yield
        finally:
            self.closed(client)


def address_of(connection: HTTPConnection) -> str:
    """Return the address of a connection, empty where there is none."""
    return connection.client.host if connection.client is not None else ""


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _take(allowance: TokenBucket, key: str, per_second: float, what: str) -> None:
    now = steady_ms()
    if not allowance.take(key, 1, now):
        wait = (1 - allowance.left(key, now)) * 1000 / per_second
        raise HearthNetError("rate_limited", what, retry_after_ms=max(1, int(wait)))
