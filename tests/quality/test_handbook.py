"""Floors below which retrieval from the Debian handbook must not fall; `make quality` measures all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hearthnet_rag.index import Index
from tests.helpers.leaving import leave_out
from tests.quality.handbook import FOLDERS, PACKAGE, is_installed, runs_of, sections, written_questions
from tests.quality.handbook_pages import ingest
from tests.quality.measure_handbook import ours, scores, table


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    if not is_installed():
        leave_out(f"the Debian package {PACKAGE}")
    with tempfile.TemporaryDirectory() as folder, Index(Path(folder)) as made:
        for language in FOLDERS:
            ingest(made, language)
        yield made


@pytest.mark.req("RAG-50")
@pytest.mark.parametrize(
    ("language", "kind", "mrr", "recall"),
    [
        ("en", "questions", 0.44, 0.56),
        ("en", "practice", 0.40, 0.53),
        ("en", "titles", 0.95, 0.98),
        ("de", "questions", 0.34, 0.52),
        ("de", "titles", 0.95, 0.98),
    ],
)
def test_questions_find_their_sections(
    index: Index, language: str, kind: str, mrr: float, recall: float
) -> None:
    found = scores(language, [kind], {"bm25": ours(index, language)})
    assert found[0].mrr >= mrr, table(found)
    assert found[0].recall >= recall, table(found)


@pytest.mark.req("RAG-50")
def test_every_question_has_its_section_in_both_languages(index: Index) -> None:
    written = written_questions()
    assert [question.language for question in written].count("de") == 25 == len(written) - 25
    for language in FOLDERS:
        known = {section.id for section in sections(language)}
        assert {question.section for question in written} <= known


@pytest.mark.req("RAG-50")
def test_a_passage_is_right_for_its_own_section_only() -> None:
    if not is_installed():
        leave_out(f"the Debian package {PACKAGE}")
    by_id = {section.id: section for section in sections("en")}
    raid, lvm = by_id["sect.raid-soft"], by_id["sect.lvm"]
    assert raid.is_in(raid.runs)
    assert not lvm.is_in(raid.runs)
    assert not raid.is_in(runs_of("RAID is not mentioned here in any run of words that the book has"))
