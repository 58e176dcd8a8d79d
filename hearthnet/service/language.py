"""Which language a text is in, for every service that wants to know (docs/decisions/0121).

The library that knows languages is an extra, `hearthnet[language]`; where it is not installed, nothing is
detected, and whoever asks goes on without. Its figures are loaded at the first question, in half a second:
about 70 MB for all 75 languages, shared by the whole process. Ask in a thread (`detected`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from lingua import ConfidenceValue, LanguageDetector

SURE: Final = 0.75
"""From this likelihood on a language counts as detected; below it a wrong guess does more harm than none."""
_CERTAIN: Final = 0.97
"""From this likelihood on a language counts also where others were expected."""
_SEEN: Final = 0.02
"""What the languages to choose among must have together, before the choice is narrowed to them."""
_MOST: Final = 2_000
"""So many characters of the beginning are looked at, and as many of the middle."""
_NO_WORDS: Final = re.compile(r"<[^<>]{0,1000}>|https?://\S+")


class Detected(msgspec.Struct, frozen=True):
    """The `language` of a text as ISO 639-1 code, and how likely it is, 0 to 1."""

    language: str
    confidence: float


def available() -> bool:
    """Whether languages can be detected here at all."""
    return importlib.util.find_spec("lingua") is not None


def detect(text: str, among: Collection[str] = ()) -> Detected | None:
    """The language of `text`; None where it is too short or too mixed to be sure, or nobody here knows.

    `among` are the codes that are to be expected. A text that is surely in one of the others is told so all
    the same; of one that could be several, only these are weighed against each other. Markup and addresses
    count for nothing. Takes about a millisecond; blocks, and keeps memory, as the module says.
    """
    detector = _detector()
    sample = _sample(text)
    if detector is None or not sample.strip():
        return None
    values = detector.compute_language_confidence_values(sample)
    first = _named(values[0])
    if first.confidence >= (SURE if not among or first.language in among else _CERTAIN):
        return first
    return _among(among, values) or (first if first.confidence >= SURE else None)


async def detected(text: str, among: Collection[str] = ()) -> Detected | None:
    """As `detect`, in a thread."""
    return await asyncio.to_thread(detect, text, among)


def _among(among: Collection[str], values: list[ConfidenceValue]) -> Detected | None:
    """The likeliest of those that are expected, where they are likely at all and it stands out."""
    expected = [one for one in map(_named, values) if one.language in among]
    together = sum(one.confidence for one in expected)
    if together < _SEEN:
        return None
    share = expected[0].confidence / together
    return Detected(expected[0].language, round(share, 3)) if share >= SURE else None


def _sample(text: str) -> str:
    """What of `text` is looked at."""
    middle = max(_MOST, len(text) // 2)
    return _NO_WORDS.sub(" ", text[:_MOST] + " " + text[middle : middle + _MOST])


def _named(value: ConfidenceValue) -> Detected:
    return Detected(value.language.iso_code_639_1.name.lower(), round(value.value, 3))


@cache
def _detector() -> LanguageDetector | None:
    """One for the process; None without the library."""
    if not available():
        return None
    from lingua import LanguageDetectorBuilder

    return LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()
