"""Citations of Converse: a location of one of five kinds or none, and words of the source."""

from __future__ import annotations

from typing import Final

from hearthnet_llm.interface.content_parts import Citation
from hearthnet_llm.vendors.json_access import fields, objects, without_nones
from hearthnet_llm.vendors.wire import Json

_NOWHERE: Final = "file"
"""The kind of a citation that only names its source."""
_PLACES: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "chars": ("documentChar", {"index": "documentIndex", "start": "start", "end": "end"}),
    "pages": ("documentPage", {"index": "documentIndex", "start": "start", "end": "end"}),
    "blocks": ("documentChunk", {"index": "documentIndex", "start": "start", "end": "end"}),
    "web": ("web", {"url": "url", "reference": "domain"}),
    "search_result": (
        "searchResultLocation",
        {"index": "searchResultIndex", "start": "start", "end": "end"},
    ),
}


def write(citations: list[Citation]) -> list[Json]:
    """Return the native citations, without those of a kind that only other vendors have."""
    return [
        _write(citation)
        for citation in citations
        if citation.kind in _PLACES or (citation.kind == _NOWHERE and citation.file_id is None)
    ]


def _write(citation: Citation) -> Json:
    quoted = None if citation.quoted is None else [{"text": citation.quoted}]
    source = citation.url if citation.kind != "web" else None
    about = without_nones(title=citation.title, source=source, sourceContent=quoted)
    if citation.kind not in _PLACES:
        return about
    name, names = _PLACES[citation.kind]
    place = without_nones(**{its: getattr(citation, ours) for ours, its in names.items()})
    if str(place.get("domain", "")) not in (citation.url or place.get("domain", "")):
        del place["domain"]  # another vendor's reference
    return {**about, "location": {name: place}}


def read(native: Json) -> Citation | None:
    """Return the citation of a block or a delta, or None if its kind is unknown."""
    location = fields(native.get("location") or {}, "location")
    quoted = _quoted(native)
    if not location:
        return Citation(_NOWHERE, title=native.get("title"), quoted=quoted, url=native.get("source"))
    for kind, (name, names) in _PLACES.items():
        if name in location:
            place = fields(location[name], f"location.{name}")
            found = {ours: place.get(its) for ours, its in names.items()}
            return Citation(
                kind=kind,  # type: ignore[arg-type]
                title=native.get("title"),
                quoted=quoted,
                **{"url": native.get("source"), **found},
            )
    return None


def _quoted(native: Json) -> str | None:
    pieces = [str(one.get("text") or "") for one in objects(native.get("sourceContent"), "sourceContent")]
    return "".join(pieces) if pieces else None
