"""The logging of refused approvals: forged, altered, late, for another call or person.

The first few of a client get an audit entry each; more of them are counted
(hearthnet/service/effects/refusal_audit.py; docs/decisions/0074).

See: docs/protocol/approvals.md#refusals-on-record.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms, steady_ms
from hearthnet.service.effects.refusal_audit import Key, RefusalCounter
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization import approval as approvals

NOTED: Final = frozenset({"unauthorized", "invalid_signature", "expired", "not_found"})
_LONGEST: Final = 64
_log: Final = logging.getLogger(__name__)


class RejectedDecisionAudit:
    """The refused decisions of the clients of one gateway."""

    def __init__(self, store: RunStore, node: str, community: str, instance: str = "") -> None:
        self._store = store
        self._node = node
        self._community = community
        self._instance = instance
        self._tally = RefusalCounter()

    async def note(
        self,
        error: HearthNetError,
        principal: str,
        run: str,
        call: str,
        approval: Mapping[str, Any] | None,
        via: str,
    ) -> None:
        """Record a decision that was refused with `error`; write counts that are due."""
        key = Key(principal, str(error.details.get("rule", error.code)), error.code)
        now = steady_ms()
        entries = [self._counted(due, count) for due, count in self._tally.due(now)]
        if self._tally.take(key, now):
            given = _read(approval)
            entry = self._entry(key, 1, call=call[:_LONGEST] or "-", run=run[:_LONGEST], via=via, **given)
            entries.append(entry)
        await self._put(entries)

    async def close(self) -> None:
        """Write the counts."""
        await self._put([self._counted(key, count) for key, count in self._tally.rest()])

    async def _put(self, entries: list[AuditEntry]) -> None:
        try:
            for entry in entries:
                await self._store.note(entry, await self._store.place())
        except HearthNetError as error:
            _log.error("a refused decision is not on record: %s", error)

    def _counted(self, key: Key, count: int) -> AuditEntry:
        return self._entry(key, count, call="")

    def _entry(self, key: Key, count: int, **more: Any) -> AuditEntry:
        return AuditEntry(
            node=self._node,
            community=self._community,
            sequence=0,
            previous="",
            time=now_ms(),
            kind="refused",
            instance=self._instance,
            caller=self._node,
            principal=key.caller,
            rule=key.rule,
            code=key.code,
            count=count,
            **more,
        )


def _read(approval: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the fields of the refused approval for its entry, empty where it is malformed."""
    if approval is None:
        return {}
    with contextlib.suppress(HearthNetError):
        said = approvals.decode(dict(approval))
        number = said.id if ids.is_ulid(said.id) else ""
        return {
            "approval": number,
            "digest": said.arguments_digest[:80],
            "capability": said.capability[:_LONGEST],
        }
    return {}


__all__ = ["NOTED", "RejectedDecisionAudit"]
