"""Pages without text, in words."""

from __future__ import annotations

import pytest

from hearthnet.cli.commands.ingest import without_text


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], ""),
        ([(4, 4)], "page 4 holds no text (scanned?)"),
        ([(3, 5)], "pages 3-5 hold no text (scanned?)"),
        ([(3, 5), (9, 9)], "pages 3-5, 9 hold no text (scanned?)"),
        ([(n, n) for n in range(1, 20, 2)], "pages 1, 3, 5, 7, 9, 11, 13, 15, ... hold no text (scanned?)"),
    ],
)
def test_pages_in_words(runs: list[tuple[int, int]], words: str) -> None:
    shown = [{"first": first, "last": last} for first, last in runs]
    assert without_text({"pages_without_text": shown}) == words


def test_a_document_without_the_member_gets_no_note() -> None:
    assert without_text({}) == ""
