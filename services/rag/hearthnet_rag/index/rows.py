"""A document as rows of the index: its passages, each with its stems."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from hearthnet.text import estimate_tokens
from hearthnet_rag.index.chunking import Passage, cut
from hearthnet_rag.readers.documents import Document
from hearthnet_rag.text.text_analysis import (
    COMPOUNDING,
    Analyser,
    Known,
    base_language,
    stem,
    surface_forms,
    words,
)

Columns = tuple[str, str, str, str]


class Row(msgspec.Struct, frozen=True):
    """One passage; `tokens` are estimated.

    `stems` has the stems of title, headings and text, and the words of title and headings as written.
    """

    heading: str | None
    page: int | None
    text: str
    tokens: int
    stems: Columns


def rows_of(document: Document, known: Known) -> Iterator[Row]:
    """Return the passages of `document`; `known` is the vocabulary of its corpus."""
    analyser = _analyser(document, known)
    passages = cut(document.body, document.headings)
    return (_row(document, passage, analyser) for passage in passages)


def _analyser(document: Document, known: Known) -> Analyser:
    """Return the analyser for the document, which also knows the document's own words.

    They serve to divide its compounds.
    """
    language = base_language(document.language)
    own = Counter(stem(word, language) for word in words(document.body) if language in COMPOUNDING)
    return Analyser(language, lambda part: own[part] + known(part))


def _row(document: Document, passage: Passage, analyser: Analyser) -> Row:
    path, text = passage.path, document.body[passage.start : passage.end]
    above = path[1:] if path[:1] == (document.title,) else path
    titles = (heading for heading in dict.fromkeys((*path, *passage.headings)) if heading != document.title)
    return Row(
        heading=" / ".join(above) or None,
        page=bisect_right(document.pages, passage.fresh) or None,
        text=text.strip(),
        tokens=estimate_tokens(text),
        stems=_columns(document.title, list(titles), text, analyser),
    )


def _columns(title: str, headings: Sequence[str], text: str, analyser: Analyser) -> Columns:
    return (
        analyser.text(title), analyser.text(" ".join(headings)), analyser.text(text),
        "\n".join(map(surface_forms, (title, *headings))),
    )  # fmt: skip
