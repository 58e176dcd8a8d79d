"""Sources of an answer: annotations of its message, or a list repeated in each chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hearthnet_llm.interface.content_parts import Citation
from hearthnet_llm.interface.frames import CitationEvent


class Citations:
    """The sources of one answer."""

    def __init__(self) -> None:
        self._annotated: dict[tuple[str, int | None], Citation] = {}
        self._listed: list[Any] = []

    def feed(self, said: Mapping[str, Any]) -> None:
        """Add the annotations of a delta or a message."""
        for one in said.get("annotations") or ():
            cited = one.get("url_citation") if isinstance(one, Mapping) else None
            if isinstance(cited, Mapping) and isinstance(cited.get("url"), str):
                start, end = _number(cited, "start_index"), _number(cited, "end_index")
                quoted = _text(cited, "content")
                found = Citation(
                    "web", quoted, title=_text(cited, "title"), url=cited["url"], start=start, end=end
                )
                self._annotated.setdefault((cited["url"], start), found)

    def beside(self, chunk: Mapping[str, Any]) -> None:
        """Record the list of sources: objects if there are any, else URLs. The last list counts."""
        listed = chunk.get("search_results") or chunk.get("citations")
        if isinstance(listed, list):
            self._listed = listed

    def finish(self) -> Iterator[CitationEvent]:
        """Yield each annotation once, then the list, whose items the text cites by number."""
        for citation in self._annotated.values():
            yield CitationEvent(citation)
        for index, one in enumerate(self._listed):
            source = {"url": one} if isinstance(one, str) else one
            if isinstance(source, Mapping) and isinstance(source.get("url"), str):
                yield CitationEvent(
                    Citation("web", title=_text(source, "title"), url=source["url"], index=index)
                )


def _text(source: Mapping[str, Any], name: str) -> str | None:
    value = source.get(name)
    return value if isinstance(value, str) else None


def _number(source: Mapping[str, Any], name: str) -> int | None:
    value = source.get(name)
    return value if isinstance(value, int) and value >= 0 else None
