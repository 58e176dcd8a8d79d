"""Assembly of a text block by block, with its headings; bounded in length."""

from __future__ import annotations

from typing import Final

from hearthnet_rag.readers.documents import MOST_HEADINGS, Document, Heading, rejected, title_of
from hearthnet_rag.readers.plain import first_line

LARGEST_TEXT: Final = 32 * 1024 * 1024
"""Characters of text in one document, in any format."""


class Builder:
    """The text of one document.

    Blocks are separated by empty lines; headings are written as in Markdown.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._parts: list[str] = []
        self._length = 0
        self.headings: list[Heading] = []

    def heading(self, level: int, text: str) -> None:
        """Add a heading of level 1 or deeper; a blank one is ignored."""
        plain = " ".join(text.split())
        if not plain:
            return
        if len(self.headings) >= MOST_HEADINGS:
            raise rejected(self._name, f"has more than {MOST_HEADINGS} headings; split it")
        depth = min(level, 6)
        self.headings.append(Heading(depth, plain, self._length))
        self.block(f"{'#' * depth} {plain}")

    def block(self, text: str) -> None:
        """Add a paragraph or other block; a blank one is ignored."""
        if not text.strip():
            return
        self._length += len(text) + 2
        if self._length > LARGEST_TEXT:
            raise rejected(self._name, f"has more than {LARGEST_TEXT} characters of text; split it",
                          limit=LARGEST_TEXT)  # fmt: skip
        self._parts.append(text)

    def finish(
        self,
        media_type: str,
        titles: tuple[str, ...] = (),
        language: str | None = None,
        date: str | None = None,
    ) -> Document:
        """Return the document, titled with the first usable one of `titles` or its first heading.

        Raises:
            HearthNetError: `bad_request` if no block was added.
        """
        body = "\n\n".join(self._parts)
        if not body:
            raise rejected(self._name, "has no text in it")
        heading = self.headings[0].text if self.headings else ""
        return Document(
            title=title_of(self._name, *titles, heading, first_line(body)),
            body=body,
            language=language,
            date=date,
            headings=tuple(self.headings),
            media_type=media_type,
        )
