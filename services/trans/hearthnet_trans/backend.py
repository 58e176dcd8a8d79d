"""What translates: the interface of Apertium, Argos and the models.

See: docs/trans.md#what-translates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

Pair = tuple[str, str]


class Work(msgspec.Struct, frozen=True):
    """One text to translate from `source` into `target`, codes of a pair that the backend has.

    `until` is the loop time by which it has to be done.
    """

    text: str
    source: str
    target: str
    domain: str | None = None
    until: float = float("inf")


class Translation(msgspec.Struct, frozen=True):
    """A text in the other language. `confidence` is the share of its words that were known, 1 where the
    backend does not say; `model` names what did it.
    """

    text: str
    model: str
    confidence: float = 1.0


class Backend(Protocol):
    """One way to translate."""

    name: str
    places: int
    """How many texts it takes at once."""

    @property
    def pairs(self) -> frozenset[Pair]:
        """From which language into which, now."""

    @property
    def note(self) -> str:
        """One line for people where something is wrong, else empty."""

    async def open(self, changed: Callable[[], None]) -> None:
        """Finds out what there is; calls `changed` whenever `pairs` or `note` are others later."""

    async def translate(self, work: Work) -> Translation:
        """Translates; raises `capacity_exceeded` where it cannot now, `internal_error` where it fails."""

    async def close(self) -> None:
        """Ends what it runs."""
