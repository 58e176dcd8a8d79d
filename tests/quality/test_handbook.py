"""Floors below which retrieval from the Debian handbook must not fall; `make quality` measures all of it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hearthnet_rag.index.index import Index
from tests.helpers.leaving import leave_out
from tests.quality.handbook import (
    FOLDERS,
    PACKAGE,
    is_installed,
    practice_questions,
    runs_of,
    sections,
    written_questions,
)
from tests.quality.handbook_pages import ingest
from tests.quality.measure_handbook import Score, ours, scores, table, too_low


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    if not is_installed():
        leave_out(f"the Debian package {PACKAGE}")
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Index(Path(folder))) as made:
        for language in FOLDERS:
            ingest(made, language)
        yield made


@pytest.mark.req("RAG-50")
@pytest.mark.parametrize(
    ("language", "kind", "every"),
    [
        ("en", "questions", 1),
        ("en", "practice", 1),
        ("en", "titles", 12),  # of 558, and in German too: `make quality` asks for all
        ("de", "questions", 1),
        ("de", "titles", 12),
    ],
)
def test_questions_find_their_sections(index: Index, language: str, kind: str, every: int) -> None:
    found = scores(language, [kind], {"bm25": ours(index, language)}, every)
    assert too_low(found) == [], table(found)


@pytest.mark.req("RAG-50")
def test_a_score_below_its_floor_is_named() -> None:
    good = Score("bm25", "de", "titles", 558, 0.95, 0.98, 1.0)
    bad = [replace(good, mrr=0.949), replace(good, recall=0.979)]
    assert too_low([good, replace(bad[0], way="bm25s")]) == []
    assert too_low(bad) == [
        "titles, de: 0.949 / 0.980, floor 0.95 / 0.98",
        "titles, de: 0.950 / 0.979, floor 0.95 / 0.98",
    ]


@pytest.mark.req("RAG-50")
def test_a_table_says_why_there_are_no_vectors() -> None:
    words = Score("bm25", "en", "titles", 558, 0.95, 0.98, 1.0)
    assert "No vectors in en: all-MiniLM-L6-v2 is not installed (make embedding)." in table([words])
    both = table([words, replace(words, way="hybrid")])
    assert "No vectors in en" not in both
    assert "No vectors in de: all-MiniLM-L6-v2 does not vouch for it" in both


@pytest.mark.req("RAG-50")
def test_every_question_has_its_section_in_both_languages(index: Index) -> None:
    written = written_questions()
    assert [question.language for question in written].count("de") == 25 == len(written) - 25
    for language in FOLDERS:
        known = {section.id for section in sections(language)}
        assert {question.section for question in (*written, *practice_questions())} <= known


@pytest.mark.req("RAG-50")
def test_a_passage_is_right_for_its_own_section_only() -> None:
    if not is_installed():
        leave_out(f"the Debian package {PACKAGE}")
    by_id = {section.id: section for section in sections("en")}
    raid, lvm = by_id["sect.raid-soft"], by_id["sect.lvm"]
    assert raid.is_in(raid.runs)
    assert not lvm.is_in(raid.runs)
    assert not raid.is_in(runs_of("RAID is not mentioned here in any run of words that the book has"))
