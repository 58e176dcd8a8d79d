"""What is kept of a blob beside its bytes: an object of the bucket as NATS's own clients read it, and on
whose behalf it is kept (docs/decisions/0080)."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from hearthnet.errors import HearthNetError

BUCKET: Final = "blobs"
STREAM: Final = f"OBJ_{BUCKET}"
META: Final = f"$O.{BUCKET}.M."
CHUNKS: Final = f"$O.{BUCKET}.C."
MOST_HOLDS: Final = 64
"""So many may hold one blob; what they hold it by is in its entry, which is read as a whole."""
_NOTES: Final = "hearthnet"
OWN: Final = ""
"""Who holds what this home's own processes put."""


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason to keep a blob, and who may read it for that.

    `by` is a principal, or empty for this home's own processes. `name` is what it called the content.
    `until` is in ms since 1970, 0 for: for good. With `shared` every member of the community may read it.
    """

    by: str = OWN
    name: str = ""
    until: int = 0
    shared: bool = False


class Notes(msgspec.Struct, frozen=True):
    """What HearthNet writes into an object's entry; what older versions put is the home's own."""

    holds: tuple[Hold, ...] = (Hold(),)
    made: int = 0


class Entry(msgspec.Struct, frozen=True):
    """The entry of one object, in the names of NATS's object store. `nuid` is where its chunks are."""

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
        """On whose behalf it is kept."""
        text = (self.metadata or {}).get(_NOTES)
        try:
            return Notes() if text is None else msgspec.json.decode(text, type=Notes)
        except msgspec.DecodeError:
            return Notes()

    def with_notes(self, notes: Notes) -> Entry:
        """The same with other notes."""
        text = msgspec.json.encode(notes).decode("utf-8")
        return msgspec.structs.replace(self, metadata={**(self.metadata or {}), _NOTES: text})

    def holds(self, now_ms: int) -> tuple[Hold, ...]:
        """The holds that have not run out."""
        return tuple(hold for hold in self.notes.holds if hold.until == 0 or hold.until > now_ms)

    def readable_by(self, principal: str, now_ms: int) -> bool:
        """Whether `principal`, who is not this home itself, may read it and know of it."""
        return any(hold.shared or hold.by == principal for hold in self.holds(now_ms))

    def encode(self) -> bytes:
        """The bytes of the entry."""
        return msgspec.json.encode(self)


def read_entry(data: bytes) -> Entry:
    """The entry in `data`; `internal_error` where it is damaged."""
    try:
        return msgspec.json.decode(data, type=Entry)
    except msgspec.DecodeError as error:
        raise HearthNetError("internal_error", f"an entry of the blob store is damaged: {error}") from error


def meta_subject(cid: str) -> str:
    """Where the entry of `cid` is."""
    return META + base64.urlsafe_b64encode(cid.encode("utf-8")).decode("ascii")


def cid_at(subject: str) -> str:
    """The CID whose entry is at `subject`; empty where that is none's."""
    try:
        return base64.urlsafe_b64decode(subject.removeprefix(META)).decode("ascii")
    except ValueError:
        return ""


def chunk_subject(nuid: str) -> str:
    """Where the chunks are."""
    return CHUNKS + nuid


def index_subject(nuid: str) -> str:
    """Where it is written which chunk has which hash and which place, for more than one chunk."""
    return f"{CHUNKS}{nuid}.index"


def joined_holds(known: tuple[Hold, ...], added: Hold) -> tuple[Hold, ...]:
    """`known` with `added` in place of what the same one held; `capacity_exceeded` for too many.

    What is shared stays shared, and the later end counts: putting once more takes nothing away.
    """
    before = next((hold for hold in known if hold.by == added.by), added)
    until = 0 if 0 in (before.until, added.until) else max(before.until, added.until)
    merged = Hold(added.by, added.name or before.name, until, before.shared or added.shared)
    others = tuple(hold for hold in known if hold.by != added.by)
    if len(others) >= MOST_HOLDS:
        raise HearthNetError("capacity_exceeded", f"{MOST_HOLDS} members hold this already")
    return (*others, merged)
