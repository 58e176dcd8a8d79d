"""Words of texts and queries."""

from __future__ import annotations

import threading

import pytest
import snowballstemmer
from hypothesis import given
from hypothesis import strategies as st

from hearthnet_rag.words import STOP_WORDS, analysed, query_stems, words


def test_words_are_folded() -> None:
    assert words("Don\u2019t THROW away Größe, café & snake_case 4 °C!") == [
        "don't", "throw", "away", "grosse", "cafe", "snake", "case", "4", "c",
    ]  # fmt: skip


def test_forms_of_a_word_meet_in_its_stem() -> None:
    assert analysed("boil boiled Boiling, boils") == "boil boil boil boil"
    assert analysed("grandfather's face") == "grandfath face"


@pytest.mark.req("RAG-2")
def test_a_query_is_left_with_the_words_that_tell() -> None:
    assert query_stems("How do I make rainwater safe to drink, and rainwater only?") == [
        "rainwat",
        "safe",
        "drink",
    ]


@pytest.mark.req("RAG-2")
def test_a_query_of_stop_words_keeps_them() -> None:
    assert query_stems("what to do when") == ["what", "to", "do", "when"]
    assert query_stems("?! ...") == []


def test_nouns_of_a_household_are_no_stop_words() -> None:
    assert not STOP_WORDS & {"well", "water", "fire", "cold", "light", "mine", "right", "power"}


@given(st.text())
def test_a_query_meets_the_text_it_was_taken_from(text: str) -> None:
    assert set(query_stems(text)) <= set(analysed(text).split())
    assert analysed(text).replace(" ", "").isalnum() or not words(text)


def test_threads_do_not_disturb_each_others_stems() -> None:
    texts = [
        f"{letter}oiling {letter}unners {letter}andles {letter}ashed"
        for letter in "bcdfghjklmnpqrstvwxyz" * 6
    ]
    texts = [f"{text}{number}s" for number, text in enumerate(texts)]
    wrong: list[str] = []

    def check() -> None:
        stemmer = snowballstemmer.stemmer("english")
        expected = (" ".join(stemmer.stemWords(text.split())) for text in texts)
        wrong.extend(text for text, stems in zip(texts, expected, strict=True) if analysed(text) != stems)

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
