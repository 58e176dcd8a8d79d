"""What the index knows of the words of a corpus, and what search makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet_rag.index.index import Index
from hearthnet_rag.search import search as search_module
from hearthnet_rag.search.ranking import Candidate
from hearthnet_rag.search.search import Filter, search
from tests.services.rag.conftest import MakeEntry


def vocabulary(index: Index) -> dict[str, int]:
    with index.reading() as connection:
        return {
            row["stem"]: row["passages"] for row in connection.execute("SELECT stem, passages FROM words")
        }


def german(text: str) -> str:
    return f"+++\nlanguage = 'de'\n+++\n{text}"


@pytest.mark.req("RAG-51")
def test_words_are_counted_by_passage_and_forgotten_with_it(index: Index, entry: MakeEntry) -> None:
    kept, gone = entry("# Soup\n\nsoup, soup and bread"), entry("# Bread\n\nbread for Ada")
    index.add("home", kept)
    before = vocabulary(index)
    assert (before["soup"], before["bread"], before["0soup"]) == (1, 1, 1)
    index.add("home", gone)
    assert vocabulary(index)["bread"] == 2
    index.remove("home", [gone.doc_cid])
    assert vocabulary(index) == before


@pytest.mark.req("RAG-51")
def test_a_compound_is_found_by_its_parts_and_by_its_compound_parts(index: Index, entry: MakeEntry) -> None:
    index.add("home", entry(german("# Schutz\n\nDie Regeln der Firewall stehen hier.")))
    index.add("home", entry(german("# Start\n\nFirewallregeln werden beim Start geladen.")))
    index.add("home", entry(german("# Küche\n\nDie Suppe ist warm.")))

    def found(query: str) -> set[str]:
        return {hit.metadata["doc_title"] for hit in search(index, "home", query, 5)}

    assert found("Regel") == found("FIREWALL") == found("Firewallregel") == {"Schutz", "Start"}
    assert found("Kueche") == found("KÜCHEN") == {"Küche"}


@pytest.mark.req("RAG-51")
def test_a_corpus_of_two_languages_is_asked_in_either(index: Index, entry: MakeEntry) -> None:
    index.add("home", entry(german("# Brandschutz\n\nKerzen nie allein lassen.")))
    index.add("home", entry("# Fire\n\nNever leave candles alone."))
    index.add("home", entry("+++\nlanguage = 'fr'\n+++\n# Feu\n\nNe laissez jamais des bougies seules."))

    def first(query: str, wanted: Filter | None = None) -> list[str]:
        return [hit.metadata["doc_title"] for hit in search(index, "home", query, 5, wanted or Filter())]

    assert first("Kerze") == ["Brandschutz"]
    assert first("candle") == ["Fire"]
    assert first("bougie") == ["Feu"]
    assert first("bougie candle Kerze", Filter(language="fr")) == ["Feu"]


@pytest.mark.req("RAG-52")
def test_passages_without_a_rare_word_are_not_ranked_and_the_order_stays(
    index: Index, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        rare = "lighthouse " * (number % 3) if number < 12 else ""
        index.add(
            "home", entry(f"# Note {number}\n\nharbour {'boat ' * (number % 5)} {rare} {'sea ' * number}")
        )
    ranked: list[int] = []
    candidates = search_module._candidates

    def counted(*given: Any) -> list[Candidate]:
        found = candidates(*given)
        ranked.append(len(found))
        return found

    monkeypatch.setattr(search_module, "_candidates", counted)
    query = "lighthouse boat harbour"
    everything = search(index, "home", query, 5)
    monkeypatch.setattr(search_module, "_ENOUGH", 1)
    monkeypatch.setattr(search_module, "_FEWEST", 1)
    pruned = search(index, "home", query, 5)
    assert ranked == [30, 8], "all that have one of the words, then those with the rare one"
    assert [hit.metadata["doc_title"] for hit in pruned] == [hit.metadata["doc_title"] for hit in everything]
    assert [hit.score for hit in pruned] == pytest.approx([hit.score for hit in everything], rel=1e-6)
