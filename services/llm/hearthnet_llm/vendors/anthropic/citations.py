"""Citations of Anthropic; each kind has fields of its own."""

from __future__ import annotations

from typing import Final

from hearthnet_llm.interface.content_parts import Citation
from hearthnet_llm.vendors.json_access import refuse, text
from hearthnet_llm.vendors.wire import Json

_COMMON: Final = {"quoted": "cited_text", "file_id": "file_id"}
_DOCUMENT: Final = {**_COMMON, "index": "document_index", "title": "document_title"}
_KINDS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "chars": ("char_location", {**_DOCUMENT, "start": "start_char_index", "end": "end_char_index"}),
    "pages": ("page_location", {**_DOCUMENT, "start": "start_page_number", "end": "end_page_number"}),
    "blocks": (
        "content_block_location",
        {**_DOCUMENT, "start": "start_block_index", "end": "end_block_index"},
    ),
    "web": (
        "web_search_result_location",
        {**_COMMON, "title": "title", "url": "url", "reference": "encrypted_index"},
    ),
    "search_result": (
        "search_result_location",
        {
            **_COMMON,
            "title": "title",
            "url": "source",
            "index": "search_result_index",
            "start": "start_block_index",
            "end": "end_block_index",
        },
    ),
}
_TITLES: Final = ("title", "document_title")
"""Fields that are null if unknown, and never absent."""
_OPTIONAL: Final = ("file_id", *_TITLES)
_BY_TYPE: Final = {kind: (ours, fields) for ours, (kind, fields) in _KINDS.items()}


def write(citations: list[Citation]) -> list[Json]:
    """Return the native citations.

    Those of a kind that this vendor lacks, or without a field that it requires, are dropped.
    """
    made = [_write(citation) for citation in citations if citation.kind in _KINDS]
    return [native for native in made if _is_complete(native)]


def _is_complete(native: Json) -> bool:
    _, fields = _BY_TYPE[native["type"]]
    return all(name in native or name in _OPTIONAL for name in fields.values())


def _write(citation: Citation) -> Json:
    kind, fields = _KINDS[citation.kind]
    given = {native: getattr(citation, ours) for ours, native in fields.items()}
    return {
        "type": kind,
        **{name: value for name, value in given.items() if value is not None or name in _TITLES},
    }


def read(native: Json) -> Citation:
    """Return the citation of a text block or a citations_delta."""
    kind = text(native.get("type"), "citations.type")
    if kind not in _BY_TYPE:
        refuse("citations.type", f"no citation {kind!r} is known")
    ours, fields = _BY_TYPE[kind]
    return Citation(kind=ours, **{name: native.get(its) for name, its in fields.items()})  # type: ignore[arg-type]
