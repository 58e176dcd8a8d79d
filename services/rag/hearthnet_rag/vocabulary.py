"""The stems of a corpus and in how many passages each stands.

By it compounds are taken apart, and a query is begun at its rarest words. It is written in the transaction
that writes the passages, so it never says anything else than they do.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import Final

from hearthnet_rag.words import Known

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


def known_in(connection: sqlite3.Connection, corpus: int) -> Known:
    """In how many passages of `corpus` a stem stands; each is looked up once."""
    seen: dict[str, int] = {}

    def known(stem: str) -> int:
        if stem not in seen:
            row = connection.execute(
                "SELECT passages FROM words WHERE corpus = ? AND stem = ?", (corpus, stem)
            ).fetchone()
            seen[stem] = row[0] if row else 0
        return seen[stem]

    return known


def _counted(passages: Iterable[tuple[str, ...]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for columns in passages:
        counts.update({stem for column in columns for stem in column.split()})
    return counts
