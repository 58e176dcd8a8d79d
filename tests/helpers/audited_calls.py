"""Entries of the audit log as a node's processes would have written them some time ago."""

from __future__ import annotations

from typing import Any

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.core.times import now_ms
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.keys import Identity

DAY_MS = 86_400_000
OLD_DAYS = 400
"""More than a log keeps by default."""
SECONDS = 30.0


async def write_calls(
    identity: Identity, store: Store, calls: int, days: float, *, frame_bytes: int = 0, **fields: Any
) -> None:
    """Adds calls that began and ended so many days ago."""
    log = AuditLog(store, identity)
    for _ in range(calls):
        given = {**entry_fields(identity, days), "call": ids.new_ulid(), **fields}
        frame = "blake3:" + "x" * frame_bytes
        began = await log.append(AuditEntry(kind="began", frame=frame, **given), SECONDS)
        await log.append(AuditEntry(kind="ended", began=began, **given), SECONDS)


def entry_fields(identity: Identity, days: float) -> dict[str, Any]:
    """What every entry of that time has."""
    node, time = identity.node_id, now_ms() - int(days * DAY_MS)
    return {
        "node": node,
        "community": node,
        "sequence": 0,
        "previous": "",
        "time": time,
        "instance": "abcdefgh",
    }
