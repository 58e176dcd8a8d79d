"""The entry of a blob, with its holds; readable by NATS's clients (docs/decisions/0080)."""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any, Final

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.protocol.manifest import chunk_count

BUCKET: Final = "blobs"
STREAM: Final = f"OBJ_{BUCKET}"
META: Final = f"$O.{BUCKET}.M."
CHUNKS: Final = f"$O.{BUCKET}.C."
MOST_HOLDS: Final = 64
"""Maximum of holds per blob; all are in its entry, which is read as a whole."""
_NOTES: Final = "hearthnet"
THIS_HOME: Final = ""
"""The holder of blobs that this home's own processes put."""


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason to keep a blob, with the right to read it.

    `by` is a principal, or empty for this home's own processes. `name` is the holder's name for the content.
    `until` is in ms since 1970, 0 for no end. With `shared` every member of the community may read it.
    """

    by: str = THIS_HOME
    name: str = ""
    until: int = 0
    shared: bool = False

    @property
    def is_of_this_home(self) -> bool:
        """Whether this home's own processes hold it."""
        return self.by == THIS_HOME


class Notes(msgspec.Struct, frozen=True):
    """HearthNet's part of an object's entry; without it, the home itself holds the blob."""

    holds: tuple[Hold, ...] = (Hold(),)
    made: int = 0


class BlobRecord(msgspec.Struct, frozen=True):
    """The entry of one object, in the names of NATS's object store; `nuid` locates its chunks."""

    name: str
    bucket: str = BUCKET
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    digest: str = ""
    mtime: str = ""
    deleted: bool = False
    options: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None

    @property
    def notes(self) -> Notes:
        """HearthNet's part of the entry."""
        text = (self.metadata or {}).get(_NOTES)
        try:
            return Notes() if text is None else msgspec.json.decode(text, type=Notes)
        except msgspec.DecodeError:
            return Notes()

    @property
    def count(self) -> int:
        """The number of chunks of content of this size."""
        return chunk_count(self.size)

    def with_notes(self, notes: Notes) -> BlobRecord:
        """Return the entry with other notes."""
        text = msgspec.json.encode(notes).decode("utf-8")
        return msgspec.structs.replace(self, metadata={**(self.metadata or {}), _NOTES: text})

    def holds(self, now_ms: int) -> tuple[Hold, ...]:
        """Return the holds that have not expired."""
        return tuple(hold for hold in self.notes.holds if hold.until == 0 or hold.until > now_ms)

    def readable_by(self, principals: Collection[str], now_ms: int) -> bool:
        """Return whether the holder of these `principals`, not this home, may read it and learn of it."""
        return any(hold.shared or hold.by in principals for hold in self.holds(now_ms))

    def encode(self) -> bytes:
        """Return the bytes of the entry."""
        return msgspec.json.encode(self)


def read_entry(data: bytes) -> BlobRecord:
    """Read the entry in `data`.

    Raises:
        HearthNetError: `internal_error` if it is damaged.
    """
    try:
        return msgspec.json.decode(data, type=BlobRecord)
    except msgspec.DecodeError as error:
        raise HearthNetError("internal_error", f"an entry of the blob store is damaged: {error}") from error


def meta_subject(cid: str) -> str:
    """Return the subject of the entry of `cid`."""
    return META + base64.urlsafe_b64encode(cid.encode("utf-8")).decode("ascii")


def cid_at(subject: str) -> str:
    """Return the CID whose entry is at `subject`; empty if there is none."""
    try:
        return base64.urlsafe_b64decode(subject.removeprefix(META)).decode("ascii")
    except ValueError:
        return ""


def chunk_subject(nuid: str) -> str:
    """Return the subject of the chunks."""
    return CHUNKS + nuid


def index_subject(nuid: str) -> str:
    """Return the subject of the list of hashes and places of more than one chunk."""
    return f"{CHUNKS}{nuid}.index"


def data_subjects(nuid: str) -> tuple[str, str]:
    """Return both subjects with content of an object."""
    return chunk_subject(nuid), index_subject(nuid)


def joined_holds(known: tuple[Hold, ...], added: Hold) -> tuple[Hold, ...]:
    """Return `known` with `added` merged into the hold of the same holder.

    A shared hold stays shared, and the later end counts: a second put never removes rights.

    Raises:
        HearthNetError: `capacity_exceeded` for too many holders.
    """
    before = next((hold for hold in known if hold.by == added.by), added)
    until = 0 if 0 in (before.until, added.until) else max(before.until, added.until)
    merged = Hold(added.by, added.name or before.name, until, before.shared or added.shared)
    others = tuple(hold for hold in known if hold.by != added.by)
    if len(others) >= MOST_HOLDS:
        raise HearthNetError("capacity_exceeded", f"{MOST_HOLDS} members hold this already")
    return (*others, merged)
