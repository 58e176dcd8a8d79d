"""One reader for each format: bytes to a `Document`.

What others sent is read in another process (pool.py).
"""

from __future__ import annotations

from collections.abc import Callable

from hearthnet_rag.readers import markdown, plain
from hearthnet_rag.readers.content_type import Kind, kind_of
from hearthnet_rag.readers.documents import MARKDOWN, Document

OnProgress = Callable[[str, int, int], None]
"""Receives the name of a stage, the amount done, and the total amount."""


def no_progress(stage: str, current: int, total: int) -> None:
    """Ignore progress."""


def read_document(
    data: bytes,
    media_type: str = MARKDOWN,
    name: str | None = None,
    on_progress: OnProgress = no_progress,
) -> Document:
    """Read the document in `data` in this process.

    `name`, the name of its file, is used as a title if there is no other.

    Raises:
        HearthNetError: `bad_request`, with the reason in one line, if it cannot be read.
    """
    return _read_as(kind_of(data, media_type, name), data, name, on_progress)


def _read_as(kind: Kind, data: bytes, name: str | None, on_progress: OnProgress) -> Document:
    """Read the document in `data`, which is of the given kind."""
    if kind == "markdown":
        return markdown.read(data, name)
    if kind == "plain":
        return plain.read(data, name)
    if kind == "html":
        from hearthnet_rag.readers import html

        return html.read(data, name)
    if kind == "pdf":
        from hearthnet_rag.readers import pdf

        return pdf.read(data, name, on_progress)
    from hearthnet_rag.readers import zip_documents

    return zip_documents.read(data, name, on_progress)
