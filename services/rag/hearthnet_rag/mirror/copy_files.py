"""The copies that this home keeps, one file each, replaced in one step. Blocks.

A file has the version that answers and its documents: what else is in the index under the key of the copy is
on its way in or out.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.core import content_hash
from hearthnet_rag.index.database import replace_file
from hearthnet_rag.ownership import copy_key

_log = logging.getLogger(__name__)
FOLDER: Final = "copies"
_NAME_CHARACTERS: Final = 32


class KeptCopy(msgspec.Struct, frozen=True):
    """The copy of `corpus` of `home`, as of the time `as_of` (ms since 1970) of its home's `statement`.

    Without a statement, no version is here yet. `documents` are the records that the statement covers;
    `unreadable` are CIDs of them that could not be read here. `ending`: all of it is being deleted.
    """

    home: str
    corpus: str
    statement: dict[str, Any] | None = None
    version: str = ""
    as_of: int = 0
    documents: tuple[dict[str, Any], ...] = ()
    unreadable: tuple[str, ...] = ()
    size_bytes: int = 0
    ending: bool = False

    @property
    def key(self) -> str:
        """The corpus in the index."""
        return copy_key(self.corpus, self.home)

    @property
    def holder(self) -> str:
        """The holder of its files, which is no principal."""
        return f"copy:{self.home}/{self.corpus}"

    @property
    def answers(self) -> bool:
        """Whether a version is here to be searched."""
        return self.statement is not None and not self.ending

    def cids(self) -> tuple[str, ...]:
        """Return the CIDs of the documents of the version."""
        return tuple(document["doc_cid"] for document in self.documents)


class CopyFiles:
    """The files of the copies of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def load(self) -> list[KeptCopy]:
        """Return all copies; a file that cannot be read is left out, and logged."""
        found = []
        for file in sorted(self._folder.glob("*.json")) if self._folder.is_dir() else ():
            try:
                found.append(msgspec.json.decode(file.read_bytes(), type=KeptCopy))
            except (OSError, ValueError) as error:
                _log.error("cannot read the copy in %s: %s", file, error)
        return found

    def save(self, copy: KeptCopy) -> None:
        """Write a copy, which is on disk when this returns.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        replace_file(self._file(copy), msgspec.json.encode(copy))

    def remove(self, copy: KeptCopy) -> None:
        """Remove the file of a copy."""
        self._file(copy).unlink(missing_ok=True)

    def _file(self, copy: KeptCopy) -> Path:
        name = content_hash(copy.key.encode()).removeprefix("blake3:")[:_NAME_CHARACTERS]
        return self._folder / f"{name}.json"
