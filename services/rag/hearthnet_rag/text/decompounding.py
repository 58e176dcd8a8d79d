"""Division of compound words, based only on the words of a corpus.

A word is a compound if it consists of words that occur in the corpus by themselves, joined directly or by s,
es, n, en or er. Of several divisions the one with the fewest parts is used, then the one whose rarest part is
the most frequent. Pure functions (docs/decisions/0114).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

SHORTEST_PART: Final = 4
SHORTEST: Final = 9
LONGEST: Final = 40
MOST_PARTS: Final = 3
_JOINTS: Final = ("", "s", "es", "n", "en", "er")

Frequency = Callable[[str], int]
"""Returns the number of occurrences of a word by itself, 0 for an unknown word."""


def split(word: str, frequency: Frequency) -> list[str]:
    """Return the parts of `word` without their joints, or an empty list if it is no compound."""
    if not SHORTEST <= len(word) <= LONGEST or not word.isalpha():
        return []
    found = list(_ways(word, frequency, MOST_PARTS))
    if not found:
        return []

    def order(way: tuple[str, ...]) -> tuple[int, int, tuple[str, ...]]:
        return len(way), -min(map(frequency, way)), way

    best: tuple[str, ...] = min(found, key=order)
    return list(best)


def _ways(word: str, frequency: Frequency, parts: int) -> Iterator[tuple[str, ...]]:
    """Yield the divisions of `word` into two to `parts` known words."""
    for at in range(SHORTEST_PART, len(word) - SHORTEST_PART + 1):
        last = word[at:]
        if not frequency(last):
            continue
        for first in _without_joint(word[:at]):
            if frequency(first):
                yield (first, last)
            elif parts > 2:
                yield from ((*way, last) for way in _ways(first, frequency, parts - 1))


def _without_joint(part: str) -> Iterator[str]:
    for joint in _JOINTS:
        if part.endswith(joint) and len(part) - len(joint) >= SHORTEST_PART:
            yield part[: len(part) - len(joint)]
