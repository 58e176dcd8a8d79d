"""One reader a format: bytes in, a `Document` out. What is no text is read in another process (pool.py)."""

from __future__ import annotations

from collections.abc import Callable

from hearthnet_rag.documents import MARKDOWN, Document
from hearthnet_rag.readers import markdown, plain
from hearthnet_rag.readers.kinds import Kind, kind_of

Told = Callable[[str, int, int], None]
"""Takes a stage, how much of it is done, and how much there is."""


def read_document(data: bytes, media_type: str = MARKDOWN, name: str | None = None) -> Document:
    """The document in `data`, read here and now; the file name it came from is the last resort for its title.

    `bad_request` with one line that says why, where it cannot be read.
    """
    return read_as(kind_of(data, media_type, name), data, name, _nobody)


def read_as(kind: Kind, data: bytes, name: str | None, told: Told) -> Document:
    """The document in `data`, which is of that kind."""
    if kind == "markdown":
        return markdown.read(data, name)
    if kind == "plain":
        return plain.read(data, name)
    if kind == "html":
        from hearthnet_rag.readers import html

        return html.read(data, name)
    if kind == "pdf":
        from hearthnet_rag.readers import pdf

        return pdf.read(data, name, told)
    from hearthnet_rag.readers import packed

    return packed.read(data, name, told)


def _nobody(stage: str, current: int, total: int) -> None:
    """Nobody is told."""
