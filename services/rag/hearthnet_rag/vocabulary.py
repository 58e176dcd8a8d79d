"""The stems of a corpus and in how many passages each stands.

By it compounds are taken apart, a query is begun at its rarest words, and those of headings are weighed. It
is written in the transaction that writes the passages, so it never says anything else than they do.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

TABLES: Final = """
CREATE TABLE IF NOT EXISTS words (
    corpus INTEGER NOT NULL REFERENCES corpora (id),
    stem TEXT NOT NULL,
    passages INTEGER NOT NULL,
    PRIMARY KEY (corpus, stem)
) STRICT, WITHOUT ROWID;
"""


def learn(connection: sqlite3.Connection, corpus: int, passages: Iterable[tuple[str, ...]]) -> None:
    """Counts passages that were added, each given as its columns of stems."""
    connection.executemany(
        """
        INSERT INTO words (corpus, stem, passages) VALUES (?, ?, ?)
        ON CONFLICT (corpus, stem) DO UPDATE SET passages = passages + excluded.passages
        """,
        ((corpus, stem, count) for stem, count in sorted(_counted(passages).items())),
    )


def forget(connection: sqlite3.Connection, corpus: int, passages: Iterable[tuple[str, ...]]) -> None:
    """Undoes `learn` for passages that go; a word that stands nowhere any more is gone with them."""
    stems = sorted(_counted(passages).items())
    connection.executemany(
        "UPDATE words SET passages = passages - ? WHERE corpus = ? AND stem = ?",
        ((count, corpus, stem) for stem, count in stems),
    )
    connection.executemany(
        "DELETE FROM words WHERE corpus = ? AND stem = ? AND passages <= 0",
        ((corpus, stem) for stem, _ in stems),
    )


class Vocabulary:
    """In how many passages of a corpus a stem stands; each is looked up once.

    The empty one stands for every passage.
    """

    def __init__(self, connection: sqlite3.Connection, corpus: int) -> None:
        self._connection = connection
        self._corpus = corpus
        self._seen: dict[str, int] = {}

    def __call__(self, stem: str) -> int:
        """A stem that is nowhere stands in none."""
        if stem not in self._seen:
            self.look_up([stem])
        return self._seen[stem]

    def look_up(self, stems: Collection[str]) -> None:
        """Looks all of them up at once, for those who will ask for them."""
        missing = [stem for stem in stems if stem not in self._seen]
        self._seen.update(dict.fromkeys(missing, 0))
        rows = self._connection.execute(
            "SELECT stem, passages FROM words WHERE corpus = ? AND stem IN (SELECT value FROM json_each(?))",
            (self._corpus, json.dumps(missing)),
        )
        self._seen.update((row[0], row[1]) for row in rows)


def _counted(passages: Iterable[tuple[str, ...]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for columns in passages:
        counts.update({"", *(stem for column in columns for stem in column.split())})
    return counts
