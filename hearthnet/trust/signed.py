"""Documents that carry their signature as a member: what is signed is the canonical JSON without it.

Codec only. What a document must say, and to whom, is decided where it is used.

See: docs/protocol/identity.md#signed-documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from hearthnet import ids
from hearthnet.canonical import canonical_json
from hearthnet.errors import HearthNetError
from hearthnet.trust.keys import Identity, verify


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A document with a `signature` member (`ed25519:` and base64url; empty while unsigned)."""

    signature: str = ""

    def signing_bytes(self) -> bytes:
        """The canonical JSON of the document without its signature."""
        members = self.as_json()
        members.pop("signature", None)
        return canonical_json(members)

    def as_json(self) -> dict[str, Any]:
        """The document as JSON values; `bad_request` where it is nested deeper than the stack goes."""
        try:
            members: dict[str, Any] = msgspec.to_builtins(self)
        except RecursionError as error:
            raise HearthNetError("bad_request", "has no canonical JSON: it is nested too deeply") from error
        return members


Document = TypeVar("Document", bound=Signed)


def sign(document: Document, identity: Identity, purpose: str) -> Document:
    """The document with `identity`'s signature for `purpose`."""
    signature = identity.sign(purpose, document.signing_bytes())
    return msgspec.structs.replace(document, signature=ids.PREFIX + ids.b64(signature))


def check(document: Signed, signer: str, purpose: str) -> None:
    """Raises `invalid_signature` unless `signer` signed the document for `purpose`."""
    if not verify(signer, purpose, document.signing_bytes(), _signature(document)):
        raise HearthNetError("invalid_signature", f"the {purpose} is not signed by {ids.short_id(signer)}")


def readable(documents: Iterable[Any], wanted: type[Document]) -> list[Document]:
    """Those of `documents`, JSON values from another node, that have the shape of `wanted`; not yet checked.

    The others are passed over: one bad document is no reason to do without the rest.
    """
    found = []
    for document in documents:
        with contextlib.suppress(msgspec.ValidationError):
            found.append(msgspec.convert(document, wanted))
    return found


def _signature(document: Signed) -> bytes:
    """The 64 bytes, or none where the text has another form; it has one form only."""
    algorithm, text = document.signature[: len(ids.PREFIX)], document.signature[len(ids.PREFIX) :]
    try:
        return ids.unb64(text) if algorithm == ids.PREFIX else b""
    except HearthNetError:
        return b""
