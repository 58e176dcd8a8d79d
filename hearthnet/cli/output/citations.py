"""The passages in a tool's result, and their documents.

See: docs/rag.md#search.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a document; `document` identifies it: its hash, else its title."""

    document: str
    title: str
    heading: str
    text: str
    date: str
    sources: tuple[str, ...]

    @property
    def words(self) -> str:
        """The text without the title that it may begin with."""
        first, _, rest = self.text.partition("\n")
        return rest.lstrip("\n") if first.lstrip("# ").strip() == self.title else self.text


def is_search(content: Any) -> bool:
    """Return whether the result is one of a search, even an empty one."""
    return isinstance(content, dict) and isinstance(content.get("chunks"), list)


def passages(content: Any) -> list[Passage]:
    """Return the passages in the result of a search; none for any other result."""
    chunks = content.get("chunks") if isinstance(content, dict) else None
    found = chunks if isinstance(chunks, list) else []
    return [_passage(chunk, chunk["metadata"]) for chunk in found if _is_passage(chunk)]


def sources(found: Iterable[Passage]) -> list[Passage]:
    """Return one passage of each document, in the order in which they were found."""
    documents: dict[str, Passage] = {}
    for passage in found:
        documents.setdefault(passage.document, passage)
    return list(documents.values())


def _is_passage(chunk: Any) -> bool:
    return isinstance(chunk, dict) and isinstance(chunk.get("metadata"), dict)


def _passage(chunk: dict[str, Any], metadata: dict[str, Any]) -> Passage:
    title = _text(metadata, "doc_title") or "(untitled)"
    named = metadata.get("sources")
    return Passage(
        document=_text(metadata, "doc_cid") or title,
        title=title,
        heading=_text(metadata, "heading"),
        text=_text(chunk, "text"),
        date=_text(metadata, "date"),
        sources=tuple(str(source) for source in named) if isinstance(named, list) else (),
    )


def _text(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""
