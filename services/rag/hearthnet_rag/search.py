"""Finding passages: words are OR-ed, BM25 ranks, and no document crowds out the others.

Of the first k passages at most two come from one document, unless there are not k others.
"""

from __future__ import annotations

import difflib
import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet_rag.database import passages_table
from hearthnet_rag.index import Index
from hearthnet_rag.words import query_stems

PERSONAL: Final = "personal"
PER_DOCUMENT: Final = 2
_CANDIDATES_PER_PASSAGE: Final = 40


class Filter(msgspec.Struct, frozen=True):
    """Which documents may answer; a document whose language or year is not known fits no such demand."""

    language: str | None = None
    min_year: int | None = None


class Hit(msgspec.Struct, frozen=True):
    """A passage that was found; a higher `score` is better, and compares only within one query."""

    score: float
    text: str
    metadata: dict[str, Any]


ANY: Final = Filter()


class _Candidate(msgspec.Struct, frozen=True):
    chunk: int
    document: int
    score: float


def search(index: Index, corpus: str, query: str, k: int, wanted: Filter = ANY) -> list[Hit]:
    """At most `k` passages of `corpus`, best first.

    `not_found` with the nearest names where there is no such corpus; `bad_request` where the query has no
    word in it.
    """
    stems = query_stems(query)
    if not stems:
        raise HearthNetError(
            "bad_request",
            "the query has no word in it; give the key words to search for",
            details={"path": "/input/query"},
        )
    with index.reading() as connection:
        number = _corpus(connection, corpus)
        candidates = _candidates(connection, number, stems, k, wanted)
        return [_hit(connection, chosen) for chosen in _spread(candidates, k)]


def no_such_corpus(corpus: str, known: Sequence[str]) -> HearthNetError:
    """The error for a corpus that is not here, with the names that come near it."""
    near = difflib.get_close_matches(corpus, known, n=3, cutoff=0.5) or list(known)[:3]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return HearthNetError(
        "not_found", f"no corpus {corpus!r} here{hint}", details={"path": "/params/corpus", "nearest": near}
    )


def _corpus(connection: sqlite3.Connection, name: str) -> int:
    rows = connection.execute("SELECT id, name FROM corpora ORDER BY name").fetchall()
    for row in rows:
        if row["name"] == name:
            return int(row["id"])
    raise no_such_corpus(name, [row["name"] for row in rows if row["name"] != PERSONAL])


def _candidates(
    connection: sqlite3.Connection, corpus: int, stems: Sequence[str], k: int, wanted: Filter
) -> list[_Candidate]:
    table = passages_table(corpus)
    demands, values = _demands(wanted)
    rows = connection.execute(
        f"""
        WITH best AS MATERIALIZED (
            SELECT rowid AS id, rank FROM {table} WHERE {table} MATCH ? {demands} ORDER BY rank LIMIT ?
        )
        SELECT best.id AS chunk, document, -rank AS score FROM best JOIN chunks ON chunks.id = best.id
        ORDER BY rank, best.id
        """,
        (" OR ".join(f'"{stem}"' for stem in stems), *values, k * _CANDIDATES_PER_PASSAGE),
    )
    return [_Candidate(**dict(row)) for row in rows]


def _demands(wanted: Filter) -> tuple[str, list[str | int]]:
    demands: list[str] = []
    values: list[str | int] = []
    if wanted.language is not None:
        demands.append("lower(language) = ?")
        values.append(wanted.language.lower())
    if wanted.min_year is not None:
        demands.append("year >= ?")
        values.append(wanted.min_year)
    if not demands:
        return "", values
    fitting = f"SELECT id FROM documents WHERE {' AND '.join(demands)}"
    return f"AND rowid IN (SELECT id FROM chunks WHERE document IN ({fitting}))", values


def _spread(candidates: Sequence[_Candidate], k: int) -> list[_Candidate]:
    """`k` of the candidates; the third and later ones of a document only where there is nothing else."""
    chosen: list[_Candidate] = []
    spared: list[_Candidate] = []
    seen: dict[int, int] = {}
    for candidate in candidates:
        seen[candidate.document] = seen.get(candidate.document, 0) + 1
        (chosen if seen[candidate.document] <= PER_DOCUMENT else spared).append(candidate)
    picked = [*chosen[:k], *spared[: max(0, k - len(chosen))]]
    return sorted(picked, key=lambda candidate: -candidate.score)


def _hit(connection: sqlite3.Connection, chosen: _Candidate) -> Hit:
    row = connection.execute(
        """
        SELECT number, heading, page, text, doc_cid, title, language, metadata
        FROM chunks JOIN documents ON documents.id = document WHERE chunks.id = ?
        """,
        (chosen.chunk,),
    ).fetchone()
    known = {
        "doc_cid": row["doc_cid"],
        "doc_title": row["title"],
        "page": row["page"],
        "chunk_id": f"{row['doc_cid']}#{row['number']}",
        "chunk_index": row["number"],
        "language": row["language"],
        "heading": row["heading"],
    }
    shown = {"path": None, "date": None, "sources": [], **json.loads(row["metadata"])}
    return Hit(chosen.score, row["text"], {**shown, **known})
