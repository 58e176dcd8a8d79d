"""The audit log as a chain: the form of its entries, its writer and its verifier.

    line n      canonical JSON of an entry, signed by the node that acted
    previous    BLAKE3 of line n-1, empty in the first one
    head        the last line's number and hash, signed: reveals an export without its end

A call with side effects has two entries: `began`, on the disk before its handler runs, and `ended`, on the
disk before its answer is sent. `ended` names its `began` by number. A third kind, `decided`, records a
person's decision about a model's call, a fourth, `refused`, a call or decision with an invalid approval. A
fifth, `removed`, is an audit checkpoint: it vouches for the oldest entries before they are removed. A sixth,
`restored`, says that the chain is that of a backup, and that later entries may exist elsewhere. The chain
belongs to the node, also if it moves to another community. Nothing here reads a disk or a clock.

See: docs/protocol/audit.md#entry, docs/protocol/audit.md#chain, docs/protocol/audit.md#retention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

import msgspec

from hearthnet.core import ids
from hearthnet.core.canonical_json import canonical_json, content_hash, read_json, refuse_repeated_keys
from hearthnet.core.capability_name import Count
from hearthnet.core.errors import HearthNetError
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity

PURPOSE: Final = "audit"
HEAD_PURPOSE: Final = "audit head"
MAX_FRAME_BYTES: Final = 8 * 1024
"""Maximum size of a frame that an entry holds; of a larger one it holds the hash."""
MAX_PROVEN: Final = 2
"""The `began` and the `ended` of one call."""
EntryKind = Literal["began", "ended", "decided", "refused", "removed", "restored"]
Fault = Literal["damaged", "foreign", "altered", "missing", "reordered", "repeated", "unpaired", "cut off"]


class AuditEntry(
    signed_document.Signed, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One entry; `time` is in Unix milliseconds, `instance` the process that wrote it.

    `began` records the request: `token` is the token's id, `digest` that of the arguments, `frame` the
    caller's signed frame (base64url), or its hash if it has more than 8 KiB. `ended` records the result:
    `code` is the error in the reply, empty after success; `outcome` is the hash of the answer. `decided`
    records a person's decision about the call shown under the id `call`: `code` is `approved`, `edited` or
    `denied`, `via` the way it was given, `digest` that of the arguments to be sent, `outcome` the signed
    decision's hash. `refused` records that `caller` sent an approval or grant that is not valid for its call,
    or its client (`via`) such a decision: `code` is the error in the reply, `rule` the failed check, `frame`
    the hash of the signed frame. A `refused` without `call` reports `count` more of them. `removed` names the
    newest entry that retention removed: its number in `count`, the hash of its line in `outcome`; `rule` is
    the limit, `age` or `size`. `restored` names in `call` the backup, in `count` its last entry.
    """

    node: str
    community: str
    sequence: Count
    previous: str
    time: Count
    kind: EntryKind
    call: str
    instance: str
    service: str = ""
    capability: str = ""
    caller: str = ""
    principal: str = ""
    token: str = ""
    run: str = ""
    approval: str = ""
    grant: str = ""
    use: Count = 0
    digest: str = ""
    idempotency_key: str = ""
    frame: str = ""
    began: Count = 0
    rule: str = ""
    count: Count = 0
    code: str = ""
    outcome: str = ""
    via: str = ""
    v: int = 1


class Head(signed_document.Signed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a chain at `time` (milliseconds): number and hash of its last entry.

    0 and empty for a chain without entries. With `first` it is the end of a part of the chain that begins
    with that entry. With `proves` it is the head of a proof: numbers and hashes of the entries behind it.
    """

    node: str
    community: str
    sequence: Count
    hash: str
    time: Count
    v: int = 1
    first: Count | msgspec.UnsetType = msgspec.UNSET
    proves: tuple[tuple[Count, str], ...] | msgspec.UnsetType = msgspec.UNSET


class ChainPosition(msgspec.Struct, frozen=True):
    """The end of a chain, which the next entry follows."""

    sequence: int = 0
    hash: str = ""


class ChainProblem(msgspec.Struct, frozen=True):
    """A fault of a chain: its entry, its kind, and a description in one line."""

    entry: int
    problem: Fault
    message: str


def write(entry: AuditEntry, after: ChainPosition, identity: Identity) -> tuple[bytes, ChainPosition]:
    """Chain `entry` behind `after` and sign it.

    Returns its line and the new end of the chain.
    """
    chained = msgspec.structs.replace(entry, sequence=after.sequence + 1, previous=after.hash)
    line = canonical_json(msgspec.to_builtins(signed_document.sign(chained, identity, PURPOSE)))
    return line, ChainPosition(chained.sequence, content_hash(line))


def evidence(frame: bytes) -> str:
    """Return the caller's signed frame as entries keep it: whole, or its hash if large."""
    return ids.b64(frame) if len(frame) <= MAX_FRAME_BYTES else content_hash(frame)


def is_hash(text: str) -> bool:
    """Return whether `text` has the form of a hash."""
    return _HASH.fullmatch(text) is not None


def read(line: bytes) -> AuditEntry:
    """Read the entry in `line`, without checking it.

    Raises:
        HearthNetError: `bad_request` if it is not an entry.
    """
    refuse_repeated_keys(line)
    return read_json(line, _ENTRY)


def head(
    identity: Identity,
    community: str,
    place: ChainPosition,
    now_ms: int,
    *,
    first: int | None = None,
    proves: Sequence[bytes] = (),
) -> bytes:
    """Return the signed line that names the present end of the chain of `identity`.

    With `first`, the end of the part that begins there. `proves` are the lines of a proof.
    """
    proven = tuple((read(line).sequence, content_hash(line)) for line in proves)
    unsigned = Head(
        node=identity.node_id,
        community=community,
        sequence=place.sequence,
        hash=place.hash,
        time=now_ms,
        first=msgspec.UNSET if first is None else first,
        proves=proven or msgspec.UNSET,
    )
    return canonical_json(msgspec.to_builtins(signed_document.sign(unsigned, identity, HEAD_PURPOSE)))


def read_head(line: bytes) -> Head:
    """Read the head in `line` and check the signature of the node that it names.

    Raises:
        HearthNetError: `bad_request` if it is not a head; `invalid_signature` if it was altered.
    """
    refuse_repeated_keys(line)
    found = read_json(line, _HEAD)
    ids.public_key(found.node)
    signed_document.check(found, found.node, HEAD_PURPOSE)
    hashes = [*filter(None, [found.hash]), *(hashed for _, hashed in found.proves or ())]
    if not all(map(is_hash, hashes)):
        raise HearthNetError("bad_request", "the audit head has a hash that is none")
    if canonical_json(found.as_json()) != line:
        raise HearthNetError("invalid_signature", "the audit head is not written as it was signed")
    return found


def proven(lines: Sequence[bytes]) -> tuple[Head, list[AuditEntry]]:
    """Return the head and the entries of a proof: one entry, and the other one of its call.

    Raises:
        HearthNetError: `bad_request` for lines that are no proof; `invalid_signature` for an altered one.
    """
    found = read_head(lines[0] if lines else b"")
    named = found.proves or ()
    if not 1 <= len(named) <= MAX_PROVEN or len(lines) - 1 != len(named):
        raise HearthNetError("bad_request", "is no proof of an entry")
    entries = [
        _proven_entry(line, found, number, hashed)
        for line, (number, hashed) in zip(lines[1:], named, strict=True)
    ]
    if len(entries) > 1 and not _is_pair(*entries):
        raise HearthNetError("invalid_signature", "the entries of the proof are not of one call")
    return found, entries


def _proven_entry(line: bytes, head: Head, number: int, hashed: str) -> AuditEntry:
    entry, hash_of_line = read(line), content_hash(line)
    at_end = number == head.sequence and hash_of_line != head.hash
    if (entry.sequence, hash_of_line) != (number, hashed) or number > head.sequence or at_end:
        raise HearthNetError("invalid_signature", f"entry {number} is not the one that the head names")
    if (entry.node, entry.v) != (head.node, 1):
        raise HearthNetError("invalid_signature", f"entry {number} is of another node than the head")
    signed_document.check(entry, head.node, PURPOSE)
    return entry


def _is_pair(began: AuditEntry, ended: AuditEntry) -> bool:
    return (began.kind, ended.kind, ended.began, ended.call) == ("began", "ended", began.sequence, began.call)


_HASH: Final = re.compile("blake3:[0-9a-f]{64}")
_ENTRY: Final = msgspec.json.Decoder(AuditEntry)
_HEAD: Final = msgspec.json.Decoder(Head)


class Verifier:
    """A verifier that reads a chain line by line from its start and keeps the first fault.

    `known` are nodes whose signature is recognised where it replaces that of `node`. `check` examines the
    evidence in an entry and returns its fault, empty for none. `first` is the number of the first entry of a
    part of a chain; without it, only an audit checkpoint may stand for entries before the first line.
    """

    def __init__(
        self,
        node: str,
        known: Iterable[str] = (),
        check: Callable[[AuditEntry], str] | None = None,
        first: int | None = None,
    ) -> None:
        self.place = ChainPosition()
        self.start = ChainPosition()
        """The entry before the first line."""
        self.checkpoint: AuditEntry | None = None
        """The newest audit checkpoint for the entries up to `start`."""
        self.finding: ChainProblem | None = None
        self.open: dict[int, AuditEntry] = {}
        """Calls that began and have not ended, by the number of their entry."""
        self._node = node
        self._known = tuple(known)
        self._check = check
        self._first = first
        self._sought = 0

    def feed(self, line: bytes) -> AuditEntry | None:
        """Read the next line and return its entry; None from the first fault on."""
        if self.finding is not None:
            self._look_for_missing(line)
            return None
        number = self.place.sequence + 1
        try:
            entry = read(line)
            if not self.place.sequence and not self._begin(entry):
                return None
            number = self.place.sequence + 1
            fits = self._check_entry(entry, line, number)
        except HearthNetError as error:
            self._note(number, "damaged", f"entry {number} is no entry: {error.message}")
            return None
        if not fits:
            return None
        self.place = ChainPosition(number, content_hash(line))
        return entry

    def end(self, head: Head | None) -> ChainProblem | None:
        """Return the fault after the last line; with `head` also check that this is the end."""
        count = self.place.sequence
        if self.finding is None and self._first is None and self.start.sequence and self.checkpoint is None:
            entries = _numbers(1, self.start.sequence)
            self._note(1, "missing", f"{entries} missing: entry {self.start.sequence + 1} stands there")
        if self.finding is None and head is not None:
            if count < head.sequence:
                entries = _numbers(count + 1, head.sequence)
                self._note(count + 1, "cut off", f"{entries} cut off at the end: the log had {head.sequence}")
            elif (count, self.place.hash) != (head.sequence, head.hash):
                self._note(count, "altered", f"entry {count} is not the last one that the head names")
        return self.finding

    def _begin(self, entry: AuditEntry) -> bool:
        """Take the chain up before its first line, which need not be entry 1; return whether it may be so."""
        if self._first not in (None, entry.sequence):
            text = f"entry {self._first} is missing: entry {entry.sequence} stands there"
            self._note(entry.sequence, "missing", text)
            return False
        if entry.sequence > 1:
            self.place = self.start = ChainPosition(entry.sequence - 1, entry.previous)
        return True

    def _check_entry(self, entry: AuditEntry, line: bytes, number: int) -> bool:
        """Return whether the entry has no fault."""
        if self._author(entry, line, number) and self._order(entry, number):
            if entry.kind == "removed":
                self._check_removed(entry, number)
            else:
                self._pair(entry, number)
        if self.finding is None and self._check is not None and (wrong := self._check(entry)):
            self._note(number, "altered", f"entry {number}: {wrong}")
        return self.finding is None

    def _author(self, entry: AuditEntry, line: bytes, number: int) -> bool:
        """Return whether the entry is this node's and unaltered."""
        if entry.node != self._node:
            author, own = ids.short_id(entry.node), ids.short_id(self._node)
            self._note(number, "foreign", f"entry {number} is of {author}, not of {own}")
        elif not signed_document.is_signed(entry, self._node, PURPOSE):
            signers = (node for node in self._known if signed_document.is_signed(entry, node, PURPOSE))
            other = next(signers, "")
            if other:
                self._note(number, "foreign", f"entry {number} is signed by {ids.short_id(other)}")
            else:
                self._note(number, "altered", f"entry {number} was altered: its signature does not fit")
        elif canonical_json(msgspec.to_builtins(entry)) != line:
            self._note(number, "altered", f"entry {number} was altered: it is not written as it was")
        return self.finding is None

    def _order(self, entry: AuditEntry, number: int) -> bool:
        """Return whether the entry is the next one."""
        if entry.sequence > number:
            self._sought = number
            entries = _numbers(number, entry.sequence - 1)
            self._note(number, "missing", f"{entries} missing: entry {entry.sequence} stands there")
        elif entry.sequence <= self.start.sequence:
            self._note(entry.sequence, "reordered", f"entry {entry.sequence} stands after later ones")
        elif entry.sequence < number:
            self._note(number, "repeated", f"entry {entry.sequence} stands twice, again as number {number}")
        elif entry.previous != self.place.hash:
            self._note(number, "altered", f"entry {number} follows another one: one of the two was replaced")
        return self.finding is None

    def _check_removed(self, entry: AuditEntry, number: int) -> None:
        """Check an audit checkpoint, and whether it stands for the entries before the first line."""
        last = self.start.sequence
        if entry.count >= number or (entry.count == last and entry.outcome != self.start.hash):
            self._note(number, "altered", f"entry {number} vouches for another entry {entry.count}")
        elif entry.count >= last:
            self.checkpoint = entry

    def _pair(self, entry: AuditEntry, number: int) -> None:
        if entry.kind != "ended":
            if entry.kind == "began":
                self.open[number] = entry
            return
        if 0 < entry.began <= self.start.sequence:
            return
        began = self.open.pop(entry.began, None)
        if began is None or began.call != entry.call:
            self._note(number, "unpaired", f"entry {number} ends {entry.began}, where no such call is open")

    def _note(self, number: int, problem: Fault, message: str) -> None:
        self.finding = ChainProblem(number, problem, message)

    def _look_for_missing(self, line: bytes) -> None:
        """Report a missing entry that appears later as reordered."""
        if not self._sought:
            return
        try:
            late = read(line).sequence == self._sought
        except HearthNetError:
            return
        if late:
            self._note(self._sought, "reordered", f"entry {self._sought} stands after later ones")
            self._sought = 0


def _numbers(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"
