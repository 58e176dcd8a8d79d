"""The messages that this process appended last, for its own reader, which need not fetch them again.

See: docs/decisions/0242.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hearthnet.service.effects.jetstream_records import MAX_BATCH, Message

_MOST: Final = 2 * MAX_BATCH
"""Some 2.5 MB of posts while pages are taken in. A reader that is slower reads the rest from the stream."""


class KeptMessages:
    """A run of messages at places without a gap, until they are taken."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def add(self, first: int, messages: Sequence[tuple[str, bytes]]) -> None:
        """Add messages that were appended from place `first` on; before a gap, drop earlier ones."""
        if self._messages and self._messages[-1].sequence + 1 != first:
            self._messages = []
        added = [Message(data, place, subject) for place, (subject, data) in enumerate(messages, first)]
        self._messages = [*self._messages, *added][-_MOST:]

    def take(self, after: int) -> list[Message]:
        """Return those after place `after`, and hold none any more."""
        taken, self._messages = self._messages, []
        return [message for message in taken if message.sequence > after]
