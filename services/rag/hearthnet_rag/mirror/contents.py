"""The contents of a corpus as one home states them to another: records of documents, in pages. Pure.

A record has what a reader of the file needs to index it as its home does, and no more than passages show.

See: docs/rag.md#copies-of-a-corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet import HearthNetError
from hearthnet_rag.index.journal import Record
from hearthnet_rag.readers.documents import file_name

MAX_DOCUMENTS: Final = 5_000
MAX_BYTES: Final = 2 * 1024**3
"""Maximum of bytes of the files of one copy."""
MAX_COPIES: Final = 16
MAX_RECORD_BYTES: Final = 20 * 1024
"""Maximum of JSON of one record: the metadata of a document have at most 16 KiB."""
MAX_RECORDS_BYTES: Final = 16 * 1024**2
"""Maximum of JSON of all records of a corpus."""
PAGE_DOCUMENTS: Final = 100
PAGE_BYTES: Final = 256 * 1024
RANGE_BYTES: Final = 256 * 1024
"""Maximum of bytes of a file in one reply."""


class Page(NamedTuple):
    """Some of the records, and the place of the next page; None after the last one."""

    documents: list[dict[str, Any]]
    next: int | None


def record_of(record: Record) -> dict[str, Any]:
    """Return the record of a document for other homes; of a path only the name of the file."""
    metadata = dict(record.metadata)
    if path := metadata.get("path"):
        metadata["path"] = file_name(path)
    return {
        "doc_cid": record.doc_cid,
        "event_id": record.event_id,
        "media_type": record.media_type,
        "title": record.title,
        "language": record.language,
        "metadata": metadata,
    }


def to_record(corpus: str, document: dict[str, Any]) -> Record:
    """Return the ingestion by which a document of another home comes into `corpus`.

    Raises:
        HearthNetError: `bad_request` for a malformed record.
    """
    try:
        return msgspec.convert({**document, "corpus": corpus, "replaces": [], "renames": ""}, Record)
    except msgspec.ValidationError as error:
        raise HearthNetError("bad_request", f"a record of a document is malformed: {error}") from error


def page_at(documents: Sequence[dict[str, Any]], offset: int) -> Page:
    """Return the page of records that begins at `offset`, with at least one record if there is one."""
    size, end = 0, offset
    for document in documents[offset : offset + PAGE_DOCUMENTS]:
        size += len(msgspec.json.encode(document))
        if size > PAGE_BYTES and end > offset:
            break
        end += 1
    return Page(list(documents[offset:end]), end if end < len(documents) else None)


class Contents:
    """The records of a corpus as they arrive from its home, within the limits of a copy."""

    def __init__(self, count: int) -> None:
        """Expect `count` records.

        Raises:
            HearthNetError: `capacity_exceeded` for more than a copy may have.
        """
        if count > MAX_DOCUMENTS:
            raise _too_much(f"{count} documents, and a copy has at most {MAX_DOCUMENTS}")
        self._count = count
        self._bytes = 0
        self.documents: dict[str, dict[str, Any]] = {}

    def add(self, documents: Sequence[dict[str, Any]]) -> None:
        """Add a page.

        Raises:
            HearthNetError: `capacity_exceeded` for too much of it; `bad_request` for a page that adds nothing
                or has a document twice.
        """
        if not documents:
            raise HearthNetError("bad_request", "a page of documents is empty, and is not the last one")
        for document in documents:
            size = len(msgspec.json.encode(document))
            self._bytes += size
            if size > MAX_RECORD_BYTES or self._bytes > MAX_RECORDS_BYTES:
                raise _too_much(
                    f"records of more than {MAX_RECORD_BYTES} bytes, or {MAX_RECORDS_BYTES} in all"
                )
            if document["doc_cid"] in self.documents:
                raise HearthNetError("bad_request", "a document is in the corpus twice")
            self.documents[document["doc_cid"]] = document
        if len(self.documents) > self._count:
            raise _too_much("more documents than it said")


def _too_much(what: str) -> HearthNetError:
    return HearthNetError("capacity_exceeded", f"the corpus has {what}")
