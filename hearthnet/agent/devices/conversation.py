"""A conversation of the page with its revisions, and how two of them become one.

A revision is the hash of the content and of the revision that it follows. A document has those before it, so
that two nodes which were parted see whether one has only gone on, or both have.

    what the other has      what stays
    the same revision       that
    one that follows        the later one
    neither follows         the newer one; the other one is kept as a conversation of its own
    a deletion              the deletion

See: docs/protocol/persons.md#conversations.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.core.canonical_json import derived_id, digest, read_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import b64, is_ulid, unb64

MAX_BYTES: Final = 112_500
"""The packed size of a conversation, so that it fits into one frame."""
MAX_UNPACKED: Final = 4 * 1024 * 1024
MAX_HISTORY: Final = 512
"""The earlier revisions that a document names; one that is older counts as another conversation."""
_REVISION: Final = 32


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation of a person.

    `revision` follows those in `history`, newest first. `at` is when it was begun, `changed_at` when it was
    changed, in milliseconds since the epoch. `content` is what the page keeps of it. A `deleted` one has no
    title and no content.
    """

    id: str
    revision: str
    history: list[str]
    at: int
    changed_at: int
    title: str = ""
    content: dict[str, Any] = {}
    deleted: bool = False

    def follows(self, other: Conversation) -> bool:
        """Return whether this is `other` or has come of it."""
        return other.revision == self.revision or other.revision in self.history


class Merged(NamedTuple):
    """The conversation that stays, and the one that is kept beside it, if both were changed."""

    stays: Conversation
    beside: Conversation | None


def revised(
    earlier: Conversation | None,
    conversation_id: str,
    title: str,
    content: dict[str, Any],
    at: int,
    now: int,
    *,
    deleted: bool = False,
) -> Conversation:
    """Return the revision of a conversation that follows `earlier`."""
    history = [] if earlier is None else [earlier.revision, *earlier.history][:MAX_HISTORY]
    began = at if earlier is None else earlier.at
    named = digest([conversation_id, history[:1], title, content, deleted])
    revision = named.partition(":")[2][:_REVISION]
    return Conversation(
        id=conversation_id,
        revision=revision,
        history=history,
        at=began,
        changed_at=now,
        title=title,
        content=content,
        deleted=deleted,
    )


def merged(own: Conversation, other: Conversation) -> Merged:
    """Return what two nodes that have these end with, whichever of them asks."""
    if own.deleted or other.deleted or own.revision == other.revision:
        return Merged(min((own, other), key=_rank), None)
    if own.follows(other):
        return Merged(own, None)
    if other.follows(own):
        return Merged(other, None)
    older, newer = sorted((own, other), key=lambda one: (one.changed_at, one.revision))
    return Merged(newer, _beside(older))


def _rank(one: Conversation) -> tuple[bool, str, int, int, list[str]]:
    """Return the order in which a deletion comes first; two nodes may make one revision at two times."""
    return not one.deleted, one.revision, one.changed_at, one.at, one.history


def _beside(older: Conversation) -> Conversation:
    """Return a conversation that both of two parted nodes make of the one that does not stay."""
    own_id = derived_id("conversation", older.id, older.revision)
    return msgspec.structs.replace(older, id=own_id, history=[])


def pack(conversation: Conversation) -> bytes:
    """Return the bytes of a conversation.

    Raises:
        HearthNetError: `payload_too_large` if it is too large.
    """
    body = msgspec.json.encode(conversation)
    data = zlib.compress(body, 6) if len(body) <= MAX_UNPACKED else b""
    if not data or len(data) > MAX_BYTES:
        raise HearthNetError(
            "payload_too_large",
            "the conversation has become too large to be kept; begin a new one",
            details={"limit": MAX_BYTES},
        )
    return data


def unpack(data: bytes) -> Conversation:
    """Return the conversation in `data`.

    Raises:
        HearthNetError: `bad_request` if there is none.
    """
    unpacking = zlib.decompressobj()
    try:
        body = unpacking.decompress(data, MAX_UNPACKED)
    except zlib.error as error:
        raise HearthNetError("bad_request", f"this is no conversation: {error}") from error
    found = read_json(body, _DECODER)
    if unpacking.unconsumed_tail or not is_ulid(found.id) or len(found.history) > MAX_HISTORY:
        raise HearthNetError("bad_request", "this is no conversation")
    return found


def to_text(conversation: Conversation) -> str:
    """Return a conversation for a frame; raises as `pack`."""
    return b64(pack(conversation))


def from_text(text: str) -> Conversation:
    """Return the conversation of a frame; raises as `unpack`."""
    try:
        return unpack(unb64(text))
    except ValueError as error:
        raise HearthNetError("bad_request", "this is no conversation") from error


_DECODER: Final = msgspec.json.Decoder(Conversation)
