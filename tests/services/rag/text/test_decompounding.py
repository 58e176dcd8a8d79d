"""Compounds are taken apart by the words that there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet_rag.text.text_analysis import _JOINTS, LONGEST, SHORTEST, SHORTEST_PART, split

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
