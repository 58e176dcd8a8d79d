"""Documents that contain their signature, which covers the canonical JSON without it.

Codec only. The required contents and signer are decided where a document is used.

See: docs/protocol/identity.md#signed-documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.keys import Identity, verify


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A document with a `signature` member (`ed25519:` and base64url; empty while unsigned)."""

    signature: str = ""

    def signing_bytes(self) -> bytes:
        """Return the canonical JSON of the document without its signature."""
        members = self.as_json()
        members.pop("signature", None)
        return canonical_json(members)

    def as_json(self) -> dict[str, Any]:
        """Return the document as JSON values.

        Raises:
            HearthNetError: `bad_request` if it is nested deeper than the stack allows.
        """
        try:
            members: dict[str, Any] = msgspec.to_builtins(self)
        except RecursionError as error:
            raise HearthNetError("bad_request", "has no canonical JSON: it is nested too deeply") from error
        return members


Document = TypeVar("Document", bound=Signed)
Shape = TypeVar("Shape", bound=msgspec.Struct)


def sign(document: Document, identity: Identity, purpose: str) -> Document:
    """Return the document with the signature of `identity` for `purpose`."""
    signature = identity.sign(purpose, document.signing_bytes())
    return msgspec.structs.replace(document, signature=ids.PREFIX + ids.b64(signature))


def check(document: Signed, signer: str, purpose: str) -> None:
    """Check that `signer` signed the document for `purpose`.

    Raises:
        HearthNetError: `invalid_signature` if not.
    """
    if not verify(signer, purpose, document.signing_bytes(), _signature(document)):
        raise HearthNetError("invalid_signature", f"the {purpose} is not signed by {ids.short_id(signer)}")


def is_signed(document: Signed, signer: str, purpose: str) -> bool:
    """Return whether `check` accepts the document."""
    try:
        check(document, signer, purpose)
    except HearthNetError:
        return False
    return True


def readable(documents: Iterable[Any], wanted: type[Shape]) -> list[Shape]:
    """Return those of `documents` that have the shape of `wanted`.

    `documents` are JSON values from another node, otherwise unchecked. The others are skipped: one malformed
    document does not discard the rest.
    """
    found = []
    for document in documents:
        with contextlib.suppress(msgspec.ValidationError):
            found.append(msgspec.convert(document, wanted))
    return found


def _signature(document: Signed) -> bytes:
    """Return the 64 bytes; none if the text is not in its one form."""
    algorithm, text = document.signature[: len(ids.PREFIX)], document.signature[len(ids.PREFIX) :]
    try:
        return ids.unb64(text) if algorithm == ids.PREFIX else b""
    except HearthNetError:
        return b""
