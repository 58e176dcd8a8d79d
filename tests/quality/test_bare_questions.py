"""The floor below which retrieval by the bare question must not fall. Measured: 18 of 20, 52 of 57."""

from __future__ import annotations

import pytest

from tests.quality.bare_questions import measure


@pytest.mark.req("RAG-13")
@pytest.mark.parametrize(("name", "fewest"), [("questions", 18), ("practice", 50)])
def test_the_bare_question_finds_the_right_document(name: str, fewest: int) -> None:
    report = measure(name)
    assert report.right >= fewest, str(report)
