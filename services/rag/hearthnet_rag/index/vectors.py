"""Vectors of passages: missing ones, storage, and search for the nearest.

    vectors   one row for each window of a passage: its model, and the vector of length one in a byte a number

A model reads only the beginning of a long text, so a passage is divided into windows; its nearness is that of
its nearest window. Search compares the signs of all vectors, one bit a number, and then the full vectors of
those with the fewest differing signs (docs/decisions/0116). With this, a corpus of 100,000 windows takes 5 MB
of memory.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.text import CHARACTERS_THAT_FIT

TABLES: Final = """
CREATE TABLE IF NOT EXISTS vectors (
    chunk INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    part INTEGER NOT NULL,
    corpus INTEGER NOT NULL,
    model TEXT NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (chunk, part)
) STRICT;
CREATE INDEX IF NOT EXISTS vectors_of ON vectors (corpus, model);
"""
_SCALE: Final = 127
_COMPARED: Final = 400
_MOST_WINDOWS: Final = 8
_LONGEST: Final = 8_000
_MAX_CORPORA: Final = 8


class PendingVectors(NamedTuple):
    """A passage without vectors of the model, and its windows."""

    chunk: int
    corpus: int
    windows: list[str]


class QueryEmbedding(msgspec.Struct, frozen=True):
    """The vector of a query, and the model that made it."""

    model: str
    vector: list[float]


class Neighbor(msgspec.Struct, frozen=True):
    """A passage and its nearness: the cosine of its nearest window."""

    chunk: int
    document: int
    score: float


def split_windows(title: str, heading: str | None, text: str, max_tokens: int | None) -> list[str]:
    """Return `text` in pieces that fit a model of `max_tokens`, each below title and headings."""
    above = " / ".join(filter(None, (title, heading)))[:300]
    size = min(_LONGEST, (max_tokens or _LONGEST) * CHARACTERS_THAT_FIT) - len(above) - 1
    pieces: list[str] = []
    piece = ""
    for word in text.split():
        if piece and len(piece) + len(word) >= max(size, 100):
            pieces.append(piece)
            piece = ""
        piece = f"{piece} {word}".strip()[:_LONGEST]
    found = [*pieces, piece] if piece else pieces
    return [f"{above}\n{part}"[:_LONGEST] for part in found[:_MOST_WINDOWS]]


def pending(
    connection: sqlite3.Connection,
    model: str,
    languages: Collection[str],
    max_tokens: int | None,
    most: int,
    after: int = 0,
) -> list[PendingVectors]:
    """Return up to `most` passages without a vector of `model`, in order.

    They are of documents in `languages`, and follow the passage `after`.
    """
    marks = ", ".join("?" for _ in languages)
    rows = connection.execute(
        f"""
        SELECT chunks.id AS chunk, corpus, title, heading, text
        FROM chunks CROSS JOIN documents ON documents.id = chunks.document
        WHERE chunks.id > ? AND substr(lower(coalesce(language, '-')), 1, 2) IN ({marks})
            AND NOT EXISTS (SELECT 1 FROM vectors WHERE vectors.chunk = chunks.id AND vectors.model = ?)
        ORDER BY chunks.id LIMIT ?
        """,
        (after, *languages, model, most),
    )
    return [
        PendingVectors(
            row["chunk"], row["corpus"], split_windows(row["title"], row["heading"], row["text"], max_tokens)
        )
        for row in rows
    ]


def store(connection: sqlite3.Connection, model: str, made: Sequence[tuple[PendingVectors, Any]]) -> int:
    """Store the vectors of passages and replace those of another model.

    Passages that were removed since are skipped. Returns the number of replaced vectors.
    """
    replaced = 0
    for passage, vectors in made:
        present = connection.execute(
            """
            SELECT 1 FROM chunks JOIN documents ON documents.id = document
            WHERE chunks.id = ? AND corpus = ?
            """,
            (passage.chunk, passage.corpus),
        ).fetchone()
        if present is None:
            continue
        replaced += connection.execute("DELETE FROM vectors WHERE chunk = ?", (passage.chunk,)).rowcount
        connection.executemany(
            "INSERT INTO vectors (chunk, part, corpus, model, vector) VALUES (?, ?, ?, ?, ?)",
            [(passage.chunk, part, passage.corpus, model, quantize(v)) for part, v in enumerate(vectors)],
        )
    return replaced


def quantize(vector: Sequence[float]) -> bytes:
    """Return a vector, scaled to length one, in a byte a number."""
    import numpy as np

    found = np.asarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(found)) or 1.0
    quantised: bytes = np.round(found / length * _SCALE).astype(np.int8).tobytes()
    return quantised


def with_vectors(connection: sqlite3.Connection, model: str, chunks: Sequence[int]) -> set[int]:
    """Return those of `chunks` that have vectors of `model`."""
    marks = ", ".join("?" for _ in chunks)
    sql = f"SELECT DISTINCT chunk FROM vectors WHERE model = ? AND chunk IN ({marks})"
    return {row["chunk"] for row in connection.execute(sql, (model, *chunks))}


def models_of(connection: sqlite3.Connection, corpus: str) -> list[str]:
    """Return the models of the vectors of `corpus`: one, or several during a replacement."""
    rows = connection.execute(
        """
        SELECT DISTINCT model FROM vectors JOIN corpora ON corpora.id = corpus WHERE corpora.name = ?
        ORDER BY model
        """,
        (corpus,),
    )
    return [row["model"] for row in rows]


class SignBitIndex:
    """The signs of the vectors of recently searched corpora.

    Of new vectors only those are read. After a loss all are read again, because row numbers may have been
    reused (docs/decisions/0135).
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], tuple[int, Any, Any]] = {}
        self._reading = threading.Lock()

    def nearest(
        self, connection: sqlite3.Connection, losses: int, corpus: int, asked: QueryEmbedding
    ) -> list[Neighbor]:
        """Return up to 400 nearest passages of `corpus`, the nearest first.

        `losses` is the index's counter from before `connection` began to read.
        """
        import numpy as np

        rowids, signs = self._signs(connection, losses, corpus, asked.model)
        wanted = np.asarray(asked.vector, dtype=np.float32)
        if not len(rowids) or _words(len(wanted)) != signs.shape[1]:
            return []
        differing = np.bitwise_count(signs ^ _signs_of(wanted[np.newaxis, :])).sum(axis=1)
        count = min(_COMPARED, len(rowids))
        chosen = rowids[np.argpartition(differing, count - 1)[:count]].tolist()
        return _exact(connection, corpus, asked.model, chosen, wanted)

    def _signs(self, connection: sqlite3.Connection, losses: int, corpus: int, model: str) -> tuple[Any, Any]:
        with self._reading:
            kept = self._kept.get((corpus, model))
            if kept is None or kept[0] != losses:
                kept = (losses, *_read_signs(connection, corpus, model))
            else:
                kept = (losses, *_extended(kept[1], kept[2], connection, corpus, model))
            self._kept.pop((corpus, model), None)
            self._kept[corpus, model] = kept
            while len(self._kept) > _MAX_CORPORA:
                del self._kept[next(iter(self._kept))]
        return kept[1], kept[2]


def _extended(
    rowids: Any, signs: Any, connection: sqlite3.Connection, corpus: int, model: str
) -> tuple[Any, Any]:
    """Return the known rows together with those added since."""
    import numpy as np

    more, their_signs = _read_signs(connection, corpus, model, int(rowids[-1]) if len(rowids) else 0)
    if not len(more):
        return rowids, signs
    if not len(rowids):
        return more, their_signs
    return np.concatenate([rowids, more]), np.concatenate([signs, their_signs])


def _read_signs(connection: sqlite3.Connection, corpus: int, model: str, after: int = 0) -> tuple[Any, Any]:
    import numpy as np

    rowids: list[int] = []
    blocks: list[Any] = []
    cursor = connection.execute(
        "SELECT rowid, vector FROM vectors WHERE corpus = ? AND model = ? AND rowid > ? ORDER BY rowid",
        (corpus, model, after),
    )
    while rows := cursor.fetchmany(4096):
        rowids += [row["rowid"] for row in rows]
        block = np.frombuffer(b"".join(row["vector"] for row in rows), dtype=np.int8)
        blocks.append(_signs_of(block.reshape(len(rows), -1)))
    signs = np.concatenate(blocks) if blocks else np.zeros((0, 0), dtype=np.uint64)
    return np.array(rowids, dtype=np.int64), signs


def _words(numbers: int) -> int:
    return -(-numbers // 64)


def _signs_of(vectors: Any) -> Any:
    """Return one bit for each number, in words of 64 bits."""
    import numpy as np

    bits = np.packbits(vectors > 0, axis=1)
    missing = _words(vectors.shape[1]) * 8 - bits.shape[1]
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, missing)))).view(np.uint64)


def _exact(
    connection: sqlite3.Connection, corpus: int, model: str, rowids: Sequence[int], wanted: Any
) -> list[Neighbor]:
    import numpy as np

    marks = ", ".join("?" for _ in rowids)
    rows = connection.execute(
        f"""
        SELECT chunk, document, vector FROM vectors JOIN chunks ON chunks.id = chunk
        WHERE vectors.rowid IN ({marks}) AND corpus = ? AND model = ?
        """,
        (*rowids, corpus, model),
    ).fetchall()
    if not rows:
        return []
    block = np.frombuffer(b"".join(row["vector"] for row in rows), dtype=np.int8).reshape(len(rows), -1)
    length = float(np.linalg.norm(wanted)) or 1.0
    scores = (block.astype(np.float32) @ (wanted / length) / _SCALE).tolist()
    best: dict[int, Neighbor] = {}
    for row, score in sorted(zip(rows, scores, strict=True), key=lambda pair: -pair[1]):
        best.setdefault(row["chunk"], Neighbor(row["chunk"], row["document"], score))
    return list(best.values())
