"""Passages in results of searches."""

from __future__ import annotations

from hearthnet.cli.output.citations import Passage, passages, sources


def chunk(cid: str, title: str, **more: object) -> dict[str, object]:
    """A passage as a search returns it."""
    return {
        "rank": 1,
        "score": 1.0,
        "text": "words",
        "metadata": {"doc_cid": cid, "doc_title": title, **more},
    }


def test_passages_are_found_in_any_result_that_has_them_and_in_no_other() -> None:
    content = {
        "chunks": [chunk("c1", "Rain", date="2026-01-01", sources=["WHO"]), {"text": "no metadata"}, 7]
    }
    assert passages(content) == [Passage("c1", "Rain", "", "words", "2026-01-01", ("WHO",))]
    for other in ({}, {"chunks": 3}, "text", None, [1]):
        assert passages(other) == []


def test_each_document_is_named_once_in_the_order_of_finding() -> None:
    found = passages(
        {"chunks": [chunk("c2", "B"), chunk("c1", "A", sources="no list"), chunk("c2", "B"), chunk("", "")]}
    )
    assert [(one.title, one.sources) for one in sources(found)] == [("B", ()), ("A", ()), ("(untitled)", ())]
