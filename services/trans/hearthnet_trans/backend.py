"""The interface of translation backends: Apertium, Argos and the models.

See: docs/trans.md#what-translates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

Pair = tuple[str, str]


class TranslationWork(msgspec.Struct, frozen=True):
    """One text to translate from `source` into `target`, a pair that the backend has.

    `until` is the deadline in the time of the event loop.
    """

    text: str
    source: str
    target: str
    domain: str | None = None
    until: float = float("inf")


class Translation(msgspec.Struct, frozen=True):
    """A translated text, and the `model` that made it.

    `confidence` is the share of its words that were known, 1 if the backend does not report it.
    """

    text: str
    model: str
    confidence: float = 1.0


class TranslationBackend(Protocol):
    """One way to translate."""

    name: str
    places: int
    """Number of texts that it translates at once."""

    @property
    def pairs(self) -> frozenset[Pair]:
        """The current pairs (source, target) of languages."""

    @property
    def note(self) -> str:
        """One line for the user about a problem, else empty."""

    async def open(self, changed: Callable[[], None]) -> None:
        """Find the pairs, and call `changed` whenever `pairs` or `note` change later."""

    async def translate(self, work: TranslationWork) -> Translation:
        """Translate one text.

        Raises:
            HearthNetError: `capacity_exceeded` if it is too busy; `internal_error` if it fails.
        """

    async def close(self) -> None:
        """Release all resources."""
