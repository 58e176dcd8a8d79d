"""Cache of recent translations; the least recently used are dropped first.

See: docs/trans.md#what-comes-back.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from hearthnet.core import content_hash
from hearthnet_trans.backend import Translation, TranslationWork

ENTRIES: Final = 10_000
CHARACTERS: Final = 8_000_000
"""Limit of all translations together: 10,000 of the longest texts would have five times as many."""


class CacheKey(NamedTuple):
    """Identity of a request."""

    text: str
    """Its hash."""
    source: str
    target: str
    backend: str
    domain: str | None


def key_of(work: TranslationWork, backend: str) -> CacheKey:
    """Return the key of `work` at the backend of that name."""
    text = content_hash(work.text.encode("utf-8", "surrogatepass"))
    return CacheKey(text, work.source, work.target, backend, work.domain)


class Cache:
    """Translations by key."""

    def __init__(self, entries: int = ENTRIES, characters: int = CHARACTERS) -> None:
        self._entries = entries
        self._characters = characters
        self._kept: OrderedDict[CacheKey, Translation] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: CacheKey) -> Translation | None:
        """Return the stored translation or None; it counts as used now."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: CacheKey, translation: Translation) -> None:
        """Store a translation, and drop the least recently used ones beyond the limits."""
        old = self._kept.pop(key, None)
        self._size += len(translation.text) - (len(old.text) if old is not None else 0)
        self._kept[key] = translation
        while len(self._kept) > self._entries or self._size > self._characters:
            _, gone = self._kept.popitem(last=False)
            self._size -= len(gone.text)

    def forget(self, backend: str) -> None:
        """Drop the translations of the backend of that name, because it has changed."""
        for key in [key for key in self._kept if key.backend == backend]:
            self._size -= len(self._kept.pop(key).text)
