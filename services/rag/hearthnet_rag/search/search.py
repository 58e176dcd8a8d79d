"""Search for passages: words are OR-ed; BM25, headings and meaning give the rank.

Of the first k passages at most two are of one document, unless there are fewer than k others.
"""

from __future__ import annotations

import difflib
import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_rag.index.database import passages_table
from hearthnet_rag.index.index import Index
from hearthnet_rag.index.vectors import Neighbor, QueryEmbedding, with_vectors
from hearthnet_rag.search.ranking import Candidate, by_both, by_words, heading_match, similarity
from hearthnet_rag.text.document_frequencies import Vocabulary
from hearthnet_rag.text.text_analysis import DEFAULT, base_language, query_stems, surface_forms, words

PER_DOCUMENT: Final = 2
_FAR: Final = 1_000_000
"""A year beyond every document; SQLite's integers have 64 bits."""
_CANDIDATES_PER_PASSAGE: Final = 40
_ENOUGH: Final = 3_000
_FEWEST: Final = 200
_MOST_WORDS: Final = 64
_HEADINGS_READ: Final = 200
_MOST_LANGUAGES: Final = 8
# CROSS JOIN keeps this order of tables: few passages match, but those of a language may be all of them.
_WITH_DOCUMENTS: Final = (
    "CROSS JOIN chunks ON chunks.id = {table}.rowid CROSS JOIN documents ON documents.id = chunks.document"
)


class Filter(msgspec.Struct, frozen=True):
    """Condition on documents; one of unknown language or year meets no condition on it."""

    language: str | None = None
    min_year: int | None = None
    doc_cid: str | None = None


class VersionFilter(Filter, frozen=True):
    """A filter that also leaves out all but the `documents` of one version of a corpus."""

    documents: tuple[str, ...] = ()


class Hit(msgspec.Struct, frozen=True):
    """A found passage; a higher `score` is better, and comparable only within one query."""

    score: float
    text: str
    metadata: dict[str, Any]


ANY: Final = Filter()


def search(
    index: Index, corpus: str, query: str, k: int, wanted: Filter = ANY, near: QueryEmbedding | None = None
) -> list[Hit]:
    """Return at most `k` passages of `corpus`, best first, by words and by the vector `near`.

    Raises:
        HearthNetError: `not_found` if there is no such corpus; `bad_request` if the query has no word.
    """
    if not words(query):
        raise HearthNetError(
            "bad_request",
            "the query has no word in it; give the key words to search for",
            details={"path": "/input/query"},
        )
    losses = index.losses
    with index.reading() as connection:
        number = _corpus(connection, corpus)
        known = Vocabulary(connection, number)
        asked = _match_query(connection, number, query, wanted, known)
        found = _candidates(connection, number, asked, k, wanted) if asked.match else []
        found = [*_with_headings(connection, found[:_HEADINGS_READ], query, known), *found[_HEADINGS_READ:]]
        if near is None:
            ordered = by_words(found)
        else:
            nearest = index.signs.nearest(connection, losses, number, near)
            seen = with_vectors(connection, near.model, [one.chunk for one in found])
            ordered = by_both(found, _fitting(connection, nearest, wanted), similarity(nearest), seen)
        return [_hit(connection, chosen) for chosen in _spread(ordered, k)]


def no_such_corpus(corpus: str, known: Sequence[str]) -> HearthNetError:
    """Return the error for an unknown corpus, with similar names."""
    near = difflib.get_close_matches(corpus, known, n=3, cutoff=0.5) or list(known)[:3]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return HearthNetError(
        "not_found", f"no corpus {corpus!r} here{hint}", details={"path": "/params/corpus", "nearest": near}
    )


def _corpus(connection: sqlite3.Connection, name: str) -> int:
    row = connection.execute("SELECT id FROM corpora WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise no_such_corpus(name, ())
    return int(row["id"])


def _fitting(connection: sqlite3.Connection, nearest: Sequence[Neighbor], wanted: Filter) -> list[Neighbor]:
    demands, values = _demands(wanted)
    if not demands:
        return list(nearest)
    marks = ", ".join("?" for _ in nearest)
    rows = connection.execute(
        f"""
        SELECT chunks.id FROM chunks JOIN documents ON documents.id = document
        WHERE chunks.id IN ({marks}) {demands}
        """,
        (*(near.chunk for near in nearest), *values),
    )
    fitting = {row["id"] for row in rows}
    return [near for near in nearest if near.chunk in fitting]


def _with_headings(
    connection: sqlite3.Connection, found: Sequence[Candidate], query: str, known: Vocabulary
) -> list[Candidate]:
    """Return `found` with the agreement of each passage's headings with the query."""
    marks = ", ".join("?" for _ in found)
    rows = connection.execute(
        f"SELECT id, headings FROM chunks WHERE id IN ({marks})", [one.chunk for one in found]
    )
    lines = {row["id"]: row["headings"].split("\n") for row in rows}
    matches = _matches({line for all_of in lines.values() for line in all_of}, query, known)
    return [
        msgspec.structs.replace(one, heading=best)
        if (best := max((matches.get(line, 0.0) for line in lines[one.chunk]), default=0.0))
        else one
        for one in found
    ]


def _matches(headings: Collection[str], query: str, known: Vocabulary) -> dict[str, float]:
    """Return the agreement with the query of each heading that shares a word with it."""
    asked = set(surface_forms(query).split())
    telling = {line: of for line in headings if not asked.isdisjoint(of := set(line.split()))}
    all_words = asked.union(*telling.values())
    known.look_up(all_words)
    passages = known("")
    weights = {word: math.log(1 + passages / (known(word) + 0.5)) for word in all_words}
    return {line: heading_match(asked, of, weights) for line, of in telling.items()}


class _MatchQuery(msgspec.Struct, frozen=True):
    """A query of FTS5, empty if the corpus has none of its words; each word counts `times`."""

    match: str
    times: int = 1


def _match_query(
    connection: sqlite3.Connection, corpus: int, query: str, wanted: Filter, known: Vocabulary
) -> _MatchQuery:
    languages = [base_language(wanted.language)] if wanted.language else _languages(connection, corpus)
    found = {stem: known(stem) for stem in query_stems(query, languages, known)}
    rarest = sorted((stem for stem, passages in found.items() if passages), key=found.__getitem__)
    rarest = rarest[:_MOST_WORDS]
    first = _rare(rarest, found)
    rare = _any_of(rarest[:first])
    if first == len(rarest):
        return _MatchQuery(rare)
    # Only passages with a rare word are ranked. The second group has the rare words again, so that all words
    # count twice.
    return _MatchQuery(f"({rare}) AND ({_any_of([*rarest, *rarest[first:]])})", times=2)


def _rare(rarest: Sequence[str], passages: Mapping[str, int]) -> int:
    """Return how many of the words, rarest first, are rare.

    A passage must have one of these to be ranked.
    """
    together = 0
    for number, stem in enumerate(rarest):
        together += passages[stem]
        if number and together > _ENOUGH and together - passages[stem] >= _FEWEST:
            return number
    return len(rarest)


def _any_of(stems: Iterable[str]) -> str:
    return " OR ".join(f'"{stem}"' for stem in stems)


def _languages(connection: sqlite3.Connection, corpus: int) -> list[str]:
    """Return the languages of the corpus's documents, with one index lookup for each."""
    rows = connection.execute(
        """
        WITH RECURSIVE found (language) AS (
            SELECT (SELECT min(language) FROM documents WHERE corpus = :corpus)
            UNION ALL
            SELECT (SELECT min(language) FROM documents WHERE corpus = :corpus AND language > found.language)
            FROM found WHERE found.language IS NOT NULL LIMIT :most
        )
        SELECT language FROM found WHERE language IS NOT NULL
        """,
        {"corpus": corpus, "most": _MOST_LANGUAGES},
    )
    named = [base_language(row["language"]) for row in rows]
    unnamed = connection.execute(
        "SELECT 1 FROM documents WHERE corpus = ? AND language IS NULL LIMIT 1", (corpus,)
    ).fetchone()
    return list(dict.fromkeys([*named, *([DEFAULT] if unnamed or not named else [])]))


def _candidates(
    connection: sqlite3.Connection, corpus: int, asked: _MatchQuery, k: int, wanted: Filter
) -> list[Candidate]:
    table = passages_table(corpus)
    demands, values = _demands(wanted)
    rows = connection.execute(
        f"""
        WITH best AS MATERIALIZED (
            SELECT {table}.rowid AS id, rank FROM {table} {demands and _WITH_DOCUMENTS.format(table=table)}
            WHERE {table} MATCH ? {demands} ORDER BY rank LIMIT ?
        )
        SELECT best.id AS chunk, document, -rank / ? AS score FROM best JOIN chunks ON chunks.id = best.id
        ORDER BY rank, best.id
        """,
        (asked.match, *values, k * _CANDIDATES_PER_PASSAGE, asked.times),
    )
    return [Candidate(**dict(row)) for row in rows]


def _demands(wanted: Filter) -> tuple[str, list[str | int]]:
    demands = ""
    values: list[str | int] = []
    if wanted.language is not None:
        demands += " AND lower(documents.language) = ?"
        values.append(wanted.language.lower())
    if wanted.min_year is not None:
        demands += " AND documents.year >= ?"
        values.append(max(-_FAR, min(wanted.min_year, _FAR)))
    if wanted.doc_cid is not None:
        demands += " AND documents.doc_cid = ?"
        values.append(wanted.doc_cid)
    if isinstance(wanted, VersionFilter):
        demands += " AND documents.doc_cid IN (SELECT value FROM json_each(?))"
        values.append(json.dumps(wanted.documents))
    return demands, values


def _spread(candidates: Sequence[Candidate], k: int) -> list[Candidate]:
    """Return `k` candidates, of each document at most two unless there are no others."""
    chosen: list[Candidate] = []
    spared: list[Candidate] = []
    seen: dict[int, int] = {}
    for candidate in candidates:
        seen[candidate.document] = seen.get(candidate.document, 0) + 1
        (chosen if seen[candidate.document] <= PER_DOCUMENT else spared).append(candidate)
    picked = [*chosen[:k], *spared[: max(0, k - len(chosen))]]
    return sorted(picked, key=lambda candidate: -candidate.score)


def _hit(connection: sqlite3.Connection, chosen: Candidate) -> Hit:
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
