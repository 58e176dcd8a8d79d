"""The audit log for the commands: of the running node, or in an exported file.

line 1     the head: the number of entries and the hash of the last one, signed by the node
line 2...  the entries, one a line, as the node wrote them (trust/audit_chain.py)

A proof has the same form, with the entries of one call and a head that names them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

import msgspec

from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import Store
from hearthnet.cli.input.member_lookup import roster_of
from hearthnet.cli.output.text import one_line
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import OTHER, HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.protocol import evidence
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry, ChainPosition, ChainProblem, Head, Verifier
from hearthnet.trust.community.roster import Roster

_FIELDS: Final = (
    "time",
    "capability",
    "service",
    "instance",
    "call",
    "caller",
    "principal",
    "token",
    "run",
    "approval",
    "grant",
    "use",
    "digest",
    "idempotency_key",
    "rule",
    "count",
)
_CALLS: Final = frozenset({"began", "refused"})
_MAX_LINE_BYTES: Final = 1024 * 1024
"""Far more than the longest entry has: what a file of others may have the verifier hold."""
Result = TypeVar("Result")
Progress = Callable[[int, int], object]
"""Takes the entries that are done, and all of them."""


class AuditedCall(msgspec.Struct, frozen=True):
    """One call in the log; `ended` is None if it has not ended, or its consent was refused."""

    began: AuditEntry
    ended: AuditEntry | None

    @property
    def refused(self) -> bool:
        """Return whether the entry records a refused approval or grant, and not a call."""
        return self.began.kind == "refused"

    @property
    def consent(self) -> str:
        """The basis on which it was allowed: own key, token, approval or grant."""
        if self.refused:
            return "refused"
        if self.began.approval:
            return "approved"
        if self.began.grant:
            return f"grant, use {self.began.use}"
        return "token" if self.began.token else "own key"

    @property
    def outcome(self) -> str:
        """`done`, the code of its error, or `open`; for a refused consent the failed check."""
        if self.refused:
            rule, count = self.began.rule, self.began.count
            return f"{self.began.code}: {rule}" + (f" ({count} more)" if not self.began.call else "")
        return "open" if self.ended is None else self.ended.code or "done"

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the record, without frame and signatures, which the export has."""
        end = self.ended
        return {
            "sequence": self.began.sequence,
            **{name: getattr(self.began, name) for name in _FIELDS},
            "ended_at": None if end is None else end.time,
            "kind": "refused" if self.refused else "call",
            "code": self.began.code if self.refused else None if end is None else end.code,
            "outcome": None if end is None else end.outcome,
        }


class Verdict(msgspec.Struct, frozen=True):
    """A log that was verified from entry `first` on.

    `checkpoint` stands for the entries before it, unless the log begins there or this is a `part`. `as_of` is
    the time of its export, in milliseconds; None for a running node.
    """

    node: str
    first: int
    entries: int
    calls: int
    open: tuple[AuditEntry, ...]
    checkpoint: AuditEntry | None = None
    part: bool = False
    as_of: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        point = self.checkpoint
        return {
            "whole": self.first == 1 and not self.part,
            "part": self.part,
            "first": self.first,
            "removed": point and {"entry": point.sequence, "time": point.time, "limit": point.rule},
            "node": self.node,
            "entries": self.entries,
            "calls": self.calls,
            "open": [AuditedCall(began, None).as_json() for began in self.open],
            "as_of": self.as_of,
        }


async def newest(home: Home, limit: int) -> list[AuditedCall]:
    """Return the newest `limit` calls of the running node, newest last."""
    async with await Store.connect(home, "audit") as store:
        log = AuditLog(store, load_identity(home.device_key))
        before, upto, _ = await log.extent()
        before -= 1
        began: list[AuditEntry] = []
        ends: dict[int, AuditEntry] = {}
        while upto > before and len(began) < limit:
            after = max(before, upto - 2 * limit)
            entries = [audit_chain.read(line) async for line in _lines(log, after, upto)]
            began[:0] = [entry for entry in entries if entry.kind in _CALLS]
            ends |= {entry.began: entry for entry in entries if entry.kind == "ended"}
            upto = after
    return [AuditedCall(entry, ends.get(entry.sequence)) for entry in began[-limit:]]


class Part(NamedTuple):
    """The entries to export: from number `first` (0: the first one there) to `last` (0: the last one).

    They end before `max_bytes` where they have more.
    """

    first: int = 0
    last: int = 0
    max_bytes: int = 0


class Exported(NamedTuple):
    """The numbers of the first and last exported entry, and of the last one in the log."""

    first: int
    last: int
    end: int


def export_to(home: Home, file: Path, part: Part, progress: Progress) -> Exported:
    """Write the log of the running node, or a part of it, to `file`.

    `-` is stdout. No incomplete file is left behind. `progress` is called with entries that are written and
    in all.

    Raises:
        HearthNetError: `bad_request` for a file that exists or cannot be written; `not_found` for a part that
            is not there.
    """
    if str(file) == "-":
        return asyncio.run(_write(sys.stdout.buffer, home, part, progress))
    return write_private(file, lambda out: asyncio.run(_write(out, home, part, progress)))


def write_private(file: Path, write: Callable[[BinaryIO], Result]) -> Result:
    """Have `write` fill a new file for its owner only; return its result. No incomplete file is left behind.

    Raises:
        HearthNetError: `bad_request` for a file that exists or cannot be written.
    """
    if file.exists():
        raise HearthNetError("bad_request", f"{one_line(str(file))} is there already; name another file")
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        # Readable by its owner only, since it holds the arguments of calls.
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            result = write(out)
            out.flush()
            os.fsync(out.fileno())
        partial.rename(file)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise HearthNetError(
            "bad_request", f"cannot write {one_line(str(file))}: {reason}", exit_status=OTHER
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return result


async def _write(out: BinaryIO, home: Home, part: Part, progress: Progress) -> Exported:
    identity, community = load_identity(home.device_key), roster_of(home).community_id
    async with await Store.connect(home, "audit") as store:
        log = AuditLog(store, identity)
        there, end = await log.extent(), await log.end()
        first, last = part.first or there.first, part.last or end.sequence
        if (part.first or part.last) and not there.first <= first <= last <= end.sequence:
            raise HearthNetError(
                "not_found", f"the log has the entries {there.first} to {end.sequence}; name a part of these"
            )
        if there.size_bytes > part.max_bytes > 0:
            last = await _fitting(log, first, last, part.max_bytes)
        is_part = first > there.first or last < end.sequence
        if is_part:
            end = ChainPosition(last, content_hash(await log.line(last) or b""))
        head = audit_chain.head(identity, community, end, now_ms(), first=first if is_part else None)
        out.write(head + b"\n")
        async for batch in log.lines(first - 1, last):
            for message in batch:
                out.write(message.data + b"\n")
            progress(batch[-1].sequence - first + 1, last - first + 1)
        await _check_kept(log, first)
    out.flush()
    return Exported(first, last, there.last)


async def _check_kept(log: AuditLog, first: int) -> None:
    """Check that retention removed nothing from entry `first` on while it was read.

    Raises:
        HearthNetError: `not_found` if it did.
    """
    now = (await log.extent()).first
    if now > first:
        raise HearthNetError(
            "not_found", f"entries {first} to {now - 1} were removed while they were read; try again"
        )


async def _fitting(log: AuditLog, first: int, last: int, max_bytes: int) -> int:
    """Return the last of the entries that fit into `max_bytes`; the first one is exported in any case."""
    async for batch in log.lines(first - 1, last):
        for message in batch:
            max_bytes -= len(message.data) + 1
            if max_bytes < 0:
                return max(first, message.sequence - 1)
    return last


async def verify_running(home: Home, roster: Roster) -> Verdict:
    """Verify the log of the running node.

    Raises:
        HearthNetError: `invalid_signature` with the first problem.
    """
    identity = load_identity(home.device_key)
    verifier, calls = _verifier(identity.node_id, roster), 0
    async with await Store.connect(home, "audit") as store:
        log = AuditLog(store, identity)
        first = (await log.extent()).first
        async for line in _lines(log, first - 1, (await log.end()).sequence):
            entry = verifier.feed(line)
            calls += entry is not None and entry.kind == "began"
        await _check_kept(log, first)
    return _verdict(verifier, identity.node_id, calls, None)


def verify_file(file: Path, roster: Roster) -> Verdict:
    """Verify an exported log by the members in `roster`.

    Raises:
        HearthNetError: `not_found` for a missing file; `bad_request` for one that is no export;
            `unauthorized` for the log of a node that is not in the roster; `invalid_signature` with the first
            problem.
    """
    lines = _file_lines(file)
    head = _head(next(lines, b""), file, roster)
    verifier, calls = _verifier(head.node, roster, head.first or None), 0
    for line in lines:
        entry = verifier.feed(line)
        calls += entry is not None and entry.kind == "began"
    return _verdict(verifier, head.node, calls, head)


def _verifier(node: str, roster: Roster, first: int | None = None) -> Verifier:
    return Verifier(node, [member.node_id for member in roster.members], evidence.problem, first)


def _verdict(verifier: Verifier, node: str, calls: int, head: Head | None) -> Verdict:
    finding: ChainProblem | None = verifier.end(head)
    if finding is not None:
        raise HearthNetError(
            "invalid_signature",
            f"the audit log is not whole: {finding.message}",
            details={"entry": finding.entry, "problem": finding.problem},
        )
    first, still = verifier.start.sequence + 1, tuple(verifier.open.values())
    part = head is not None and bool(head.first)
    checkpoint = verifier.checkpoint if first > 1 and not part else None
    entries, as_of = verifier.place.sequence + 1 - first, None if head is None else head.time
    return Verdict(node, first, entries, calls, still, checkpoint, part, as_of)


def _head(line: bytes, file: Path, roster: Roster) -> Head:
    try:
        head = audit_chain.read_head(line)
    except HearthNetError as error:
        raise HearthNetError(
            error.code,
            f"{one_line(str(file))} does not begin with the head of an audit log: {one_line(error.message)}",
        ) from error
    known = roster.member(head.node) is not None or roster.is_revoked(head.node)
    if head.community != roster.community_id or not known:
        raise HearthNetError(
            "unauthorized",
            f"the log is of {ids.short_id(head.node)}, who is not in the community {one_line(roster.name)}; "
            "name the roster of its community with --roster",
        )
    return head


def _file_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file, without an incomplete last one."""
    try:
        with file.open("rb") as opened:
            while (line := opened.readline(_MAX_LINE_BYTES + 1)).endswith(b"\n"):
                yield line[:-1]
            if len(line) > _MAX_LINE_BYTES:
                message = f"{one_line(str(file))} has a line of over {_MAX_LINE_BYTES} bytes: no audit log"
                raise HearthNetError("bad_request", message)
    except FileNotFoundError as error:
        raise HearthNetError("not_found", f"there is no file {one_line(str(file))}") from error
    except OSError as error:
        raise HearthNetError("bad_request", f"cannot read {one_line(str(file))}: {error.strerror}") from error


async def _lines(log: AuditLog, after: int, upto: int) -> AsyncIterator[bytes]:
    async for batch in log.lines(after, upto):
        for message in batch:
            yield message.data
