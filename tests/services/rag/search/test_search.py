"""Search: ranking, queries of any kind, diversity of documents, filters."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet_rag.index.index import Index
from hearthnet_rag.search.search import Filter, no_such_corpus, search
from tests.services.rag.conftest import MakeEntry

PARAGRAPH = "Keep the lid on the barrel so that no leaves and no mosquitoes get in.\n\n"


def titles(index: Index, query: str, k: int = 5, wanted: Filter | None = None) -> list[str]:
    return [hit.metadata["doc_title"] for hit in search(index, "home", query, k, wanted or Filter())]


@pytest.fixture
def small(index: Index, entry: MakeEntry) -> Index:
    """Four short documents."""
    index.add("home", entry("# Candles\n\nPut a candle on a plate.", year=2020, author="Ada"))
    index.add(
        "home", entry("+++\nlanguage = 'de'\n+++\n# Kerzen\n\nStell die Kerze auf einen Teller.", year=2024)
    )
    index.add("home", entry("# Soup\n\nLight a candle, then warm the soup.\n\n## A plate\n\nServe it."))
    index.add("home", entry("# Radio\n\nWhat to do and when."))
    return index


@pytest.mark.req("RAG-1")
def test_the_best_comes_first_and_a_title_counts_for_more(small: Index, entry: MakeEntry) -> None:
    assert titles(small, "candle") == ["Candles", "Soup"]
    scores = [hit.score for hit in search(small, "home", "a candle on a plate", 5)]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    # The same words in either text, and the first one would be first.
    small.add("home", entry("# Cups\n\nSaucers are below."))
    small.add("home", entry("# Saucers\n\nCups are below."))
    assert titles(small, "saucers") == ["Saucers", "Cups"]


@pytest.mark.req("RAG-1")
def test_a_passage_tells_where_it_comes_from(small: Index) -> None:
    [hit] = search(small, "home", "kerze", 5)
    cid = hit.metadata["doc_cid"]
    assert hit.metadata == {
        "doc_cid": cid, "doc_title": "Kerzen", "page": None, "chunk_id": f"{cid}#0", "chunk_index": 0,
        "language": "de", "heading": None, "path": None, "date": None, "sources": [],
    }  # fmt: skip
    assert hit.text == "# Kerzen\n\nStell die Kerze auf einen Teller."
    assert search(small, "home", "candles", 1)[0].metadata["author"] == "Ada"


@pytest.mark.req("RAG-2")
def test_a_query_of_stop_words_still_finds(small: Index) -> None:
    assert titles(small, "what to do when")[0] == "Radio"


@pytest.mark.req("RAG-2")
@pytest.mark.parametrize(
    "query", ['candle"', "candle*", "title:candle", "(candle", "candle NEAR(", "-candle ^", "NOT candle"]
)
def test_no_query_is_fts_syntax(small: Index, query: str) -> None:
    assert titles(small, query)[0] == "Candles"


@pytest.mark.req("RAG-2")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.text(min_size=1))
def test_any_query_is_answered_or_refused(small: Index, query: str) -> None:
    try:
        search(small, "home", query, 5)
    except HearthNetError as error:
        refused = error.code
    else:
        return
    assert refused == "bad_request"


def test_the_longest_query_is_answered(small: Index) -> None:
    query = " ".join(f"{a}{b}{c}" for a, b, c in itertools.product("bcdfghjklm", repeat=3))
    assert titles(small, f"{query} candle"[-4000:])[0] == "Candles"


@pytest.mark.req("RAG-5")
@pytest.mark.parametrize("query", ["", " ", "?!"])
def test_a_query_without_a_word_is_refused(small: Index, query: str) -> None:
    with pytest.raises(HearthNetError, match="no word in it") as caught:
        search(small, "home", query, 5)
    assert caught.value.code == "bad_request"


def test_words_that_are_nowhere_find_nothing(small: Index) -> None:
    assert titles(small, "submarine") == []


@pytest.mark.req("RAG-5")
def test_a_corpus_that_does_not_exist_names_the_nearest(small: Index) -> None:
    with pytest.raises(HearthNetError, match=r"no corpus 'hom' here$") as caught:
        search(small, "hom", "candle", 5)
    assert (caught.value.code, caught.value.details["nearest"]) == ("not_found", [])
    refused = no_such_corpus("hom", ["atlas", "birds", "cellar", "home"])
    assert refused.message == "no corpus 'hom' here; did you mean home?"
    assert refused.details["nearest"] == ["home"]
    assert no_such_corpus("x", []).message == "no corpus 'x' here"


@pytest.mark.req("RAG-1")
def test_one_document_does_not_crowd_out_the_others(index: Index, entry: MakeEntry) -> None:
    index.add("home", entry("# Barrel barrel barrel\n\n" + PARAGRAPH * 400))
    assert len(titles(index, "barrel", 5)) == 5
    for number in range(2):
        index.add(
            "home", entry(f"# Note {number}\n\nA barrel stands in a long and quiet garden {'of old ' * 90}")
        )
    found = titles(index, "barrel", 4)
    assert found.count("Barrel barrel barrel") == 2
    assert len(titles(index, "barrel", 5)) == 5
    scores = [hit.score for hit in search(index, "home", "barrel", 5)]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.req("RAG-1")
def test_passages_carry_the_headings_above_them(index: Index, entry: MakeEntry) -> None:
    index.add(
        "home",
        entry("# Barrels\n\n" + PARAGRAPH * 40 + "## Lids\n\nOak lasts.\n\n" + PARAGRAPH * 40),
    )
    [hit] = search(index, "home", "oak", 1)
    assert hit.metadata["heading"] == "Lids"
    assert hit.metadata["chunk_id"].endswith("#1")


@pytest.mark.req("RAG-1")
def test_filters(small: Index) -> None:
    assert titles(small, "candle kerze", wanted=Filter(language="DE")) == ["Kerzen"]
    assert titles(small, "candle kerze", wanted=Filter(min_year=2020)) == ["Kerzen", "Candles"]
    assert titles(small, "candle kerze", wanted=Filter(min_year=2021)) == ["Kerzen"]
    assert titles(small, "candle", wanted=Filter(language="de", min_year=2021)) == []
    [soup] = [hit for hit in search(small, "home", "candle", 5) if hit.metadata["doc_title"] == "Soup"]
    assert titles(small, "candle", wanted=Filter(doc_cid=soup.metadata["doc_cid"])) == ["Soup"]


def test_other_corpora_do_not_change_the_scores(small: Index, entry: MakeEntry) -> None:
    before = [hit.score for hit in search(small, "home", "candle plate", 5)]
    for number in range(20):
        small.add("work", entry(f"candle {number}"))
    assert [hit.score for hit in search(small, "home", "candle plate", 5)] == before


@pytest.mark.req("RAG-1")
def test_a_word_of_most_passages_still_counts(index: Index, entry: MakeEntry) -> None:
    """FTS5 by itself takes it for worthless."""
    for number in range(9):
        index.add("home", entry(f"Barrel number{number} stands in the yard near the old wall"))
    index.add("home", entry("Barrel, barrel and again a barrel: nothing else here"))
    assert search(index, "home", "barrel", 1)[0].text.startswith("Barrel, barrel")
    scores = [hit.score for hit in search(index, "home", "barrel", 5)]
    assert scores[0] > scores[1] * 1.1


@pytest.mark.req("RAG-1")
def test_who_asks_in_the_words_of_a_heading_means_its_section(index: Index, entry: MakeEntry) -> None:
    index.add("home", entry("# Yard\n\n" + "How to store the water, water storing, stored water. " * 30))
    index.add("home", entry("# House\n\n## Storing water\n\nIn clean barrels below the stairs."))
    assert search(index, "home", "storing water", 2)[0].metadata["doc_title"] == "House"


def test_of_what_is_removed_no_row_is_left(small: Index) -> None:
    small.remove("home", small.documents("home"))
    with small.reading() as connection:
        for table in ("passages_1", "chunks", "words", "documents"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0
