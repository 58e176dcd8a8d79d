"""A large corpus for the benchmark: words that nobody wrote, as frequent as in real text, from a seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from hearthnet.core.canonical_json import content_hash
from hearthnet_rag.index import index as writing
from hearthnet_rag.index.chunking import PassageRow
from hearthnet_rag.index.index import Index, IndexEntry, Ingested
from hearthnet_rag.readers.documents import Document
from hearthnet_rag.text.document_frequencies import learn
from hearthnet_rag.text.text_analysis import Analyser, surface_forms

CORPUS: Final = "measured"
LANGUAGE: Final = "en"
WORDS: Final = 100_000
LENGTH: Final = 120
"""Words a passage; each corpus' word is as frequent as its rank in Zipf's law (s = 1.05) says."""
_PER_DOCUMENT: Final = 100
_FUNCTION_WORDS: Final = 150
_SYLLABLES: Final = [
    first + vowel for first in "bdfghklmnprstvwz" for vowel in ("a", "e", "i", "o", "u", "an", "or")
]


class Zipf:
    """Draws words; the same for the same seed. The words there are do not depend on it."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        drawn = random.Random(WORDS)
        words: dict[str, None] = {}
        while len(words) < WORDS:
            words["".join(drawn.choices(_SYLLABLES, k=drawn.randint(2, 5)))] = None
        self.words = np.array(list(words))
        weights = 1 / (np.arange(1, WORDS + 1) + 2.7) ** 1.05
        self._sums = np.cumsum(weights / weights.sum())

    def draw(self, count: int, rarest_of: int = 0) -> list[str]:
        """`count` words, none of the `rarest_of` most frequent."""
        found: list[str] = []
        while len(found) < count:
            ranks = np.minimum(np.searchsorted(self._sums, self._random.random(count)), WORDS - 1)
            found += self.words[ranks[ranks >= rarest_of]].tolist()
        return found[:count]


def fill(folder: Path, passages: int, seed: int) -> None:
    """Makes an index in `folder` of so many passages; written as the index writes, but in one transaction."""
    zipf, analyser = Zipf(seed), Analyser(LANGUAGE)
    stems = {word: analyser.text(word) for word in zipf.words.tolist()}
    with contextlib.closing(Index(folder)) as index, index.writing() as connection:
        connection.execute("PRAGMA cache_size = -200000")
        corpus = writing._corpus_for(connection, CORPUS)
        for number in range(0, passages, _PER_DOCUMENT):
            entry = IndexEntry(
                content_hash(b"%d" % number),
                Document(f"Notes {number}", "-", LANGUAGE),
                "01",
                1990 + number % 40,
            )
            rows = list(_rows(zipf, stems, min(_PER_DOCUMENT, passages - number)))
            made = Ingested(entry.doc_cid, len(rows), LENGTH * len(rows), entry.event_id)
            document = writing._insert_document(connection, corpus, entry, made)
            writing._insert_chunks(connection, corpus, document, rows)
            learn(connection, corpus, (row.stems for row in rows))


def _rows(zipf: Zipf, stems: dict[str, str], count: int) -> Iterator[PassageRow]:
    drawn = zipf.draw(count * LENGTH)
    for at in range(0, len(drawn), LENGTH):
        words = drawn[at : at + LENGTH]
        in_stems = [stems[word] for word in words]
        heading = " ".join(words[:4])
        headings = f"{surface_forms('note')}\n{surface_forms(heading)}"
        columns = ("note", " ".join(in_stems[:4]), " ".join(in_stems), headings)
        yield PassageRow(heading, None, " ".join(words), LENGTH, columns)


def queries(count: int, seed: int) -> list[str]:
    """Questions of two to six words each, drawn as text is, without the most frequent ones."""
    zipf = Zipf(seed)
    drawn = random.Random(seed + 1)
    return [" ".join(zipf.draw(drawn.randint(2, 6), _FUNCTION_WORDS)) for _ in range(count)]
