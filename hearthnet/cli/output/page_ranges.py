"""Page ranges in words, for pages without text in `rag.ingest` and `rag.list_documents`."""

from __future__ import annotations

from typing import Any, Final

_MOST: Final = 8


def without_text(document: dict[str, Any]) -> str:
    """Return a note about pages of `document` that hold no text, empty if all hold some."""
    runs: list[dict[str, int]] = document.get("pages_without_text") or []
    if not runs:
        return ""
    named = ", ".join(_run(run["first"], run["last"]) for run in runs[:_MOST])
    more = ", ..." if len(runs) > _MOST else ""
    alone = len(runs) == 1 and runs[0]["first"] == runs[0]["last"]
    return (
        f"page {named} holds no text (scanned?)" if alone else f"pages {named}{more} hold no text (scanned?)"
    )


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
