"""Standing grants: "always, up to 5 times, until tonight".

A grant is signed by the node whose runs may use it, names one tool and the one node that carries it out,
and lives a day at most. The book keeps them in the node's data folder and hands out each use once, before
the call is sent; the provider also accepts each use once. Changing a tool voids its grants. The functions
block; do not call them in the event loop.

See: docs/protocol/approvals.md#standing-grant.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from hearthnet.agent.loop.memory import fingerprint
from hearthnet.agent.tools.providers import schema_without_home
from hearthnet.agent.tools.toolbox import BoundTool
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.trust.authorization.approval import MAX_LIFE_MS
from hearthnet.trust.authorization.constraints import Constraints
from hearthnet.trust.authorization.grant import MOST_USES, Grant, sign_grant
from hearthnet.trust.keys import Identity

MAX_GRANTS: Final = 1000
Standing = Literal["active", "expired", "used_up", "changed"]


class StoredGrant(msgspec.Struct, kw_only=True):
    """A grant in the book, with its tool as the person saw it and the number of used uses."""

    grant: Grant
    tool: str
    tool_digest: str
    used: int = 0

    def standing(self, now_ms: int, tool_digest: str) -> Standing:
        """Return the state of the grant at `now_ms` for the tool with this digest."""
        if tool_digest != self.tool_digest:
            return "changed"
        if not self.grant.time <= now_ms < self.grant.expires:
            return "expired"
        return "used_up" if self.used >= self.grant.max_uses else "active"


class Use(msgspec.Struct, frozen=True):
    """One use of a grant, handed out to one call."""

    grant: Grant
    number: int


def tool_digest(tool: BoundTool) -> str:
    """Return the digest of a tool as a person saw it: description, schema and contract.

    That another home begins to offer it changes nothing of it.
    """
    shown, schema = tool.definition, schema_without_home(tool)
    return fingerprint(shown.name, shown.description, schema, tool.capability, tool.contract.schema_hash)


def new_entry(
    identity: Identity,
    community: str,
    tool: BoundTool,
    provider: str,
    constraints: dict[str, list[str]],
    *,
    uses: int,
    now_ms: int,
    until_ms: int,
) -> StoredGrant:
    """Return a grant for calls of `tool` at `provider`, signed for `identity`'s own runs.

    Raises:
        HearthNetError: `bad_request` for a tool without side effects, and for a number of uses or a lifetime
            that is not allowed.
    """
    if not tool.contract.side_effects:
        raise HearthNetError("bad_request", f"{tool.definition.name} has no side effects; it needs no grant")
    if not 1 <= uses <= MOST_USES:
        raise HearthNetError("bad_request", f"a grant has 1 to {MOST_USES} uses")
    if not now_ms < until_ms <= now_ms + MAX_LIFE_MS:
        raise HearthNetError("bad_request", "a grant lives for a day at most")
    grant = Grant(
        id=ids.new_ulid(now_ms),
        community=community,
        approver=identity.node_id,
        actor=identity.node_id,
        provider=provider,
        capability=tool.capability,
        params_constraints=dict(constraints),
        tool_hash=tool.contract.schema_hash,
        max_uses=uses,
        time=now_ms,
        expires=until_ms,
    )
    return StoredGrant(
        grant=sign_grant(identity, grant), tool=tool.definition.name, tool_digest=tool_digest(tool)
    )


class GrantBook:
    """The grants of one node; several processes may share the file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def entries(self) -> list[StoredGrant]:
        """Return all grants, oldest first.

        Raises:
            HearthNetError: `internal_error` if the file is damaged or cannot be read.
        """
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[StoredGrant])
        except FileNotFoundError:
            return []
        except (msgspec.DecodeError, OSError) as error:
            raise HearthNetError(
                "internal_error", f"the standing grants in {self._file} cannot be read: {error}"
            ) from error

    def names(self) -> list[str]:
        """Return the tools that have at least one grant."""
        return sorted({entry.tool for entry in self.entries()})

    def add(self, entry: StoredGrant, now_ms: int) -> None:
        """Store `entry` and drop expired grants.

        Raises:
            HearthNetError: `capacity_exceeded` if there are too many.
        """
        with self._changing() as entries:
            entries[:] = [one for one in entries if one.grant.expires > now_ms]
            if len(entries) >= MAX_GRANTS:
                raise HearthNetError("capacity_exceeded", f"{MAX_GRANTS} grants are kept; revoke some")
            entries.append(entry)

    def remove(self, grant_id: str) -> StoredGrant:
        """Remove a grant, so that no process here uses it any more.

        Raises:
            HearthNetError: `not_found` if there is none with this id.
        """
        with self._changing() as entries:
            found = next((one for one in entries if one.grant.id == grant_id), None)
            if found is None:
                raise HearthNetError("not_found", f"there is no standing grant {grant_id[:80]!r}")
            entries.remove(found)
            return found

    def claim_use(self, pending: PendingApproval, tool: BoundTool, now_ms: int) -> Use | None:
        """Take the next use of a grant that covers `pending`; None where there is none."""
        shown = tool_digest(tool)
        with self._changing() as entries:
            for entry in entries:
                if entry.standing(now_ms, shown) == "active" and _covers(entry.grant, pending):
                    entry.used += 1
                    return Use(entry.grant, entry.used)
        return None

    def find(self, grant_id: str) -> Grant:
        """Return the grant with this id.

        Raises:
            HearthNetError: `not_found` if it was revoked in the meantime.
        """
        for entry in self.entries():
            if entry.grant.id == grant_id:
                return entry.grant
        raise HearthNetError("not_found", f"the standing grant {grant_id} was revoked; ask the person again")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[StoredGrant]]:
        """Yield the entries under an exclusive lock; write them back unless the block raises."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = self.entries()
            before = msgspec.json.encode(entries)
            yield entries
            after = msgspec.json.encode(entries)
            if after != before:
                write_whole(self._file, after, durable=True)


def _covers(grant: Grant, pending: PendingApproval) -> bool:
    fits = Constraints(grant.params_constraints).violated(pending.body) is None
    here = pending.provider in ("", grant.provider)
    return fits and here and grant.capability == pending.capability
