"""How much one client, and one address, may ask of the gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import HTTPConnection

from hearthnet.bus.allowance import Allowance
from hearthnet.errors import HearthNetError
from hearthnet.times import steady_ms

REQUESTS_AT_ONCE: Final = 500.0
REQUESTS_PER_SECOND: Final = 100.0
"""Of one client."""
WRONG_AT_ONCE: Final = 100.0
WRONG_PER_SECOND: Final = 5.0
"""Attempts with a wrong key, cookie or code, of one address."""
MOST_SOCKETS: Final = 32
"""WebSockets and streams of one client at once: each tool run of a page is one."""
MOST_ANSWERS: Final = 128
"""Answers over HTTP that one client waits for or reads at once, beside those streams."""
MOST_BODY_BYTES: Final = 1_048_576
MOST_WITH_IMAGES: Final = 25_165_824
"""Of a completion's body that says its length, and whose images are put elsewhere before it goes on."""
WITH_IMAGES: Final = "/v1/chat/completions"


class Limits:
    """The counters. Refusals are `rate_limited` or `capacity_exceeded`, and say when to come back."""

    def __init__(
        self,
        requests: tuple[float, float] = (REQUESTS_AT_ONCE, REQUESTS_PER_SECOND),
        wrong: tuple[float, float] = (WRONG_AT_ONCE, WRONG_PER_SECOND),
    ) -> None:
        """Pairs of how many at once and how many a second."""
        self._requests, self._requests_rate = Allowance(*requests), requests[1]
        self._wrong, self._wrong_rate = Allowance(*wrong), wrong[1]
        self._open: Counter[str] = Counter()

    def request(self, client: str) -> None:
        """One more request of `client`; `rate_limited` where it made too many."""
        _take(self._requests, client, self._requests_rate, "this client asks too often")

    def wrong(self, address: str) -> None:
        """No key, or a wrong key, cookie or code came from `address`; `rate_limited` after too many."""
        _take(self._wrong, address, self._wrong_rate, "too many wrong keys came from here")

    def opened(self, client: str, most: int = MOST_SOCKETS) -> None:
        """A socket or stream of `client` begins, to be ended by `closed`; `capacity_exceeded` for one too
        many.
        """
        if self._open[client] >= most:
            raise HearthNetError(
                "capacity_exceeded", f"this client has {most} streams open; close one", retry_after_ms=1000
            )
        self._open[client] += 1

    def closed(self, client: str) -> None:
        """A socket or stream of `client` has ended."""
        self._open[client] -= 1
        if self._open[client] <= 0:
            del self._open[client]

    @contextmanager
    def held(self, client: str, most: int = MOST_ANSWERS) -> Iterator[None]:
        """One more answer to `client` while the block lasts; `capacity_exceeded` for one too many."""
        self.opened(client, most)
        try:
            yield
        finally:
            self.closed(client)

    @property
    def open(self) -> int:
        """How many sockets and streams there are."""
        return self._open.total()


def address_of(connection: HTTPConnection) -> str:
    """The address that a connection comes from, empty where there is none."""
    return connection.client.host if connection.client is not None else ""


def _take(allowance: Allowance, key: str, per_second: float, what: str) -> None:
    now = steady_ms()
    if not allowance.take(key, 1, now):
        wait = (1 - allowance.left(key, now)) * 1000 / per_second
        raise HearthNetError("rate_limited", what, retry_after_ms=max(1, int(wait)))
