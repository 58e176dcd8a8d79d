"""The owner's answers: which corpora are shared with the community, and copied. Blocks; thread-safe.

A corpus without an answer is private, as are all of a home that was made before there were answers. A file
that cannot be read counts as no answer. Answers about copies are in a file of their own, which an earlier
version of the program neither reads nor loses; it may still end the sharing, and with it the copies.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_rag.index.database import replace_file

FILE: Final = "sharing.json"
COPIES: Final = "copying.json"
_log = logging.getLogger(__name__)


class Sharing:
    """The answers of one folder, by the name of the corpus: true where it is shared, or copied."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._copies_file = folder / COPIES
        self._writing = threading.Lock()
        self._answers = _read(self._file)
        self._copies = _read(self._copies_file)

    def is_shared(self, corpus: str) -> bool:
        """Return whether the owner has shared `corpus`."""
        return self._answers.get(corpus, False)

    def unanswered(self, corpora: Collection[str]) -> list[str]:
        """Return those of `corpora` about which the owner has not decided."""
        return sorted(name for name in corpora if name not in self._answers)

    def may_copy(self, corpus: str) -> bool:
        """Return whether the owner lets other homes keep a copy of `corpus`."""
        return self.is_shared(corpus) and self._copies.get(corpus, False)

    def copied(self) -> list[str]:
        """Return the corpora of which other homes may keep a copy."""
        return sorted(filter(self.may_copy, self._copies))

    def ended(self) -> list[str]:
        """Return the corpora of which copies were allowed once, and were ended by the owner.

        One that got lost is not among them: its copies may be all that is left.
        """
        return sorted(
            name for name, copies in self._copies.items() if not (copies and self._answers.get(name, True))
        )

    def decide(self, corpus: str, *, shared: bool, copies: bool | None = None) -> None:
        """Record an answer, which is on disk when this returns.

        `copies` None leaves it as it is whether a shared corpus may be copied.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full.
        """
        with self._writing:
            may = shared and (self.may_copy(corpus) if copies is None else copies)
            # Ended first: a crash in between must leave less allowed, never more.
            if not may:
                self._end_copies(corpus)
            self._write({**self._answers, corpus: shared})
            if may:
                self._write_copies({**self._copies, corpus: True})

    def end_copies(self, corpus: str) -> None:
        """End the copies of `corpus`, which is gone; raises as `decide`."""
        with self._writing:
            self._end_copies(corpus)

    def _end_copies(self, corpus: str) -> None:
        if self._copies.get(corpus, False):
            self._write_copies({**self._copies, corpus: False})

    def keep(self, corpora: Collection[str], emptied: Collection[str] = ()) -> None:
        """Forget the answers about all but `corpora`: a later corpus of the same name is another one.

        Copies of those `emptied`, whose last document was removed, end. If the disk is full, the files follow
        with the next answer or start.
        """
        with self._writing:
            answers = {name: shared for name, shared in self._answers.items() if name in corpora}
            copies = {name: may and name not in emptied for name, may in self._copies.items()}
            try:
                if copies != self._copies:
                    self._copies = copies
                    self._write_copies(copies)
                if answers != self._answers:
                    self._answers = answers
                    self._write(answers)
            except HearthNetError as error:
                self._answers = answers
                _log.warning("%s is not up to date: %s", self._file, error)

    def _write(self, answers: dict[str, bool]) -> None:
        replace_file(self._file, msgspec.json.encode(answers, order="sorted"))
        self._answers = answers

    def _write_copies(self, copies: dict[str, bool]) -> None:
        replace_file(self._copies_file, msgspec.json.encode(copies, order="sorted"))
        self._copies = copies


def _read(file: Path) -> dict[str, bool]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, bool])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.error("cannot read %s, which counts as no answer: %s", file, error)
        return {}
