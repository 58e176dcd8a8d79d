"""What a home says about a corpus of its own to those that keep a copy: its contents, or that copies end.

The digest of the documents is over the digests of their records, so that neither side holds one JSON text of
all. The signature proves the statement apart from the connection that it came by.

See: docs/rag.md#copies-of-a-corpus.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity

PURPOSE: Final = "corpus"
_VERSION_CHARACTERS: Final = 12
_PREFIX: Final = "blake3:"


class CorpusStatement(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The statement of `home` about its `corpus` in `community` at `time` (ms since 1970).

    `digest` is that of the `count` documents. Without `copies`, those of other homes end; `count` is 0 then.
    """

    community: str
    home: str
    corpus: str
    copies: bool
    count: int
    digest: str
    time: int
    v: int = 1


def version_of(digest: str) -> str:
    """Return the short name of the state of a corpus: the beginning of its digest."""
    return digest.removeprefix(_PREFIX)[:_VERSION_CHARACTERS]


def digest_of(documents: Iterable[dict[str, Any]]) -> str:
    """Return the digest of the records of documents, in their order.

    Raises:
        HearthNetError: `bad_request` for a record without canonical JSON.
    """
    return digest([digest(document) for document in documents])


def sign_statement(statement: CorpusStatement, identity: Identity) -> CorpusStatement:
    """Return the statement with the signature of its home."""
    return signed_document.sign(statement, identity, PURPOSE)


def checked_statement(value: Any, community: str, home: str, corpus: str) -> CorpusStatement:
    """Return the statement in the JSON `value`, which `home` has signed about this corpus.

    Raises:
        HearthNetError: `invalid_signature` if it is malformed, about something else, or not signed by `home`.
    """
    try:
        statement = msgspec.convert(value, CorpusStatement)
    except msgspec.ValidationError as error:
        raise HearthNetError(
            "invalid_signature", f"a statement about a corpus is malformed: {error}"
        ) from error
    if (statement.v, statement.community, statement.home, statement.corpus) != (1, community, home, corpus):
        raise HearthNetError("invalid_signature", "a statement is about another corpus")
    signed_document.check(statement, home, PURPOSE)
    return statement
