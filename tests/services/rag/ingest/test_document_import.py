"""The starter corpus: what each document must have, and how the corpus is kept as it is shipped."""

from __future__ import annotations

import contextlib
import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

from hearthnet.core.canonical_json import content_hash
from hearthnet_rag.index.index import Index
from hearthnet_rag.ingest.document_import import CORPUS, StarterFile, bring_up_to_date, starter_files, year_of
from hearthnet_rag.readers import read_document
from hearthnet_rag.search.search import search

FILES = {file.name: file for file in starter_files()}
FEWEST_WORDS = 300


@pytest.mark.req("RAG-9")
def test_there_are_sixty_or_more_with_titles_of_their_own() -> None:
    titles = {read_document(file.data).title for file in FILES.values()}
    assert len(titles) == len(FILES) >= 60


@pytest.mark.req("RAG-9")
@pytest.mark.parametrize("name", FILES)
def test_a_document_has_text_a_title_a_date_and_sources_that_can_be_checked(name: str) -> None:
    facts = tomllib.loads(FILES[name].data.decode().split("+++\n")[1])
    document = read_document(FILES[name].data, name=name)
    assert len(re.findall(r"[A-Za-z]+", document.body)) >= FEWEST_WORDS
    assert document.title == facts["title"] == document.headings[0].text
    assert document.language == "en"
    assert facts["date"] >= date(2026, 1, 1)
    assert len(document.sources) >= 2
    assert all(re.search(r"https://[^\s/]+\.[a-z]+(/|$)", source) for source in document.sources)


@pytest.mark.req("RAG-9")
@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("aid-")])
def test_first_aid_names_the_emergency_number_and_does_not_pose_as_a_doctor(name: str) -> None:
    body = read_document(FILES[name].data).body
    assert "112" in body
    assert "911" in body
    assert re.search(r"does not replace (a|one)\b", body)


@pytest.mark.req("RAG-8")
def test_a_start_with_the_same_corpus_reads_nothing(tmp_path: Path) -> None:
    with contextlib.closing(Index(tmp_path)) as index:
        stages: list[tuple[str, int, int]] = []
        assert bring_up_to_date(index, starter_files(), lambda *step: stages.append(step)) == len(FILES)
        assert stages[0] == ("reading the starter corpus", 0, len(FILES))
        assert stages[-1] == ("reading the starter corpus", len(FILES), len(FILES))
        stages.clear()
        assert bring_up_to_date(index, starter_files(), lambda *step: stages.append(step)) == 0
        assert stages == []


@pytest.mark.req("RAG-8")
def test_an_upgrade_replaces_what_changed_and_drops_what_is_gone(tmp_path: Path) -> None:
    def shipped(**texts: str) -> list[StarterFile]:
        return [
            StarterFile(f"{name}.md", content_hash(text.encode()), text.encode())
            for name, text in texts.items()
        ]

    with contextlib.closing(Index(tmp_path)) as index:
        bring_up_to_date(index, shipped(water="# Water\nboil it", radio="# Radio\nlisten"), print)
        changed = shipped(water="# Water\nfilter it")
        assert bring_up_to_date(index, changed, print) == 1
        assert index.documents(CORPUS) == [changed[0].doc_cid]
        assert [hit.text for hit in search(index, CORPUS, "boil filter listen", 5)] == ["# Water\nfilter it"]


@pytest.mark.req("RAG-3")
def test_passages_of_the_corpus_name_file_date_and_sources(tmp_path: Path) -> None:
    with contextlib.closing(Index(tmp_path)) as index:
        bring_up_to_date(index, [FILES["water-boiling.md"]], print)
        [hit] = search(index, CORPUS, "boil", 1)
    assert hit.metadata["path"] == "water-boiling.md"
    assert hit.metadata["date"] == "2026-11-21"
    assert any("https://www.cdc.gov/" in source for source in hit.metadata["sources"])
    assert hit.metadata["language"] == "en"


def test_the_year_of_a_date() -> None:
    dates = ("2026-11-21", "21.11.2026", "1987", "soon", "20261", "32026", None)
    assert [year_of(date) for date in dates] == [2026, 2026, 1987, None, None, None, None]
