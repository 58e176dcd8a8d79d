"""The logs of a home that was restored from a backup, before the first service starts.

The audit log gets an entry that says so, and the market's log leaves places free: events of after the backup,
which others may have read, had these.

See: docs/protocol/backup.md#after-a-restore.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from hearthnet.bus.store import Store
from hearthnet.core.home import Home
from hearthnet.core.restore_mark import RestoreMark, read_mark, write_mark
from hearthnet.core.times import now_ms
from hearthnet.service.effects import jetstream_records
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.keys import Identity

SKIPPED: Final = 1_000
"""Places that are left free in the market's log: more than a home writes between two backups."""
_MARKET: Final = "MARKET"
_PREFIX: Final = "mk.post.restored."
_WHAT: Final = "the market's log"
_WRITE_SECONDS: Final = 15.0


async def settle_restored(home: Home, store: Store, identity: Identity, community: str) -> RestoreMark | None:
    """Mark the logs of a restored home, once; return the mark of a home that was restored and not settled.

    Raises:
        HearthNetError: The store does not answer, or the disk is full; the next start goes on.
    """
    mark = read_mark(home)
    if mark is None or mark.is_settled:
        return None
    await _skip_places(store)
    await _mark_audit(store, identity, community, mark)
    with file_errors(home.restored):
        write_mark(home, msgspec.structs.replace(mark, is_settled=True))
    return mark


async def _mark_audit(store: Store, identity: Identity, community: str, mark: RestoreMark) -> None:
    log = AuditLog(store, identity)
    last = (await log.end()).sequence
    entry = AuditEntry(
        node=identity.node_id,
        community=community,
        sequence=0,
        previous="",
        time=now_ms(),
        kind="restored",
        call=mark.backup,
        instance="",
        count=last,
    )
    await log.append(entry, _WRITE_SECONDS)


async def _skip_places(store: Store) -> None:
    """Write empty messages, which count in the order of the log, and delete them at once."""
    async with jetstream_records.answering(_WHAT, 4 * _WRITE_SECONDS):
        writes = (
            store.js.publish(f"{_PREFIX}{number}", b"", timeout=_WRITE_SECONDS, stream=_MARKET)
            for number in range(SKIPPED)
        )
        written = await asyncio.gather(*writes, return_exceptions=True)
        places = [ack.seq for ack in written if not isinstance(ack, BaseException)]
        await asyncio.gather(*(_delete(store, place) for place in places))
        # Those of a start that was interrupted between the two.
        left = (await store.js.stream_info(_MARKET, subjects_filter=f"{_PREFIX}>")).state.subjects or {}
        for subject in left:
            await _delete(store, int((await store.js.get_last_msg(_MARKET, subject)).seq or 0))


async def _delete(store: Store, place: int) -> None:
    """Delete a message; an empty one needs no overwriting, which takes five times as long."""
    request = msgspec.json.encode({"seq": place, "no_erase": True})
    await store.link.client.request(f"$JS.API.STREAM.MSG.DELETE.{_MARKET}", request, timeout=_WRITE_SECONDS)
