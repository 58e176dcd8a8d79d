"""A proof of one entry of the audit log, for somebody who has neither the log nor the community's roster.

line 1     the head of the log, which names the entries behind it, signed by the node
line 2, 3  the entry, and the other one of its call

See: docs/protocol/audit.md#proof.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from hearthnet.bus.session.keyring import load_identity
from hearthnet.bus.store import Store
from hearthnet.cli.input.member_lookup import display_name, roster_of
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import one_line
from hearthnet.cli.workflows.audit_trail import AuditedCall, write_private
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.protocol import evidence
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry, Head
from hearthnet.trust.community.roster import Roster

_MAX_BYTES: Final = 1024 * 1024
"""Far more than the largest entries have."""
_MARK: Final = b'"proves":'


class Proof(msgspec.Struct, frozen=True):
    """A verified proof; `asked` is the signed call in its first entry, None where that has only its hash."""

    head: Head
    entries: tuple[AuditEntry, ...]
    asked: evidence.SignedCall | None
    names: dict[str, str]
    """Names of nodes, from a roster."""

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        first, asked = self.entries[0], self.asked
        ended = self.entries[1] if len(self.entries) > 1 else None
        return {
            "proof": True,
            "node": self.head.node,
            "community": self.head.community,
            "as_of": self.head.time,
            "log": {"entries": self.head.sequence, "hash": self.head.hash},
            "entry": {**AuditedCall(first, ended).as_json(), "kind": first.kind, "via": first.via},
            "arguments": asked and asked.arguments,
            "approver": asked and (asked.approver or asked.grantor),
            "names": self.names,
            "proven": self.proven(),
            "not_proven": self.not_proven(),
        }

    def text(self) -> list[str]:
        """Return the result for a person."""
        lines = ["proven, by signatures that are right:", *(f"  {text}" for text in self.proven())]
        lines += ["not proven:", *(f"  {text}" for text in self.not_proven())]
        return [one_line(line) for line in lines]

    def proven(self) -> list[str]:
        """Return what the signatures prove, a sentence each."""
        head, entry, node = self.head, self.entries[0], self._name(self.head.node)
        found = [f"{node} wrote entry {entry.sequence} of its audit log: {self._entry(entry)}"]
        if self.asked is not None:
            found.append(f"{self._name(entry.caller)} signed this call with arguments of {entry.digest}")
            if self.asked.other:
                what = f"an approval for another {self.asked.other}, not for exactly this call"
                found.append(f"{self._name(self.asked.approver)} signed {what}")
            elif self.asked.approver:
                as_device = f", as a device of the person {self.asked.person}" if self.asked.person else ""
                found.append(f"{self._name(self.asked.approver)} approved exactly this call{as_device}")
            if self.asked.grantor:
                found.append(f"{self._name(self.asked.grantor)} signed the standing grant {entry.grant}")
        found += [f"{node} wrote entry {each.sequence}: {self._entry(each)}" for each in self.entries[1:]]
        end = f"which then had {head.sequence} entries and ended with {head.hash}"
        return [*found, f"{node} signed that this stands in its log, {end}"]

    def not_proven(self) -> list[str]:
        """Return what a reader may expect and no signature here proves, a sentence each."""
        entry, found = self.entries[0], []
        if not self.names:
            found.append("whose keys these are: compare the ids, or name a roster with --roster FILE")
        if entry.kind == "began" and self.asked is None:
            kept = entry.frame if audit_chain.is_hash(entry.frame) else "something that is no hash"
            found.append(f"that {self._name(entry.caller)} signed the call: the log has only {kept}")
        if self.asked is not None and self.asked.person:
            found.append("that the approver was a device of that person then: it stood in the roster")
        if entry.kind == "began" and len(self.entries) == 1:
            found.append("how the call ended: this proof has no end of it; the node may have left it out")
        return [
            *found,
            f"the times ({format_time(self.head.time, now_ms())} for this proof): the node's clock set them",
            "that what the node wrote about the outcome is true, and what other entries of its log say",
        ]

    def _entry(self, entry: AuditEntry) -> str:
        what = f"{one_line(entry.capability)} of {self._name(entry.caller)} for {self._name(entry.principal)}"
        match entry.kind:
            case "began":
                return f"{what} began"
            case "ended":
                return f"call {one_line(entry.call)} ended: {one_line(entry.code) or 'done'}"
            case "decided":
                by = self._name(entry.principal)
                return f"{one_line(entry.capability)} was {one_line(entry.code)} by {by}"
            case "refused":
                return f"consent to {what} was refused: {one_line(entry.rule)}"
        return f"entries up to {entry.count} were removed by retention"

    def _name(self, principal: str) -> str:
        node, slash, guest = principal.partition("/")
        name = self.names.get(node)
        return f"{name} ({one_line(principal)})" if name else one_line(f"{node}{slash}{guest}")


def prove_to(home: Home, number: int, file: Path) -> list[int]:
    """Write the proof of an entry of the running node to `file`; return the numbers of its entries.

    `-` is stdout.

    Raises:
        HearthNetError: `not_found` for an entry that is not in the log; `bad_request` for a file that exists
            or cannot be written; `invalid_signature` for an entry that was altered.
    """
    lines = asyncio.run(_proof(home, number))
    _, entries = audit_chain.proven(lines)

    def write(out: BinaryIO) -> None:
        out.write(b"".join(line + b"\n" for line in lines))

    if str(file) == "-":
        write(sys.stdout.buffer)
    else:
        write_private(file, write)
    return [entry.sequence for entry in entries]


async def _proof(home: Home, number: int) -> list[bytes]:
    identity, community = load_identity(home.device_key), roster_of(home).community_id
    async with await Store.connect(home, "audit") as store:
        log = AuditLog(store, identity)
        end, there = await log.end(), await log.extent()
        line = await log.line(number)
        if line is None or number > end.sequence:
            raise HearthNetError(
                "not_found",
                f"the log has the entries {there.first} to {end.sequence}; see: hearthnet audit list",
            )
        lines = await _of_call(log, line, end.sequence)
        for each in lines:
            await _check_linked(log, each, end.sequence)
        return [audit_chain.head(identity, community, end, now_ms(), proves=lines), *lines]


async def _of_call(log: AuditLog, line: bytes, last: int) -> list[bytes]:
    """Return the line and the other one of its call, in order."""
    entry = audit_chain.read(line)
    if entry.kind == "ended":
        began = await log.line(entry.began)
        return [line] if began is None else [began, line]
    if entry.kind == "began":
        async for batch in log.lines(entry.sequence, last):
            for message in batch:
                later = audit_chain.read(message.data)
                if later.kind == "ended" and later.began == entry.sequence:
                    return [line, message.data]
    return [line]


async def _check_linked(log: AuditLog, line: bytes, last: int) -> None:
    """Check that the next entry follows this one.

    Raises:
        HearthNetError: `invalid_signature` if it does not.
    """
    number = audit_chain.read(line).sequence
    following = await log.line(number + 1) if number < last else None
    if following is not None and audit_chain.read(following).previous != content_hash(line):
        raise HearthNetError("invalid_signature", f"entry {number} was altered: the next one follows another")


def is_proof(file: Path) -> bool:
    """Return whether `file` claims to be a proof."""
    try:
        with file.open("rb") as opened:
            return _MARK in opened.readline(_MAX_BYTES)
    except OSError:
        return False


def verify_proof(file: Path, roster: Roster | None = None) -> Proof:
    """Verify a proof by the keys in it alone; `roster` adds names.

    Raises:
        HearthNetError: `bad_request` for a file that is no proof; `invalid_signature` for an altered one;
            `unauthorized` for a node that is not in `roster`.
    """
    with file.open("rb") as opened:
        content = opened.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES or not content.endswith(b"\n"):
        raise HearthNetError("bad_request", f"{one_line(str(file))} is too large for a proof, or cut off")
    head, entries = audit_chain.proven(content[:-1].split(b"\n"))
    for entry in entries:
        if wrong := evidence.problem(entry):
            raise HearthNetError("invalid_signature", f"entry {entry.sequence}: {wrong}")
    names: dict[str, str] = {}
    if roster is not None:
        known = roster.member(head.node) is not None or roster.is_revoked(head.node)
        if head.community != roster.community_id or not known:
            raise HearthNetError(
                "unauthorized", f"{ids.short_id(head.node)} is not in the community {one_line(roster.name)}"
            )
        names = {member.node_id: display_name(roster.shown_name(member.node_id)) for member in roster.members}
    return Proof(head, tuple(entries), evidence.signed_call(entries[0]), names)
