"""Taking compounds apart by nothing but the words that a corpus has.

A word is a compound where it can be cut into words that stand in the corpus by themselves, with an s, es, n
or en between them or nothing. Of several ways the one with the fewest parts is taken, then the one whose
rarest part is the most frequent. Pure functions (docs/decisions/0114).
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
"""How often a word stands by itself; 0 where it is not known."""


def split(word: str, frequency: Frequency) -> list[str]:
    """The parts of `word` as they are written, without what joins them; none where it is no compound."""
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
    """The ways to cut `word` into two to `parts` known words."""
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
