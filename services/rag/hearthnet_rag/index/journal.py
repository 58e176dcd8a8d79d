"""Journal of ingestions and removals, one JSON line each.

A damaged index is rebuilt from it and the stored blobs. A line is written before its document is added or
removed, so no confirmed document is ever missing and no removed one returns. An operation in the journal that
was not carried out is completed at the next start. A torn last line, left by a crash, is skipped. Corpus
`system` has no lines, because it is part of the program.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet_rag.index.database import as_wire_error, replace_file

FILE: Final = "documents.jsonl"


Key = tuple[str, str]
"""A corpus, and the CID of a document in it."""


class Record(msgspec.Struct, frozen=True):
    """A requested ingestion, and the id that it was given.

    `replaces` lists the older versions that it replaces; `removed` marks the end of a document. A line with
    `renames` is no document: all documents of the corpus `renames` are in `corpus` from there on.
    """

    corpus: str
    doc_cid: str
    event_id: str
    media_type: str
    title: str | None = None
    language: str | None = None
    metadata: dict[str, Any] = {}
    replaces: list[str] = []
    removed: bool = False
    renames: str = ""

    @property
    def key(self) -> Key:
        """Identity of the document."""
        return self.corpus, self.doc_cid


class JournalState(NamedTuple):
    """Result of all lines: existing documents in order, and removed ones.

    Each removed document maps to the document that replaced it, or None.
    """

    present: dict[Key, Record]
    gone: dict[Key, Key | None]


class Journal:
    """The journal of one folder. Calls block, and may come from any thread."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._writing = threading.Lock()
        self.changes = 0
        """Grows with each change of this process."""

    def append(self, record: Record) -> None:
        """Append a line, which is on disk when this returns.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full.
        """
        try:
            with self._writing:
                self.changes += 1
                self._append(msgspec.json.encode(record) + b"\n")
        except OSError as error:
            raise as_wire_error(error, self._file) from error

    def _append(self, line: bytes) -> None:
        with self._file.open("ab") as file:
            torn = file.tell() > 0 and not self._ends_whole()
            file.write(b"\n" + line if torn else line)
            file.flush()
            os.fsync(file.fileno())

    def forget(self, corpus: str, doc_cids: Collection[str]) -> None:
        """Remove all lines about these documents of `corpus`, as if they had never been there.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full.
        """
        with self._writing:
            lines = self._lines()
            kept = [line for line in lines if not _is_about(line, corpus, doc_cids)]
            if len(kept) < len(lines):
                self.changes += 1
                replace_file(self._file, b"".join(line + b"\n" for line in kept))

    def state(self) -> JournalState:
        """Return the documents that should exist, and those that should not."""
        state = JournalState({}, {})
        for line in self._lines():
            try:
                _apply(state, msgspec.json.decode(line, type=Record))
            except msgspec.DecodeError:
                continue
        return state

    def _lines(self) -> list[bytes]:
        return self._file.read_bytes().splitlines() if self._file.exists() else []

    def _ends_whole(self) -> bool:
        with self._file.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _is_about(line: bytes, corpus: str, doc_cids: Collection[str]) -> bool:
    try:
        record = msgspec.json.decode(line, type=Record)
    except msgspec.DecodeError:
        return False
    return record.corpus == corpus and record.doc_cid in doc_cids


def _apply(state: JournalState, record: Record) -> None:
    if record.renames:
        for key in [key for key in state.present if key[0] == record.renames]:
            moved = msgspec.structs.replace(state.present.pop(key), corpus=record.corpus)
            state.present[moved.key] = moved
            state.gone.pop(moved.key, None)
            state.gone[key] = moved.key
        return
    if record.removed:
        state.present.pop(record.key, None)
        state.gone[record.key] = None
        return
    state.present.setdefault(record.key, record)
    state.gone.pop(record.key, None)
    for doc_cid in record.replaces:
        old = record.corpus, doc_cid
        state.present.pop(old, None)
        state.gone[old] = record.key
