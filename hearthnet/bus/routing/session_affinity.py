"""The processes of a caller's sessions.

Sessions stay with the process that answered them first, for its loaded state. A session is lost ten minutes
after its last call, or when its process leaves. Pure.

See: docs/protocol/discovery.md#sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from hearthnet.bus.routing.routing_table import RoutingEntry

IDLE_MS: Final = 600_000
MOST_SESSIONS: Final = 4_096
LONGEST_NAME: Final = 64


class _Place(NamedTuple):
    entry: RoutingEntry
    until_ms: int


class SessionAffinity:
    """The processes of this caller's sessions, by topic and name of the session."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], _Place] = {}

    def get(self, topic: str, session: str, now_ms: int) -> RoutingEntry | None:
        """Return the process of the session; None if the session is new or lost."""
        place = self._places.get((topic, session))
        if place is None:
            return None
        if place.until_ms <= now_ms or not place.entry.until:
            del self._places[topic, session]
            return None
        return place.entry

    def put(self, topic: str, session: str, entry: RoutingEntry, now_ms: int) -> None:
        """Record a call of the session there; of very many sessions, drop the longest idle."""
        self._places.pop((topic, session), None)
        if len(self._places) >= MOST_SESSIONS:
            del self._places[next(iter(self._places))]
        self._places[topic, session] = _Place(entry, now_ms + IDLE_MS)


def check_session(session: str) -> None:
    """Check the name of a session.

    Raises:
        HearthNetError: `bad_request` if it is too long.
    """
    if len(session) > LONGEST_NAME:
        raise HearthNetError("bad_request", f"the name of a session has up to {LONGEST_NAME} characters")
