"""Division of a body into passages of about 1140 tokens with an overlap of up to 230, as rows of the index.

A body is first divided into units no longer than the overlap: paragraphs, or if these are longer, sentences,
words, and finally runs of characters. Units are packed until the next one would not fit. The cut is then made
in the second half of the passage: at a heading if there is one, else at the end of a paragraph, else at the
last unit. After a cut at a heading there is no overlap, because a section begins there. Each passage becomes
a row with its stems. Pure functions.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from hearthnet.text import estimate_tokens
from hearthnet_rag.readers.documents import TITLE_LIMIT, Document, Heading
from hearthnet_rag.text.text_analysis import (
    COMPOUNDING,
    Analyser,
    Known,
    base_language,
    stem,
    surface_forms,
    words,
)

# 4,000 and 800 characters of Latin script; 1,000 tokens found fewer sections (docs/decisions/0190).
PASSAGE_TOKENS: Final = 1140
OVERLAP_TOKENS: Final = 230

_PARAGRAPH: Final = re.compile(r"\n[ \t]*\n\s*")
_SENTENCE: Final = re.compile(r"(?<=[.!?:;])\s+|\n")
_WORD: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Passage:
    """The passage `body[start:end]`; the text from `fresh` on is in no earlier passage.

    `path` has the headings above `fresh` from the outermost on; `headings` has all headings inside the
    passage.
    """

    start: int
    fresh: int
    end: int
    path: tuple[str, ...]
    headings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Unit:
    start: int
    end: int
    tokens: int
    rank: int  # 2: a heading begins here, 1: a paragraph begins here, 0: neither


def cut(body: str, headings: Sequence[Heading] = ()) -> list[Passage]:
    """Return the passages of `body` in order.

    Together they contain the whole body; each begins after the beginning of the one before it.
    """
    return list(_passages(body, headings))


def _passages(body: str, headings: Sequence[Heading]) -> Iterator[Passage]:
    """Yield the passages; each heading is looked at once, and again only in the overlap of two passages."""
    ordered = sorted(headings, key=lambda heading: heading.start)
    starts = [heading.start for heading in ordered]
    units = list(_units(body, set(starts)))
    stack: list[Heading] = []
    begin = fresh = seen = 0
    while fresh < len(units):
        end = _end(units, begin)
        start, new, stop = units[begin].start, units[fresh].start, units[end - 1].end
        above = bisect_right(starts, new)
        for heading in ordered[seen:above]:
            stack = [*(one for one in stack if one.level < heading.level), heading]
        inside = ordered[bisect_left(starts, start) : bisect_left(starts, stop)]
        yield Passage(start, new, stop, _texts(stack), _texts(inside))
        begin, fresh, seen = _overlap(units, end), end, above


def _texts(headings: Sequence[Heading]) -> tuple[str, ...]:
    """Return the headings' texts; bounded, since a long one would be repeated in each passage below it."""
    return tuple(heading.text[:TITLE_LIMIT] for heading in headings)


def _end(units: Sequence[_Unit], begin: int) -> int:
    """Return the index after the last unit of the passage that begins with unit `begin`."""
    total, best, best_rank = 0, begin, -1
    for index in range(begin, len(units)):
        if total >= PASSAGE_TOKENS // 2 and units[index].rank >= best_rank:
            best, best_rank = index, units[index].rank
        total += units[index].tokens
        if total > PASSAGE_TOKENS:
            return best
    return len(units)


def _overlap(units: Sequence[_Unit], end: int) -> int:
    """Return the first unit of the passage after unit `end`, as early as the overlap allows."""
    if end >= len(units) or units[end].rank == 2:
        return end
    total, index = 0, end
    while total + units[index - 1].tokens <= OVERLAP_TOKENS:
        index -= 1
        total += units[index].tokens
    return index


def _units(body: str, heading_starts: set[int]) -> Iterator[_Unit]:
    breaks = {0, *heading_starts, *(found.end() for found in _PARAGRAPH.finditer(body))}
    edges = [*sorted(edge for edge in breaks if edge < len(body)), len(body)]
    for start, end in itertools.pairwise(edges):
        rank = 2 if start in heading_starts else 1
        for piece_start, piece_end in _split(body, start, end, (_SENTENCE, _WORD)):
            tokens = estimate_tokens(body[piece_start:piece_end])
            yield _Unit(piece_start, piece_end, tokens, rank if piece_start == start else 0)


def _split(
    body: str, start: int, end: int, boundaries: tuple[re.Pattern[str], ...]
) -> Iterator[tuple[int, int]]:
    """Yield spans no longer than the overlap that make up `body[start:end]`.

    They are cut at the coarsest boundary that suffices.
    """
    if estimate_tokens(body[start:end]) <= OVERLAP_TOKENS:
        yield start, end
        return
    if not boundaries:
        step = 2 * OVERLAP_TOKENS  # a character is at most half a token, so this many fit
        yield from ((at, min(at + step, end)) for at in range(start, end, step))
        return
    edges = [start, *(found.end() for found in boundaries[0].finditer(body, start, end)), end]
    for piece_start, piece_end in _joined(body, edges):
        yield from _split(body, piece_start, piece_end, boundaries[1:])


def _joined(body: str, edges: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield adjacent spans between `edges`, merged as long as they fit the overlap."""
    start = previous = edges[0]
    for edge in edges[1:]:
        if previous > start and estimate_tokens(body[start:edge]) > OVERLAP_TOKENS:
            yield start, previous
            start = previous
        previous = edge
    if previous > start:
        yield start, previous


Columns = tuple[str, str, str, str]


class PassageRow(msgspec.Struct, frozen=True):
    """One passage; `tokens` are estimated.

    `stems` has the stems of title, headings and text, and the words of title and headings as written.
    """

    heading: str | None
    page: int | None
    text: str
    tokens: int
    stems: Columns


def rows_of(document: Document, known: Known) -> Iterator[PassageRow]:
    """Return the passages of `document`; `known` is the vocabulary of its corpus."""
    analyser = _analyser(document, known)
    return (_row(document, passage, analyser) for passage in _passages(document.body, document.headings))


def _analyser(document: Document, known: Known) -> Analyser:
    """Return the analyser for the document, which also knows the document's own words.

    They serve to divide its compounds.
    """
    language = base_language(document.language)
    own = Counter(stem(word, language) for word in words(document.body) if language in COMPOUNDING)
    return Analyser(language, lambda part: own[part] + known(part))


def _row(document: Document, passage: Passage, analyser: Analyser) -> PassageRow:
    path, text = passage.path, document.body[passage.start : passage.end]
    above = path[1:] if path[:1] == (document.title,) else path
    titles = (heading for heading in dict.fromkeys((*path, *passage.headings)) if heading != document.title)
    return PassageRow(
        heading=" / ".join(above) or None,
        page=bisect_right(document.pages, passage.fresh) or None,
        text=text.strip(),
        tokens=estimate_tokens(text),
        stems=_columns(document.title, list(titles), text, analyser),
    )


def _columns(title: str, headings: Sequence[str], text: str, analyser: Analyser) -> Columns:
    return (
        analyser.text(title), analyser.text(" ".join(headings)), analyser.text(text),
        "\n".join(map(surface_forms, (title, *headings))),
    )  # fmt: skip
