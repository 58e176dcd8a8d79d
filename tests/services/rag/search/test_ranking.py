"""The order of what was found: shares of words, the scale of meaning, and headings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet_rag.index.vectors import Neighbor
from hearthnet_rag.search.ranking import Candidate, by_both, by_words, heading_match, similarity

EVEN = dict.fromkeys("abcdefgh", 1.0)


def candidates(*scores: float, heading: float = 0.0) -> list[Candidate]:
    return [Candidate(number, number, score, heading) for number, score in enumerate(scores)]


def near(*scores: float) -> list[Neighbor]:
    return [Neighbor(number, number, score) for number, score in enumerate(scores)]


@pytest.mark.req("RAG-1")
def test_a_heading_in_the_querys_own_words_counts_as_much_as_all_else() -> None:
    best, other = Candidate(1, 1, 8.0), Candidate(2, 2, 4.0, heading=1.0)
    assert [(one.chunk, one.score) for one in by_words([best, other])] == [(2, 0.75), (1, 0.5)]
    both = by_both([best, other], [Neighbor(1, 1, 0.9)], {1: 1.0}, {1, 2})
    assert [(one.chunk, round(one.score, 3)) for one in both] == [(2, 0.583), (1, 0.5)]


@pytest.mark.req("RAG-53")
def test_meaning_counts_twice_as_much_as_words() -> None:
    found = by_both(candidates(2.0), [Neighbor(1, 1, 0.9)], {1: 1.0}, {0, 1})
    assert [(one.chunk, round(one.score, 3)) for one in found] == [(1, 0.333), (0, 0.167)]


@pytest.mark.req("RAG-53")
def test_without_a_vector_words_stand_for_both() -> None:
    found = by_both(candidates(2.0), [Neighbor(1, 1, 0.9)], {1: 0.9}, {1})
    assert [(one.chunk, round(one.score, 3)) for one in found] == [(0, 0.5), (1, 0.3)]


@pytest.mark.req("RAG-53")
def test_the_scale_of_meaning_ends_at_the_two_hundredth() -> None:
    found = similarity(near(*[0.9] * 100, *[0.6] * 99, 0.4, 0.3))
    assert found[0] == 1.0
    assert found[150] == pytest.approx(0.4)
    assert found[199] == pytest.approx(0.0)
    assert found[200] == 0.0
    assert similarity([]) == {}


@pytest.mark.req("RAG-53")
def test_small_differences_are_not_stretched() -> None:
    assert similarity(near(0.50, 0.49, 0.48))[2] == pytest.approx(0.9)


@pytest.mark.req("RAG-1")
@pytest.mark.parametrize(
    ("heading", "expected"), [("abc", 1.0), ("ab", 0.716), ("abcdef", 0.544), ("c", 0.354), ("fgh", 0.0)]
)
def test_a_heading_is_what_is_asked_as_far_as_their_words_are_the_same(heading: str, expected: float) -> None:
    assert heading_match("abc", heading, EVEN) == pytest.approx(expected, abs=0.001)


@pytest.mark.req("RAG-1")
def test_rare_words_of_a_heading_count_for_more() -> None:
    weights = {"the": 0.1, "kernel": 5.0, "boot": 4.0}
    assert heading_match(["the", "kernel"], ["kernel"], weights) > 0.95
    assert heading_match(["the", "kernel"], ["the", "boot"], weights) < 0.01


@given(st.lists(st.floats(0.001, 50), max_size=20), st.lists(st.floats(-1, 1), max_size=20))
def test_scores_are_in_order_and_between_0_and_1(scores: list[float], cosines: list[float]) -> None:
    nearest = near(*sorted(cosines, reverse=True))
    for found in (
        by_words(candidates(*scores, heading=1.0)),
        by_both(candidates(*scores), nearest, similarity(nearest), {0}),
    ):
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert all(0 <= one.score <= 1 for one in found)
