"""The owner's answers: which corpora are shared with the community. Blocks; thread-safe.

A corpus without an answer is private, as are all of a home that was made before there were answers. A file
that cannot be read counts as no answer.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from hearthnet import HearthNetError
from hearthnet_rag.index.database import as_wire_error

FILE: Final = "sharing.json"
_log = logging.getLogger(__name__)


class Sharing:
    """The answers of one folder, by the name of the corpus: true where it is shared."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._writing = threading.Lock()
        self._answers = _read(self._file)

    def is_shared(self, corpus: str) -> bool:
        """Return whether the owner has shared `corpus`."""
        return self._answers.get(corpus, False)

    def unanswered(self, corpora: Collection[str]) -> list[str]:
        """Return those of `corpora` about which the owner has not decided."""
        return sorted(name for name in corpora if name not in self._answers)

    def decide(self, corpus: str, *, shared: bool) -> None:
        """Record an answer, which is on disk when this returns.

        Raises:
            HearthNetError: `capacity_exceeded` if the disk is full.
        """
        with self._writing:
            self._write({**self._answers, corpus: shared})

    def keep(self, corpora: Collection[str]) -> None:
        """Forget the answers about all but `corpora`: a later corpus of the same name is another one.

        If the disk is full, the file follows with the next answer or start.
        """
        with self._writing:
            answers = {name: shared for name, shared in self._answers.items() if name in corpora}
            if answers != self._answers:
                self._answers = answers
                try:
                    self._write(answers)
                except HearthNetError as error:
                    _log.warning("%s is not up to date: %s", self._file, error)

    def _write(self, answers: dict[str, bool]) -> None:
        beside = self._file.with_suffix(".new")
        try:
            with beside.open("wb") as file:
                file.write(msgspec.json.encode(answers, order="sorted"))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._file)
            folder = os.open(self._file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise as_wire_error(error, self._file) from error
        self._answers = answers


def _read(file: Path) -> dict[str, bool]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, bool])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.error("cannot read %s, all corpora are private: %s", file, error)
        return {}
