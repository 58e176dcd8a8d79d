"""Entries of the community's event log: the part of an event that stays when its words are erased.

An entry names the topic, the device that wrote it and the person, the place in that device's chain, and the
hash and size of the body. The body hangs beside it and can be erased: the chain still proves itself, and
no other body fits.

See: docs/protocol/log.md#entry, docs/decisions/0211.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Final, Literal

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_record, content_hash
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity

PURPOSE: Final = "log entry"
MAX_BODY_BYTES: Final = 512 * 1024
"""Maximum size of a body: that of a deletion which lists as many events as one may."""
MAX_FUTURE_MS: Final = 10 * 60 * 1000
"""How far an entry may be ahead of this node's clock; one that is further ahead is taken in later."""

Hash = Annotated[str, msgspec.Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]
HashOrNone = Annotated[str, msgspec.Meta(pattern=r"^(blake3:[0-9a-f]{64})?\Z")]
Number = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
Topic = Annotated[str, msgspec.Meta(pattern=r"^[a-z]{1,16}\Z")]


class LogEntry(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One entry; `previous` is the `hash` of the author's entry before, empty at its first.

    `author` is the node, the device that signs; `person` is whose event it is, as that node says: a person,
    or a principal that has none. `time` is in ms and never goes back along a chain. `body` is the content
    hash of the body's text, of `size` bytes.
    """

    schema_version: Literal[1] = 1
    topic: Topic
    community_id: str
    author: str
    person: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    sequence: Number
    previous: HashOrNone
    event_id: Annotated[str, msgspec.Meta(max_length=26)]
    event_type: Annotated[str, msgspec.Meta(pattern=r"^[a-z]+(\.[a-z_]+){1,4}\Z", max_length=64)]
    time: Count
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BODY_BYTES)]
    body: Hash

    @cached_property
    def hash(self) -> str:
        """`blake3:` and 64 hexadecimal digits over the canonical JSON, signature included."""
        return content_hash(self._canonical)

    @property
    def page_place(self) -> str:
        """The place of the entry in the order of pages, `<time>:<sequence>:<hash>`."""
        return f"{self.time}:{self.sequence}:{self.hash}"

    def signing_bytes(self) -> bytes:
        """Return the canonical JSON of the entry without its signature."""
        # Within texts quotes are escaped, and `size` follows: no other part of the entry reads like this.
        signature = b'"signature":' + msgspec.json.encode(self.signature) + b","
        return self._canonical.replace(signature, b"", 1)

    @cached_property
    def _canonical(self) -> bytes:
        return canonical_record(self)


class LogEvent(msgspec.Struct, frozen=True):
    """An entry and its body; the body is empty where it was erased, or is not there."""

    entry: LogEntry
    body: str = ""


def check_event(event: LogEvent, topic: str, community: str) -> None:
    """Check all of an event that needs no other event and no roster.

    Raises:
        HearthNetError: `bad_request` for an entry of another topic or community, or a body that is not the
            one of the entry; `invalid_signature` for an entry that its author has not signed.
    """
    entry = event.entry
    if (entry.topic, entry.community_id) != (topic, community):
        raise HearthNetError("bad_request", "it is of another topic or community")
    if not ids.is_ulid(entry.event_id) or (entry.previous == "") != (entry.sequence == 1):
        raise HearthNetError("bad_request", "its id or its place in the chain is malformed")
    if event.body and not is_body_of(entry, event.body):
        raise HearthNetError("bad_request", "its body is another than the entry says")
    signed_document.check(entry, entry.author, PURPOSE)


def is_body_of(entry: LogEntry, body: str) -> bool:
    """Return whether `body` is the text that `entry` names."""
    data = body.encode("utf-8", "surrogatepass")
    return len(data) == entry.size and content_hash(data) == entry.body


def write_entry(
    identity: Identity,
    community: str,
    topic: str,
    body: str,
    *,
    place: tuple[int, str, int],
    event_id: str,
    event_type: str,
    person: str,
    time: int,
) -> LogEntry:
    """Return a signed entry of `identity` at `place` (`Chains.next`), not earlier than the one before."""
    sequence, previous, reached = place
    data = body.encode("utf-8")
    entry = LogEntry(
        topic=topic,
        community_id=community,
        author=identity.node_id,
        person=person,
        sequence=sequence,
        previous=previous,
        event_id=event_id,
        event_type=event_type,
        time=max(time, reached),
        size=len(data),
        body=content_hash(data),
    )
    return signed_document.sign(entry, identity, PURPOSE)
