"""Passages: nothing is lost, order is kept, sizes are bounded, cuts fall where a reader would cut."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.text.tokens import estimate_tokens
from hearthnet_rag.index.chunking import OVERLAP_TOKENS, PASSAGE_TOKENS, Passage, cut
from hearthnet_rag.readers.documents import TITLE_LIMIT
from hearthnet_rag.readers.markdown import find_headings

SENTENCE = "Keep the lid on the barrel so that nothing falls in. "  # 53 bytes
PARAGRAPH = SENTENCE * 9 + "\n\n"  # about 140 tokens

paragraphs = st.one_of(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="#"), max_size=300),
    st.sampled_from(["# One\n", "## Two\n", "### Three\n"]),
    st.integers(1, 60).map(lambda count: SENTENCE * count),
    st.integers(1, 6000).map(lambda count: "ü" * count),
)
bodies = st.lists(paragraphs, max_size=12).map("\n\n".join)


def passages_of(body: str) -> list[Passage]:
    return cut(body, find_headings(body))


@given(bodies)
def test_nothing_is_lost_and_order_is_kept(body: str) -> None:
    passages = passages_of(body)
    assert "".join(body[passage.fresh : passage.end] for passage in passages) == body
    for before, after in itertools.pairwise(passages):
        assert before.start < after.start <= after.fresh == before.end < after.end


@given(bodies)
def test_passages_and_overlaps_are_bounded(body: str) -> None:
    for passage in passages_of(body):
        assert estimate_tokens(body[passage.start : passage.end]) <= PASSAGE_TOKENS
        assert estimate_tokens(body[passage.start : passage.fresh]) <= OVERLAP_TOKENS


@given(bodies)
def test_all_but_the_last_are_half_full(body: str) -> None:
    sizes = [estimate_tokens(body[passage.start : passage.end]) for passage in passages_of(body)]
    # Sizes are added up unit by unit, each rounded up: of "a\n\n" a quarter of its token is air.
    assert all(size >= PASSAGE_TOKENS // 2 * 3 // 4 for size in sizes[:-1])


def test_a_cut_falls_in_the_second_half_also_if_the_only_heading_is_in_the_first() -> None:
    body = "# Barrels\n\n" + PARAGRAPH * 3 + "## Lids\n\n" + PARAGRAPH * 9
    first, *_ = passages_of(body)
    assert estimate_tokens(body[: first.end]) > PASSAGE_TOKENS // 2


def test_of_nothing_there_are_no_passages() -> None:
    assert cut("") == []


def test_a_short_document_is_one_passage_with_all_its_headings() -> None:
    body = "# Barrels\n\ntext\n\n## Lids\n\ntext\n"
    assert passages_of(body) == [Passage(0, 0, len(body), ("Barrels",), ("Barrels", "Lids"))]


def test_a_cut_prefers_a_heading_and_then_has_no_overlap() -> None:
    body = "# Barrels\n\n" + PARAGRAPH * 6 + "## Lids\n\n" + PARAGRAPH * 6
    first, second = passages_of(body)
    assert second.start == second.fresh == first.end == body.index("## Lids")
    assert second.path == ("Barrels", "Lids")


def test_without_a_heading_a_cut_falls_between_paragraphs_and_overlaps_by_whole_ones() -> None:
    body = "# Barrels\n\n" + PARAGRAPH * 20
    passages = passages_of(body)
    assert len(passages) == 3
    for passage in passages[1:]:
        assert passage.fresh - passage.start == len(PARAGRAPH)
        assert body[passage.start - 2 : passage.start] == "\n\n"
        assert passage.path == ("Barrels",)
        assert passage.headings == ()


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    body = SENTENCE * 200
    _, *others = passages_of(body)
    assert others
    for passage in others:
        assert body[passage.start :].startswith("Keep ")
        assert body[passage.fresh :].startswith("Keep ")


def test_the_path_has_no_heading_of_a_section_that_has_ended() -> None:
    body = "# A\n\n## B\n\n### C\n\n" + PARAGRAPH * 7 + "## D\n\n" + PARAGRAPH * 3
    assert passages_of(body)[-1].path == ("A", "D")


@pytest.mark.req("ATTACK-45")
def test_headings_cost_no_more_than_their_number() -> None:
    body = "# a\n" * 200_000
    headings = find_headings(body)
    began = time.process_time()
    passages = cut(body, headings)
    assert sum(len(passage.headings) for passage in passages) == len(headings)
    assert time.process_time() - began < 10.0


@pytest.mark.req("ATTACK-45")
def test_a_long_heading_is_not_repeated_whole() -> None:
    body = f"# {'a' * 100_000}\n\n{PARAGRAPH * 200}"
    passages = passages_of(body)
    assert len(passages) > 10
    assert all(len(text) <= TITLE_LIMIT for one in passages for text in (*one.path, *one.headings))
