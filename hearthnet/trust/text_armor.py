"""Documents as one line of text to copy, paste and scan, with a check for damage."""

from __future__ import annotations

from typing import Any, TypeVar

import blake3
import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, read_json, refuse_repeated_keys
from hearthnet.core.errors import HearthNetError

Document = TypeVar("Document")


def armor(scheme: str, value: Any) -> str:
    """Return `scheme`, `value` as base64url of its canonical JSON, a dot and a checksum.

    The checksum is the first 8 hexadecimal digits of the JSON's BLAKE3.
    """
    data = canonical_json(value)
    return f"{scheme}{ids.b64(data)}.{_check(data)}"


def unarmor(
    text: str, scheme: str, limit: int, decoder: msgspec.json.Decoder[Document], what: str
) -> Document:
    """Read the document in `text` of at most `limit` characters.

    Raises:
        HearthNetError: `bad_request`, worded for people, for everything else.
    """
    body, _, check = text.removeprefix(scheme).partition(".")
    if not text.startswith(scheme) or len(text) > limit:
        raise HearthNetError("bad_request", f"this is no {what}; one begins with {scheme}")
    try:
        data = ids.unb64(body)
        if _check(data) != check:
            raise HearthNetError("bad_request", "the end does not fit the rest")
        refuse_repeated_keys(data)
        return read_json(data, decoder)
    except HearthNetError as error:
        # Seen only where the checksum fits; the member may be a limit, so the rest is of no use.
        if "contains unknown field" in error.message:
            raise HearthNetError(
                "bad_request", f"the {what} is of a later version; upgrade HearthNet on this computer"
            ) from error
        raise HearthNetError(
            "bad_request", f"the {what} is damaged; copy the whole text once more, or ask for another"
        ) from error


def _check(data: bytes) -> str:
    return blake3.blake3(data).hexdigest()[:8]
