"""The checks of events that come from other homes, in the order of what they cost.

    known, author is a member            nothing is verified yet
    signature, body's hash, form         in another thread
    content                              the topic's own check; a body that it refuses is left out
    place, day's bytes, branches         what the chain itself allows (trust/eventlog/chains.py)
    room of the author's line            in memory: what one line of invitation may add in a day; what this
                                         home asked for has a room of its own (history_meter.py)

What does not pass is dropped and counted. It comes again by heads, and may fit then.

See: docs/protocol/log.md#budgets, docs/decisions/0211.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from hearthnet.bus.session.membership import Membership
from hearthnet.core.canonical_json import read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.rate_limits import LineBudgets
from hearthnet.core.times import from_rfc3339, now_ms, steady_ms
from hearthnet.service.effects.event_log import Event, decode_event
from hearthnet.service.eventlog.history_meter import LINE_BYTES, LINE_BYTES_PER_SECOND, HistoryMeter
from hearthnet.trust.eventlog.chains import Chains
from hearthnet.trust.eventlog.entries import MAX_FUTURE_MS, LogEntry, LogEvent, check_event

_MOST_FAULTS: Final = 32
_MOST_REFUSED: Final = 10_000
_DEEPEST: Final = 32
"""Most levels of values within values in a body. One nested as deep as this thread can just read could not be
read where more is on the stack, and would stop all readers of the topic's stream.
"""
_ANYTHING: Final = msgspec.json.Decoder(object)
_ENTRY_BYTES: Final = 1_024
"""What an entry costs beside its body."""
Check = Callable[[str, Event], None]
"""The topic's check of an event of the given home; raises `HearthNetError` for one that is not to be kept."""


class TopicIntake:
    """The checks for `topic` at the node of `membership`, whose entries are in `chains`."""

    def __init__(self, topic: str, community: str, own: str, membership: Membership, check: Check) -> None:
        self._topic = topic
        self._community = community
        self._own = own
        self._membership = membership
        self._check = check
        self._room = LineBudgets(LINE_BYTES, LINE_BYTES_PER_SECOND)
        self.dropped = 0
        self.invalid = 0
        """The number of those that do not prove themselves: whoever passed them on had to see that."""
        self.faults: dict[str, None] = {}
        """The last different reasons, the latest one last."""
        self.refused: dict[str, None] = {}
        """The hashes of the last entries whose bodies the topic's check refuses; a later version may not."""

    def valid(self, offered: Sequence[LogEvent]) -> list[LogEvent]:
        """Return those of `offered` that prove themselves, without bodies that the topic's check refuses.

        Called in another thread.
        """
        return [found for one in offered if (found := self._proved(one)) is not None]

    def _proved(self, event: LogEvent) -> LogEvent | None:
        try:
            check_event(event, self._topic, self._community)
            content = self._content(event) if event.body else None
        except HearthNetError as error:
            self.invalid += 1
            self.drop(str(error))
            return None
        try:
            if content is not None:
                self._check(event.entry.author, content)
        except HearthNetError as error:
            self.drop(str(error))
            self.refused[event.entry.hash] = None
            if len(self.refused) > _MOST_REFUSED:
                del self.refused[next(iter(self.refused))]
            return LogEvent(event.entry, "")
        return event

    def _content(self, event: LogEvent) -> Event:
        # Texts have brackets too, so that only a body with many of them is read for its levels.
        has_many = event.body.count("{") + event.body.count("[") > _DEEPEST
        if has_many and not _is_flat(read_json(event.body.encode(), _ANYTHING), _DEEPEST):
            raise HearthNetError("bad_request", "its body is nested too deep")
        entry, content = event.entry, decode_event(event.body)
        named = (content.event_id, content.event_type, content.community_id)
        if named != (entry.event_id, entry.event_type, entry.community_id):
            raise HearthNetError("bad_request", "its body is about another event")
        if from_rfc3339(content.wall_clock) > entry.time + MAX_FUTURE_MS:
            raise HearthNetError("bad_request", "its body is dated after it")
        return content

    def drop(self, why: str) -> None:
        """Count an event that is not taken in, or not with its body."""
        self.dropped += 1
        self.faults.pop(why, None)
        self.faults[why] = None
        if len(self.faults) > _MOST_FAULTS:
            del self.faults[next(iter(self.faults))]

    def is_told(self, author: str) -> bool:
        """Return whether entries of `author` are exchanged: those of members and of this node."""
        return author == self._own or self._membership.is_member(author)

    def admits(self, entry: LogEntry, chains: Chains, history: HistoryMeter | None) -> bool:
        """Charge a valid entry and return True; False if it has no place yet, or no room for it.

        It is charged to `history` if this home asked for it, otherwise to the budget for announced events.
        """
        try:
            if not chains.is_next(entry):
                raise HearthNetError("bad_request", "the entry before it is not here")
            if entry.time > now_ms() + MAX_FUTURE_MS:
                raise HearthNetError("bad_request", "it is dated in the future")
            chains.check(entry)
            self._take_room(entry, history)
        except HearthNetError as error:
            self.drop(str(error))
            return False
        return True

    def _take_room(self, entry: LogEntry, history: HistoryMeter | None) -> None:
        """Charge an entry to the line of its author; own entries, which others had, are free."""
        if entry.author == self._own:
            return
        line, size = self._membership.roster.line(entry.author), entry.size + _ENTRY_BYTES
        if history is not None and not history.take(line, size):
            raise HearthNetError("rate_limited", "there is no room for more history of its author's line")
        if history is None and not self._room.take(line, size, steady_ms()):
            raise HearthNetError("rate_limited", "the line of its author has used its room of a day")


def _is_flat(value: object, levels: int) -> bool:
    """Return whether `value` has at most that many levels of values within values."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_flat(one, levels - 1) for one in inner)
