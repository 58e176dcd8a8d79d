"""Whose a corpus is, and which one a caller means by a name.

The key of a corpus is its name where it is the owner's of the home, as all of an older home are, and
`NAME/corpus` where it is that of another person, the guest NAME. No guest's name and no corpus has a slash,
so two persons can each have a corpus of one name. Pure.

See: docs/rag.md#whose-a-corpus-is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection
from typing import Any, Final

from hearthnet import Call, HearthNetError
from hearthnet_rag.ingest.document_import import CORPUS as SYSTEM
from hearthnet_rag.search.search import no_such_corpus

OWNER: Final = ""
PERSONAL: Final = "personal"
_MAX_NAME: Final = 64
_PATH: Final = {"path": "/params/corpus"}


def key_of(person: str, corpus: str) -> str:
    """Return the key of the corpus that `person` calls so; `OWNER` is the owner of the home."""
    return f"{person}/{corpus}" if person else corpus


def person_of(key: str) -> str:
    """Return the person whose corpus it is."""
    return key.rpartition("/")[0]


def name_of(key: str) -> str:
    """Return the name of a corpus."""
    return key.rpartition("/")[2]


def copy_key(corpus: str, home: str) -> str:
    """Return the key under which a copy of `corpus` of another `home` is in the index; no name has an @."""
    return f"{corpus}@{home}"


def is_copy(key: str) -> bool:
    """Return whether `key` is that of a copy of another home's corpus."""
    return "@" in key


def free_name(key: str, taken: Collection[str]) -> str:
    """Return a name that is not `taken` for the corpus `key` of another person: its own, if possible."""
    person = "-" + re.sub("[^a-z0-9-]", "-", person_of(key).lower())
    suffixes = itertools.chain(("", person), (f"{person}-{number}" for number in itertools.count(2)))
    names = (name_of(key)[: _MAX_NAME - len(suffix)] + suffix for suffix in suffixes)
    return next(name for name in names if name not in taken)


class Corpora:
    """The corpora of the home of `node` by their `keys`, which may change.

    Every member may know of those that `is_shared` names.
    """

    def __init__(self, node: str, keys: Collection[str], is_shared: Callable[[str], bool]) -> None:
        self._node = node
        self._keys = keys
        self._is_shared = is_shared

    def find(self, call: Call[Any, Any], corpus: str) -> str | None:
        """Return the key of the corpus that the caller means, and may search; None if there is none.

        The caller's own comes first, then those of the owner that the caller is let into, then a shared one.
        """
        own = self._own(call, corpus)
        if own in self._keys:
            return own
        if corpus in self._keys and self._is_let_in(call, corpus):
            return corpus
        shared = (key for key in self._keys if name_of(key) == corpus and self._is_shared(key))
        return next(shared, None)

    def names(self, call: Call[Any, Any]) -> list[str]:
        """Return the names of all corpora that the caller may search."""
        return sorted({name for name in map(name_of, self._keys) if self.find(call, name) is not None})

    def searched(self, call: Call[Any, Any], corpus: str) -> str:
        """Return the key of the corpus that the caller means.

        Raises:
            HearthNetError: `not_found` if there is none that the caller may search.
        """
        key = self.find(call, corpus)
        if key is None:
            raise no_such_corpus(corpus, self.names(call))
        return key

    def changed(self, call: Call[Any, Any], corpus: str) -> str:
        """Return the key of the corpus to which the caller may add, and from which it may remove.

        Where there is none of this name, those of this home begin one; another home cannot.

        Raises:
            HearthNetError: `unauthorized` for a corpus that only another person changes; `not_found` as
                `searched`.
        """
        if corpus == SYSTEM:
            raise system_is_fixed()
        key = self.find(call, corpus) or self.begun(call, corpus) or self.searched(call, corpus)
        if person_of(key) and key != self._own(call, corpus):
            # Who means a corpus of their own by this name must not add to what everybody reads.
            raise HearthNetError(
                "unauthorized",
                f"corpus {corpus} is another person's; choose another name for your documents",
                details=_PATH,
            )
        return key

    def mine(self, call: Call[Any, Any], corpus: str) -> str:
        """Return the key of the corpus of which the caller alone decides about its readers.

        Raises:
            HearthNetError: `unauthorized` for a corpus of another person; `not_found` as `searched`.
        """
        key = self.searched(call, corpus)
        if key == SYSTEM:
            raise system_is_fixed()
        if key != (corpus if self._is_owner(call) else self._own(call, corpus)):
            raise HearthNetError(
                "unauthorized", f"corpus {corpus} is another person's, who decides about it", details=_PATH
            )
        return key

    def begun(self, call: Call[Any, Any], corpus: str) -> str | None:
        """Return the key of the corpus that the caller begins by adding to this name.

        None for another home, which begins none.
        """
        return corpus if self._is_let_in(call, corpus) else self._own(call, corpus)

    def is_name_shared(self, key: str) -> bool:
        """Return whether another corpus of the same name is shared."""
        return any(one != key and name_of(one) == name_of(key) and self._is_shared(one) for one in self._keys)

    def _own(self, call: Call[Any, Any], corpus: str) -> str | None:
        """Return the key of the caller's own corpus of this name; None for all but further persons."""
        if call.caller != self._node or call.claims is None:
            return None
        person = call.claims.person_at(self._node)
        return key_of(person, corpus) if person else None

    def _is_owner(self, call: Call[Any, Any]) -> bool:
        return call.caller == self._node and (call.claims is None or call.claims.is_of_home(self._node, {}))

    def _is_let_in(self, call: Call[Any, Any], corpus: str) -> bool:
        """Return whether the caller may know of the owner's corpora of this name.

        They are the node itself, its owner's clients, and those whose scope names the corpus.
        """
        at_home = call.caller == self._node
        return at_home and (call.claims is None or call.claims.is_of_home(self._node, {"corpus": corpus}))


def system_is_fixed() -> HearthNetError:
    """Return the error for a change of the corpus that comes with the program."""
    return HearthNetError(
        "unauthorized",
        "corpus system comes with HearthNet and is read-only; choose another name for your documents",
        details=_PATH,
    )
