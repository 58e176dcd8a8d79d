"""What was translated lately, the least recently used forgotten first.

See: docs/trans.md#what-comes-back.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from hearthnet.canonical import content_hash
from hearthnet_trans.backend import Translation, Work

ENTRIES: Final = 10_000
CHARACTERS: Final = 8_000_000
"""Of all translations together: 10,000 of the longest texts would be five times as much."""


class Key(NamedTuple):
    """What makes two requests the same."""

    text: str
    """The hash of it."""
    source: str
    target: str
    backend: str
    domain: str | None


def key_of(work: Work, backend: str) -> Key:
    """The key of `work` at the backend of that name."""
    text = content_hash(work.text.encode("utf-8", "surrogatepass"))
    return Key(text, work.source, work.target, backend, work.domain)


class Cache:
    """Translations by key."""

    def __init__(self, entries: int = ENTRIES, characters: int = CHARACTERS) -> None:
        self._entries = entries
        self._characters = characters
        self._kept: OrderedDict[Key, Translation] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Translation | None:
        """What was kept, which counts as used now."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Key, translation: Translation) -> None:
        """Keeps it, and forgets what has been unused for longest where that is too much."""
        old = self._kept.pop(key, None)
        self._size += len(translation.text) - (len(old.text) if old is not None else 0)
        self._kept[key] = translation
        while len(self._kept) > self._entries or self._size > self._characters:
            _, gone = self._kept.popitem(last=False)
            self._size -= len(gone.text)

    def forget(self, backend: str) -> None:
        """Forgets what the backend of that name said: it is another one now."""
        for key in [key for key in self._kept if key.backend == backend]:
            self._size -= len(self._kept.pop(key).text)
