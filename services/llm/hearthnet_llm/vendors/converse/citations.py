"""Citations of Converse, both ways: a location of one of five kinds, and words of the source."""

from __future__ import annotations

from typing import Final

from hearthnet_llm.parts import Citation
from hearthnet_llm.vendors.reading import fields, objects, without_nones
from hearthnet_llm.vendors.wire import Json

_PLACES: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "chars": ("documentChar", {"index": "documentIndex", "start": "start", "end": "end"}),
    "pages": ("documentPage", {"index": "documentIndex", "start": "start", "end": "end"}),
    "blocks": ("documentChunk", {"index": "documentIndex", "start": "start", "end": "end"}),
    "web": ("web", {"url": "url"}),
    "search_result": (
        "searchResultLocation",
        {"index": "searchResultIndex", "start": "start", "end": "end"},
    ),
}


def write(citations: list[Citation]) -> list[Json]:
    """The native citations, without those of a kind that only other vendors have."""
    return [_write(citation) for citation in citations if citation.kind in _PLACES]


def _write(citation: Citation) -> Json:
    name, names = _PLACES[citation.kind]
    place = without_nones(**{its: getattr(citation, ours) for ours, its in names.items()})
    quoted = None if citation.quoted is None else [{"text": citation.quoted}]
    source = citation.url if citation.kind != "web" else None
    return {
        **without_nones(title=citation.title, source=source, sourceContent=quoted),
        "location": {name: place},
    }


def read(native: Json) -> Citation | None:
    """The citation of a block or a delta; None for one of a kind that is not known."""
    location = fields(native.get("location") or {}, "location")
    for kind, (name, names) in _PLACES.items():
        if name in location:
            place = fields(location[name], f"location.{name}")
            quoted = [
                str(one.get("text") or "") for one in objects(native.get("sourceContent"), "sourceContent")
            ]
            found = {ours: place.get(its) for ours, its in names.items()}
            return Citation(
                kind=kind,  # type: ignore[arg-type]
                title=native.get("title"),
                quoted="".join(quoted) if quoted else None,
                **{"url": native.get("source"), **found},
            )
    return None
