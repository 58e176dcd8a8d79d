"""The corpora of another person of the home than its owner, once that person is removed. Blocks; thread-safe.

See: docs/persons.md.
"""

from __future__ import annotations

from typing import Any

from hearthnet_rag.index.index import CorpusInfo
from hearthnet_rag.library import Library
from hearthnet_rag.ownership import name_of, person_of


class PersonCorpora:
    """The corpora of `person` in `library`."""

    def __init__(self, library: Library, person: str) -> None:
        self._library = library
        self._person = person

    def summary(self) -> dict[str, Any]:
        """Return number and size of the private corpora together, and each shared one by its name."""
        private = self._corpora(shared=False)
        return {
            "private": {
                "corpora": len(private),
                "docs": sum(one.docs for one in private),
                "size_bytes": sum(one.size_bytes for one in private),
            },
            "shared": [
                {"name": name_of(one.name), "docs": one.docs, "size_bytes": one.size_bytes}
                for one in self._corpora(shared=True)
            ],
        }

    def shared_documents(self) -> list[str]:
        """Return the CIDs of the documents in shared corpora."""
        return [cid for one in self._corpora(shared=True) for cid in self._library.index.documents(one.name)]

    def remove_private(self) -> int:
        """Remove the private corpora; return the number of their documents."""
        removed = 0
        for corpus in self._corpora(shared=False):
            for doc_cid in self._library.index.documents(corpus.name):
                self._library.remove(corpus.name, doc_cid)
                removed += 1
        return removed

    def hand_over(self, *, shared: bool) -> list[str]:
        """Make the shared corpora the owner's, and return their names there; as `Library.hand_over`."""
        return [self._library.hand_over(one.name, shared=shared) for one in self._corpora(shared=True)]

    def _corpora(self, *, shared: bool) -> list[CorpusInfo]:
        sharing = self._library.sharing
        return [
            one
            for one in self._library.index.corpora()
            if person_of(one.name) == self._person and sharing.is_shared(one.name) == shared
        ]
