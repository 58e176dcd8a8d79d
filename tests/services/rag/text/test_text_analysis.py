"""Words of texts and queries."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snowballstemmer.english_stemmer import EnglishStemmer

from hearthnet_rag.text import text_analysis
from hearthnet_rag.text.text_analysis import (
    _JOINTS,
    ALGORITHMS,
    ENGLISH,
    LONGEST,
    SHORTEST,
    SHORTEST_PART,
    Analyser,
    base_language,
    query_stems,
    split,
    stem,
    stop_words,
    surface_forms,
    words,
)


def analysed(text: str, language: str | None = None) -> str:
    return Analyser(language).text(text)


def stems(query: str, *languages: str) -> list[str]:
    """Without the words as they are written."""
    return [found for found in query_stems(query, languages or ("en",)) if not found.startswith("0")]


def test_words_are_folded() -> None:
    assert words("Don\u2019t THROW away Größe, café & snake_case 4 °C!") == [
        "don't", "throw", "away", "grösse", "café", "snake", "case", "4", "c",
    ]  # fmt: skip


def test_forms_of_a_word_meet_in_its_stem() -> None:
    assert analysed("boil boiled Boiling, boils") == "boil boil boil boil"
    assert analysed("grandfather's face") == "grandfath face"


@pytest.mark.req("RAG-2")
def test_a_query_is_left_with_the_words_that_tell() -> None:
    query = "How do I make rainwater safe to drink, and rainwater only?"
    assert stems(query) == ["rainwat", "safe", "drink"]
    assert stems("Wie mache ich Regenwasser trinkbar?", "de") == ["regenwass", "trinkbar"]


@pytest.mark.req("RAG-2")
def test_a_query_of_stop_words_keeps_them() -> None:
    assert stems("what to do when") == ["what", "to", "do", "when"]
    assert query_stems("?! ...") == []


@pytest.mark.req("RAG-51")
def test_stop_words_are_those_of_the_language_that_is_asked_in() -> None:
    assert stems("after the war and a man", "de", "en") == ["war", "man"]
    assert "war" not in stems("was war mit dem Gateway?", "de", "en")
    assert stems("how to use the gateway", "de") == [
        "gateway"
    ]  # nothing here is English, but the question is


@pytest.mark.req("RAG-51")
@pytest.mark.parametrize(
    "spellings",
    [
        "Häuser Haeuser Haus HÄUSER Ha\u0308user",
        "Größe Groesse Grösse GRÖSSE",
        "Schlüssel Schluessel",
        "Straße Strasse",
    ],
)
def test_umlauts_meet_however_they_are_spelt(spellings: str) -> None:
    assert len(set(analysed(spellings, "de").split())) == 1


@pytest.mark.req("RAG-51")
def test_each_language_has_its_stems_and_a_region_makes_no_difference() -> None:
    assert analysed("Aktualisierungen", "de-DE") == analysed("Aktualisierung", "de_AT") == "aktualisier"
    assert analysed("nationales", "fr") == analysed("national", "FR")
    assert analysed("Verschlüsselungen", "xx") == "verschlusselungen"
    assert base_language(None) == base_language("") == "en"
    assert all(stem("word", language).isalnum() for language in ALGORITHMS)


@pytest.mark.req("RAG-51")
def test_parts_stand_beside_the_compound_in_text_and_query() -> None:
    known = {"firewall": 1, "regel": 2}
    analyser = Analyser("de", lambda part: known.get(part, 0))
    assert analyser.text("Firewallregeln") == "firewallregel firewall regel"
    found = query_stems("Firewallregel", ["de"], lambda part: known.get(part, 0))
    assert found == ["firewallregel", "firewall", "regel", "0firewallregel"]
    assert Analyser("en", lambda part: 1).text("firewallrules") == "firewallrul"


@pytest.mark.req("RAG-51")
def test_words_as_they_are_written_are_no_stems() -> None:
    assert surface_forms("Don't boil Größe") == "0dont 0boil 0grosse"
    assert query_stems("boiling") == ["boil", "0boiling"]


def test_a_word_without_end_is_cut() -> None:
    assert words("a" * 1000) == ["a" * 64]


def test_stop_words_are_known_by_language() -> None:
    assert {"für", "fuer", "welche"} <= stop_words("de")
    assert "dans" in stop_words("fr")
    assert stop_words("xx") == frozenset()


def test_nouns_of_a_household_are_no_stop_words() -> None:
    assert not ENGLISH & {"well", "water", "fire", "cold", "light", "mine", "right", "power"}


@given(st.text(), st.sampled_from(["en", "de", "fr", "xx"]))
def test_a_query_meets_the_text_it_was_taken_from(text: str, language: str) -> None:
    stored = f"{analysed(text, language)} {surface_forms(text)}"
    assert set(query_stems(text, [language])) <= set(stored.split())
    assert stored.replace(" ", "").isalnum() or not words(text)


class Yielding(EnglishStemmer):  # type: ignore[misc]
    """The stemmer in plain Python, which has one word at a time in itself and lets other threads go on."""

    def set_current(self, value: str) -> None:
        super().set_current(value)
        time.sleep(0)


def test_threads_do_not_disturb_each_others_stems(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, begin = Yielding(), threading.Barrier(4)
    monkeypatch.setattr(text_analysis, "_stemmer", lambda algorithm: shared)
    stem.cache_clear()
    wrong: list[str] = []

    def check(thread: int) -> None:
        stemmer = EnglishStemmer()
        begin.wait(60)
        for number in range(300):
            word = f"{'abcdefghij'[number % 10] * thread}candles{number}boiling"
            if stem(word, "en") != stemmer.stemWord(word):
                wrong.append(word)

    threads = [threading.Thread(target=check, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


WORDS = {
    "regel": 9,
    "regeln": 7,
    "firewall": 5,
    "daten": 6,
    "sicherung": 4,
    "datensicherung": 2,
    "konzept": 3,
}


def parts(word: str) -> list[str]:
    return split(word, lambda part: WORDS.get(part, 0))


@pytest.mark.req("RAG-51")
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("firewallregeln", ["firewall", "regeln"]),
        ("datensicherung", ["daten", "sicherung"]),
        ("datensicherungskonzept", ["datensicherung", "konzept"]),  # two parts rather than three
        ("sicherungsdaten", ["sicherung", "daten"]),
        ("regeln", []),
        ("firewallregelx", []),
        ("firewall-regeln", []),
        ("regel" * (LONGEST // 5 + 1), []),
    ],
)
def test_a_compound_is_cut_into_known_words(word: str, expected: list[str]) -> None:
    assert parts(word) == expected


@pytest.mark.req("RAG-51")
def test_of_two_ways_the_one_with_the_more_frequent_parts_is_taken() -> None:
    known = {"staub": 9, "ecken": 9, "staube": 1, "cken": 1}
    assert split("staubecken", lambda part: known.get(part, 0)) == ["staub", "ecken"]


@given(
    st.lists(st.text("abcdefgh", min_size=4, max_size=8), min_size=2, max_size=3), st.sampled_from(_JOINTS)
)
def test_parts_are_known_words_in_their_order(said: list[str], joint: str) -> None:
    word = joint.join(said)
    found = split(word, lambda part: int(part in said))
    if len(word) < SHORTEST:
        assert found == []
        return
    assert 2 <= len(found) <= len(said)
    assert all(part in said and len(part) >= SHORTEST_PART for part in found)
    at = 0
    for part in found:  # nothing but joints lies between them
        start = word.index(part, at)
        assert word[at:start] in _JOINTS
        at = start + len(part)
    assert at == len(word)


@pytest.mark.req("ATTACK-45")
@pytest.mark.parametrize("marks", ["\u0315\u0300", "\uff9e\u0315", "\u0f73\u0315"])
def test_words_with_very_many_accents_are_read_at_once(marks: str) -> None:
    began = time.process_time()
    assert words("u\u0308ber a" + marks * 100_000 + "b \u304b\uff9e")[0] == "\u00fcber"
    # It takes 0.1 s; as one row of accents, 40 s.
    assert time.process_time() - began < 2
