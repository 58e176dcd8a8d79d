"""Detection of the language of a text (docs/decisions/0121).

The library for this is an extra, `hearthnet[language]`; without it nothing is detected, and callers continue
without a language. Its figures are loaded at the first detection, in half a second: about 70 MB for all 75
languages, shared by the whole process. Use a thread (`detected`).
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
"""Likelihood from which on a language counts as detected; below it a wrong guess does more harm than none."""
_CERTAIN: Final = 0.97
"""Likelihood from which on a language counts even if others were expected."""
_SEEN: Final = 0.02
"""Minimum likelihood of the expected languages together, for the choice to be narrowed to them."""
_MOST: Final = 2_000
"""Number of characters examined at the beginning, and again in the middle."""
_NO_WORDS: Final = re.compile(r"<[^<>]{0,1000}>|https?://\S+")


class Detected(msgspec.Struct, frozen=True):
    """The `language` of a text as ISO 639-1 code, and its likelihood, 0 to 1."""

    language: str
    confidence: float


def available() -> bool:
    """Return whether the library for detection is installed."""
    return importlib.util.find_spec("lingua") is not None


def detect(text: str, among: Collection[str] = ()) -> Detected | None:
    """Return the language of `text`; None if it is uncertain or the library is not installed.

    `among` are the expected codes. If another language is certain, it is returned nevertheless; if several
    are possible, only the expected ones are compared. Markup and addresses are ignored. Takes about a
    millisecond; blocks, and uses memory as described above.
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
    """Run `detect` in a thread."""
    return await asyncio.to_thread(detect, text, among)


def _among(among: Collection[str], values: list[ConfidenceValue]) -> Detected | None:
    """Return the likeliest of the expected languages, if it is likely and stands out."""
    expected = [one for one in map(_named, values) if one.language in among]
    together = sum(one.confidence for one in expected)
    if together < _SEEN:
        return None
    share = expected[0].confidence / together
    return Detected(expected[0].language, round(share, 3)) if share >= SURE else None


def _sample(text: str) -> str:
    """Return the part of `text` to examine."""
    middle = max(_MOST, len(text) // 2)
    return _NO_WORDS.sub(" ", text[:_MOST] + " " + text[middle : middle + _MOST])


def _named(value: ConfidenceValue) -> Detected:
    return Detected(value.language.iso_code_639_1.name.lower(), round(value.value, 3))


@cache
def _detector() -> LanguageDetector | None:
    """Return the detector of the process; None without the library."""
    if not available():
        return None
    from lingua import LanguageDetectorBuilder

    return LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()
