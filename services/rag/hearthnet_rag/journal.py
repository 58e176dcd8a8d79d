"""What was ingested, one JSON line a document, so that a damaged index can be rebuilt from the stored blobs.

A line is written before the document is added, so no document that was confirmed is ever missing; one that
is named here but was never added is added by the next rebuild, as its sender wished. A torn last line, left
by a crash, is skipped. Corpus `system` has no lines: it comes with the program.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet_rag.database import as_wire_error

FILE: Final = "documents.jsonl"


class Record(msgspec.Struct, frozen=True):
    """An ingestion as it was asked for, and the id that it was given."""

    corpus: str
    doc_cid: str
    event_id: str
    media_type: str
    title: str | None = None
    language: str | None = None
    metadata: dict[str, Any] = {}


class Journal:
    """The journal of one folder. Calls block, and may come from any thread."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._writing = threading.Lock()

    def append(self, record: Record) -> None:
        """Adds a line, on the disk when this returns; `capacity_exceeded` where the disk is full."""
        try:
            with self._writing:
                self._append(msgspec.json.encode(record) + b"\n")
        except OSError as error:
            raise as_wire_error(error, self._file) from error

    def _append(self, line: bytes) -> None:
        with self._file.open("ab") as file:
            torn = file.tell() > 0 and not self._ends_whole()
            file.write(b"\n" + line if torn else line)
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> Iterator[Record]:
        """What was asked for, in order, each (corpus, doc_cid) once."""
        seen: set[tuple[str, str]] = set()
        for line in self._lines():
            try:
                record = msgspec.json.decode(line, type=Record)
            except msgspec.DecodeError:
                continue
            if (record.corpus, record.doc_cid) not in seen:
                seen.add((record.corpus, record.doc_cid))
                yield record

    def _lines(self) -> list[bytes]:
        return self._file.read_bytes().splitlines() if self._file.exists() else []

    def _ends_whole(self) -> bool:
        with self._file.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
