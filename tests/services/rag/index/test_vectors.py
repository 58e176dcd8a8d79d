"""Vectors of passages: windows, what is pending, what is nearest, and how both ways are fused."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hearthnet_rag.index import vectors
from hearthnet_rag.index.index import Index
from hearthnet_rag.index.vectors import (
    PendingVectors,
    QueryEmbedding,
    models_of,
    pending,
    quantize,
    split_windows,
    store,
)
from hearthnet_rag.search.search import Filter, search
from hearthnet_rag.text.text_analysis import likely_language
from tests.services.rag.conftest import MakeEntry

DIM = 70  # no multiple of 64: the last bits are padding
MODEL = "toy"


def along(axis: int, second: int | None = None) -> list[float]:
    vector = [0.01] * DIM
    vector[axis] = 1.0
    if second is not None:
        vector[second] = 0.9
    return vector


def waiting(index: Index, model: str = MODEL, languages: tuple[str, ...] = ("en",)) -> list[PendingVectors]:
    with index.reading() as connection:
        return pending(connection, model, languages, None, 100)


def keep(index: Index, vectors: dict[str, list[list[float]]], model: str = MODEL) -> None:
    """Stores the vectors of the passages that begin with these titles."""
    made = [
        (passage, vectors[title])
        for passage in waiting(index, model)
        if (title := passage.windows[0].split("\n")[0]) in vectors
    ]
    with index.writing() as connection:
        store(connection, model, made)


def english(text: str) -> str:
    return f"+++\nlanguage = 'en-GB'\n+++\n{text}"


@pytest.fixture
def three(index: Index, entry: MakeEntry) -> Index:
    """Three short documents in English, one of no known language."""
    for text in ("# Soup\n\nWarm and red.", "# Bread\n\nCrisp and dark.", "# Tea\n\nHot and green."):
        index.add("home", entry(english(text), year=2020 if "Tea" in text else 2010))
    index.add("home", entry("# Note\n\nOf no language."))
    return index


def found(index: Index, query: str, vector: list[float], wanted: Filter | None = None) -> list[str]:
    hits = search(index, "home", query, 5, wanted or Filter(), QueryEmbedding(MODEL, vector))
    return [hit.metadata["doc_title"] for hit in hits]


@pytest.mark.req("RAG-53")
def test_only_languages_that_are_vouched_for_get_vectors(three: Index) -> None:
    assert {passage.windows[0] for passage in waiting(three)} == {
        "Soup\n# Soup Warm and red.", "Bread\n# Bread Crisp and dark.", "Tea\n# Tea Hot and green.",
    }  # fmt: skip
    assert waiting(three, languages=("de",)) == waiting(three, languages=()) == []


@pytest.mark.req("RAG-53")
def test_what_has_a_vector_is_not_pending_and_another_model_takes_its_place(three: Index) -> None:
    keep(three, {"Soup": [along(1)], "Tea": [along(2), along(3)]})
    assert [passage.windows[0][:5] for passage in waiting(three)] == ["Bread"]
    assert len(waiting(three, "other")) == 3
    keep(three, {"Soup": [along(1)], "Tea": [along(2)], "Bread": [along(3)]}, "other")
    with three.reading() as connection:
        assert models_of(connection, "home") == ["other"]
        assert connection.execute("SELECT count(*) FROM vectors").fetchone()[0] == 3


@pytest.mark.req("RAG-53")
def test_meaning_finds_what_no_word_does_and_both_together_come_first(three: Index) -> None:
    keep(three, {"Soup": [along(1)], "Bread": [along(2)], "Tea": [along(5), along(3)]})
    assert found(three, "submarine", along(3))[0] == "Tea"
    assert found(three, "bread", along(2, 3))[:2] == ["Bread", "Tea"]
    assert found(three, "bread", along(2, 3), Filter(min_year=2015)) == ["Tea"]
    assert search(three, "home", "submarine", 5) == []


@pytest.mark.req("RAG-53")
def test_what_has_no_vector_yet_loses_nothing_to_what_has(three: Index) -> None:
    keep(three, {"Soup": [along(1)], "Tea": [along(2)]})
    assert found(three, "bread", along(1))[0] == "Bread"


@pytest.mark.req("RAG-53")
def test_vectors_of_another_length_or_model_are_not_compared(three: Index) -> None:
    keep(three, {"Soup": [along(1)]})
    assert found(three, "submarine", [1.0] * 200) == []
    assert search(three, "home", "submarine", 5, near=QueryEmbedding("other", along(1))) == []


@pytest.mark.req("RAG-53")
def test_a_document_that_goes_takes_its_vectors_along(three: Index, entry: MakeEntry) -> None:
    keep(three, {"Soup": [along(1)]})
    assert found(three, "submarine", along(1)) == ["Soup"]
    late = waiting(three)
    three.remove("home", three.documents("home"))
    assert found_or_nothing(three) == 0
    with three.writing() as connection:
        store(connection, MODEL, [(passage, [along(1)]) for passage in late])
    assert found_or_nothing(three) == 0


def found_or_nothing(index: Index) -> int:
    with index.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM vectors").fetchone()[0])


@pytest.mark.req("RAG-53")
def test_the_nearest_are_found_among_many_by_their_signs(index: Index, entry: MakeEntry) -> None:
    drawn = random.Random(5)
    vectors = {f"N{n}": [[drawn.gauss(0, 1) for _ in range(384)]] for n in range(600)}
    for title in vectors:
        index.add("home", entry(english(f"# {title}\n\ntext")))
    made = [(passage, vectors[passage.windows[0].split("\n")[0]]) for passage in _all_pending(index)]
    with index.writing() as connection:
        store(connection, MODEL, made)
    for title in ("N7", "N333", "N599"):
        noisy = [number + drawn.gauss(0, 0.5) for number in vectors[title][0]]
        assert found(index, "submarine", noisy)[0] == title


def _all_pending(index: Index) -> list[PendingVectors]:
    with index.reading() as connection:
        return pending(connection, MODEL, ["en"], None, 1000)


texts = st.one_of(
    st.text(min_size=1),
    st.lists(st.sampled_from(["a", "well", "lined-with-stone", "x" * 150]), max_size=300).map(" ".join),
)


@given(texts, st.one_of(st.none(), st.integers(1, 600)))
def test_windows_hold_the_text_in_pieces_a_model_reads(text: str, max_tokens: int | None) -> None:
    pieces = split_windows("Title", "Heading", text, max_tokens)
    assert bool(pieces) == bool(text.split())
    assert all(len(piece) <= 8000 and piece.startswith("Title / Heading\n") for piece in pieces)
    if max_tokens is not None:  # three characters a token; a word is not cut
        room = max(100, 3 * max_tokens - len("Title / Heading\n"))
        parts = [piece.split("\n", 1)[1] for piece in pieces]
        assert all(len(part) <= room or " " not in part for part in parts)
    if len(pieces) < 8:
        assert " ".join(piece.split("\n", 1)[1] for piece in pieces) == " ".join(text.split())


@given(st.lists(st.floats(-10, 10), min_size=3, max_size=20))
def test_a_packed_vector_keeps_its_direction(vector: list[float]) -> None:
    assert quantize([0.0, 0.0]) == b"\0\0"
    length = math.hypot(*vector)
    assume(length > 0.001)
    numbers = struct.unpack(f"{len(vector)}b", quantize(vector))
    assert numbers == pytest.approx([127 * one / length for one in vector], abs=0.51)


@pytest.mark.req("RAG-53")
def test_a_query_in_a_language_nobody_vouches_for_is_not_asked_by_meaning() -> None:
    assert likely_language("how do I make a copy of the disk?", ["en"])
    assert likely_language("greylisting", ["en"])
    assert not likely_language("wie sichere ich die Daten auf der Platte?", ["en"])


@pytest.mark.req("RAG-53")
def test_new_vectors_are_read_alone_and_all_of_them_after_some_went(
    index: Index, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(connection: Any, corpus: int, model: str, after: int = 0) -> Any:
        rowids, signs = whole(connection, corpus, model, after)
        read.append(len(rowids))
        return rowids, signs

    whole = vectors._read_signs
    monkeypatch.setattr(vectors, "_read_signs", counted)
    cids = []
    for number in range(6):
        cids.append(index.add("home", entry(english(f"# N{number}\n\ntext"))).doc_cid)
        index.keep_vectors(MODEL, [(passage, [along(number)]) for passage in waiting(index)])
        assert found(index, "submarine", along(number))[0] == f"N{number}"
    assert read == [1] * 6
    index.remove("home", [cids[5]])  # its row's number is free, and given to the next one
    index.add("home", entry(english("# N6\n\ntext")))
    index.keep_vectors(MODEL, [(passage, [along(6)]) for passage in waiting(index)])
    assert found(index, "submarine", along(6))[0] == "N6"
    assert read[6:] == [6]
    index.keep_vectors("other", [(passage, [along(7)]) for passage in waiting(index, "other")])
    assert found(index, "submarine", along(6)) == []
    assert read[7:] == [0]
