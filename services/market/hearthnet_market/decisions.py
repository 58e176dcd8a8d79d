"""Events that are decided from the state of the market, and appended directly after it.

See: docs/protocol/effects.md#event-sourced-effects.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hearthnet import Call, HearthNetError
from hearthnet.service import EventLog, LogAdvanced, Recorded
from hearthnet_market.database import DamagedView
from hearthnet_market.schemas import DELETED, EXPIRED, HIDDEN, UNHIDDEN

_log = logging.getLogger(__name__)
_TAKES_BACK: Final = frozenset({EXPIRED, DELETED, HIDDEN, UNHIDDEN})
_QUOTA_RULE: Final = "bytes_a_day"
Decision = Callable[[], Awaitable[tuple[dict[str, Any], int]]]
"""Returns an event's data and the place of the log on which it is based, or raises the refusal."""


class Decisions:
    """Appends events.

    `catch_up` brings the view up to the log; `quota_used` is called with a caller that has used up its quota.
    """

    def __init__(
        self, events: EventLog, catch_up: Callable[[], Awaitable[None]], quota_used: Callable[[str], None]
    ) -> None:
        self._events = events
        self._catch_up = catch_up
        self._quota_used = quota_used

    async def append_decided(self, call: Call[Any, Any], event_type: str, decide: Decision) -> Recorded:
        """Append the event that `decide` returns directly after the place that it is based on.

        A repeated call returns the first event, even if the post has changed since.

        Raises:
            HearthNetError: As `decide`; `partition` if others appended events until the call's time was up.
        """
        behind = True
        while call.allowed() > 0:
            try:
                data, place = await decide()
            except HearthNetError:
                if await self._events.known(call):
                    return await self._events.append(call, event_type, {})
                if not behind:
                    raise
                behind = False
                await self._catch_up()
                continue
            try:
                recorded = await self.append(call, event_type, data, after=place)
            except LogAdvanced:
                await self._catch_up()
                continue
            await guarded(self._catch_up(), "following what was recorded")
            return recorded
        raise HearthNetError(
            "partition",
            "too much happens on the market just now; send it again",
            details={"rule": "contended"},
        )

    async def append(
        self, call: Call[Any, Any], event_type: str, data: dict[str, Any], after: int | None = None
    ) -> Recorded:
        """Append an event; a caller that has used up its quota is reported.

        Raises:
            HearthNetError: `rate_limited` if the caller has used up its quota; `partition` without the log.
            LogAdvanced: The place `after` is no longer the last one.
        """
        try:
            return await self._events.append(
                call,
                event_type,
                data,
                after=after,
                takes_back=event_type in _TAKES_BACK,
                for_good=event_type == DELETED,
            )
        except HearthNetError as error:
            if error.rule == _QUOTA_RULE:
                self._quota_used(call.caller)
            raise


async def guarded(work: Awaitable[object], what: str) -> None:
    """Await `work`, which is tried again later if it fails because of the log, the disk or the view."""
    try:
        await work
    except (HearthNetError, sqlite3.Error, OSError, DamagedView) as error:
        _log.warning("%s: %s; tried again later", what, error)
