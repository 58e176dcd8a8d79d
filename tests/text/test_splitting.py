"""A text in sentences and in parts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.text.splitting import parts, sentences

SENTENCES = [
    ("One. Two! Three? Four", ["One. ", "Two! ", "Three? ", "Four"]),
    ("Dr. Smith met Mrs. Jones at 5. They left.", ["Dr. Smith met Mrs. Jones at 5. They left."]),
    ("It costs 3.50 euros. Yes.", ["It costs 3.50 euros. ", "Yes."]),
    ("Er kam z. B. am 3. Mai. Dann ging er.", ["Er kam z. B. am 3. Mai. ", "Dann ging er."]),
    ('He said "No." Then he left.', ['He said "No." ', "Then he left."]),
    ("first. then small", ["first. then small"]),
    (
        "Title\n\nText here\nand more.\n- one\n- two",
        ["Title\n\n", "Text here\nand more.\n", "- one\n", "- two"],
    ),
    (
        "\u5ddd\u306e\u6c34\u3002\u51b7\u305f\u3044\u3002",
        ["\u5ddd\u306e\u6c34\u3002", "\u51b7\u305f\u3044\u3002"],
    ),
    ("\u06cc\u06c1\u06d4 \u0648\u06c1\u06d4", ["\u06cc\u06c1\u06d4 ", "\u0648\u06c1\u06d4"]),
    ("", []),
    ("   ", ["   "]),
    ("What?! Really... Yes", ["What?! ", "Really... ", "Yes"]),
]
texts = st.text(alphabet="aB .!?\n\"'),;-1\u3002") | st.text()


@pytest.mark.req("TRANS-12")
@pytest.mark.parametrize(("text", "expected"), SENTENCES)
def test_sentences_end_where_they_end(text: str, expected: list[str]) -> None:
    assert list(sentences(text)) == expected


@pytest.mark.req("TRANS-12")
@given(texts, st.integers(1, 40))
def test_nothing_is_lost_and_nothing_too_long(text: str, most: int) -> None:
    assert "".join(sentences(text)) == text
    found = list(parts(text, most))
    assert "".join(found) == text
    assert all(0 < len(part) <= most for part in found)


@pytest.mark.req("TRANS-12")
def test_parts_end_with_sentences_then_clauses_then_words() -> None:
    assert list(parts("One two. Three four. Five six.", 22)) == ["One two. Three four. ", "Five six."]
    assert list(parts("One two three, four five six seven", 20)) == ["One two three, ", "four five six seven"]
    assert list(parts("One two three four five", 10)) == ["One two ", "three ", "four five"]
    assert list(parts("abcdefgh", 3)) == ["abc", "def", "gh"]


@pytest.mark.req("ATTACK-31")
@pytest.mark.parametrize("text", [".", ".'", ". ", "\n", " ", "\n ", "\u3002", "1. "])
def test_sentences_are_found_in_time_that_grows_with_the_text(text: str) -> None:
    """8,000 full stops took a second, and four times as long for twice as many."""
    began = time.process_time()
    assert "".join(sentences(text * (64_000 // len(text)))) == text * (64_000 // len(text))
    assert time.process_time() - began < 1


@pytest.mark.req("TRANS-12", "ATTACK-45")
@pytest.mark.parametrize("row", ["." * 200_000, ".\u2026!" * 60_000 + "x", "a" + ".)" * 100_000])
def test_long_rows_of_stops_take_time_in_line_with_length(row: str) -> None:
    began = time.process_time()
    assert "".join(parts(row, 4_000)) == row
    # It takes 0.02 s; from each stop on, it would take minutes.
    assert time.process_time() - began < 2
