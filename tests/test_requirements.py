"""docs/requirements.md and the tests agree: each requirement has a test, and a test names no other id."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.requirements import complaints, listed, named, named_in

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "requirements.md"


@pytest.mark.req("SETUP-7")
def test_every_requirement_has_a_test_and_every_test_a_requirement() -> None:
    wrong = complaints(PAGE.read_text(), named_in(TESTS))
    assert not wrong, "\n".join(["docs/requirements.md and the tests disagree:", *wrong])


def test_rows_are_read_and_headings_are_not() -> None:
    page = "| id | text | where |\n|---|---|---|\n| UP-1 | starts | a page |\n| `UP-2` | a \\| b | here |\n"
    assert listed(page) == {"UP-1": 1, "UP-2": 1}


@pytest.mark.parametrize("row", ["| UP1 | starts | a page |", "| UP-1 | starts |", "| UP-1 |  | a page |"])
def test_a_row_of_another_form_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match="line 1 is no row"):
        listed(row)


def test_marks_are_found_wherever_they_stand() -> None:
    source = "pytestmark = pytest.mark.req('A-1')\n@pytest.mark.req('B-1', 'B-2')\nasync def test_it(): ...\n"
    assert named(source) == {"A-1", "B-1", "B-2"}


def test_each_kind_of_disagreement_is_named() -> None:
    page = "| A-1 | one | x |\n| A-1 | one again | x |\n| A-2 | two | x |\n"
    assert complaints(page, {"A-1": ["test_a.py"], "A-3": ["test_b.py"]}) == [
        "A-1 is listed 2 times",
        "A-2 is named by no test",
        "A-3 is named in test_b.py but not listed",
    ]
