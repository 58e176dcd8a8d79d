"""The stems of a corpus, with the number of passages that contain each.

It serves to divide compounds, to begin a query at its rarest words, and to weigh words of headings. It is
written in the transaction that writes the passages, so it always agrees with them.
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
    """Count added passages, each given as its columns of stems."""
    connection.executemany(
        """
        INSERT INTO words (corpus, stem, passages) VALUES (?, ?, ?)
        ON CONFLICT (corpus, stem) DO UPDATE SET passages = passages + excluded.passages
        """,
        ((corpus, stem, count) for stem, count in sorted(_counted(passages).items())),
    )


def forget(connection: sqlite3.Connection, corpus: int, passages: Iterable[tuple[str, ...]]) -> None:
    """Subtract removed passages; a stem that is in none is deleted."""
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
    """Number of passages of a corpus that contain a stem; each stem is looked up once.

    The empty stem counts all passages.
    """

    def __init__(self, connection: sqlite3.Connection, corpus: int) -> None:
        self._connection = connection
        self._corpus = corpus
        self._seen: dict[str, int] = {}

    def __call__(self, stem: str) -> int:
        """Return the number of passages with `stem`, 0 for an unknown stem."""
        if stem not in self._seen:
            self.look_up([stem])
        return self._seen[stem]

    def look_up(self, stems: Collection[str]) -> None:
        """Look up several stems at once, for later calls."""
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
