"""Citations of a grounded answer of Gemini."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hearthnet_llm.interface.content_parts import Citation


def of(candidate: Mapping[str, Any]) -> Iterator[Citation]:
    """Yield the citations of a candidate: the sources of each piece of the answer.

    Without pieces, yield the sources alone.
    """
    grounding = candidate.get("groundingMetadata") or {}
    chunks = grounding.get("groundingChunks") or []
    supports = grounding.get("groundingSupports") or []
    for support in supports:
        segment = support.get("segment") or {}
        for index in support.get("groundingChunkIndices") or ():
            if isinstance(index, int) and 0 <= index < len(chunks):
                yield _source(chunks[index], index, segment)
    if not supports:
        for index, chunk in enumerate(chunks):
            yield _source(chunk, index, {})
    metadata = candidate.get("citationMetadata") or {}
    for source in metadata.get("citationSources") or metadata.get("citations") or ():  # Vertex AI: citations
        yield Citation(
            "web",
            title=source.get("title"),
            url=source.get("uri"),
            start=source.get("startIndex"),
            end=source.get("endIndex"),
        )


def _source(chunk: Mapping[str, Any], index: int, segment: Mapping[str, Any]) -> Citation:
    """Return one source; `start` and `end` count bytes of the answer that it supports."""
    retrieved = chunk.get("retrievedContext")
    place = retrieved or chunk.get("web") or chunk.get("maps") or chunk.get("image") or {}
    return Citation(
        kind="file" if retrieved else "web",
        quoted=place.get("text"),
        said=segment.get("text"),
        title=place.get("title") or place.get("fileSearchStore"),
        url=place.get("uri") or place.get("sourceUri"),
        index=index,
        start=segment.get("startIndex"),
        end=segment.get("endIndex"),
    )
