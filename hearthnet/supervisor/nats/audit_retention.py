"""Retention of the audit log: its oldest entries are removed, each behind a checkpoint in the chain.

    the log exceeds a limit --> the newest entry that may go --> audit checkpoint, on the disk
    --> the stream is closed, trimmed up to that entry, and opened again --> the next step

The supervisor alone does it, in steps of `STEP_ENTRIES` at most. Interrupted before the trimming, it leaves a
checkpoint whose entries are still there; the next pass decides anew. Interrupted within it, the log takes no
entry until the next pass or start opens it. Entries younger than `KEPT_MS`, calls that have not ended, and
all entries behind one of these stay.

See: docs/protocol/audit.md#retention, docs/decisions/0196-retention-of-the-audit-log.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal, NamedTuple

from hearthnet.bus.store import Store
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.config import AuditConfig
from hearthnet.core.config_follower import ConfigFollower
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import least_ms, now_ms
from hearthnet.service.effects import jetstream_records
from hearthnet.service.effects.audit_log import STREAM, AuditLog
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.supervisor.nats import streams
from hearthnet.supervisor.os.cancellation import heed_cancelling
from hearthnet.trust import audit_chain
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.keys import Identity

_log = logging.getLogger(__name__)
PASS_SECONDS: Final = 600.0
STEP_ENTRIES: Final = 20_000
STEP_BYTES: Final = 64 * 1024 * 1024
KEPT_MS: Final = 25 * 60 * 60 * 1000
"""Longer than a run, an approval or a grant may be used: nothing younger is removed."""
_DAY_MS: Final = 24 * 60 * 60 * 1000
_MB: Final = 1_000_000
_TRIMMED_SHARE: Final = 0.9
"""What a log over its limit of size is trimmed to, so that not each entry is a step of its own."""
_STORED_BYTES: Final = 30
"""What the server stores with a message, its subject included."""
_WRITE_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 1.0
_WHAT: Final = "the audit log"
Limit = Literal["age", "size"]


class Removable(NamedTuple):
    """The oldest entry, the newest that may be removed, and the limit that demands it."""

    first: int
    upto: int
    limit: Limit


class Retention:
    """The retention of the audit log of the node in `home`."""

    def __init__(self, home: Home, identity: Identity, community: str, settings: AuditConfig) -> None:
        self._home = home
        self._identity = identity
        self._community = community
        self._settings = settings
        self._searched_to = 0
        self._unended: frozenset[int] = frozenset()
        """Calls without an end up to entry `_searched_to`."""

    async def follow(self, url: str) -> None:
        """Remove what exceeds the settings, now, every ten minutes and after each change; until cancelled."""
        follower = ConfigFollower(self._home, "the limits of the audit log", lambda config: config.audit)
        changes = follower.changes()
        change = asyncio.ensure_future(anext(changes))
        try:
            while True:
                heed_cancelling()
                await self._pass(url)
                await asyncio.wait({change}, timeout=PASS_SECONDS)
                if change.done():
                    self._settings = change.result() or self._settings
                    change = asyncio.ensure_future(anext(changes))
        finally:
            change.cancel()

    async def _pass(self, url: str) -> None:
        """Remove in steps until nothing exceeds the settings; what fails is for the next pass."""
        try:
            async with await Store.join(self._home, url, "retention") as store:
                await self._reopen(store)
                began = time.monotonic()
                while await self.step(store):
                    heed_cancelling()
                    # A log that is far too large must not have the disk and a core to itself.
                    await asyncio.sleep(time.monotonic() - began)
                    began = time.monotonic()
        except (HearthNetError, OSError) as error:
            _log.error("the audit log is not trimmed now: %s", error)

    async def step(self, store: Store) -> bool:
        """Remove up to `STEP_ENTRIES` entries behind one checkpoint; return whether any were."""
        log = AuditLog(store, self._identity, DiskGuard(self._home))
        found = await self._removable(log)
        if found is None:
            return False
        last = await log.line(found.upto)
        if last is None:
            return False
        checkpoint = self._entry(
            kind="removed", call="", count=found.upto, outcome=content_hash(last), rule=found.limit
        )
        number = await log.append(checkpoint, _WRITE_SECONDS)
        await self._until_done(lambda: streams.trim_audit(store.js, found.upto))
        await self._reopen(store)
        _log.info("audit log: entries up to %d removed by %s; checkpoint %d", found.upto, found.limit, number)
        # Of a log that the disk has damaged, the server may keep as many entries more as were lost.
        return (await log.extent()).first > found.first

    async def _reopen(self, store: Store) -> None:
        async def reopen() -> None:
            if streams.is_trimming((await store.js.stream_info(STREAM)).config):
                await streams.reopen_audit(store.js)

        await self._until_done(reopen)

    async def _until_done(self, request: Callable[[], Awaitable[None]]) -> None:
        """Repeat `request` until the server has answered it, or this is cancelled.

        The server may carry out an unanswered request late, so the next one is not sent before: a trimming
        behind the reopening would remove more.
        """
        while True:
            heed_cancelling()
            try:
                async with jetstream_records.answering(_WHAT, _WRITE_SECONDS):
                    return await request()
            except HearthNetError as error:
                _log.warning("the audit log takes no entries until this succeeds: %s", error.message)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _removable(self, log: AuditLog) -> Removable | None:
        there, now, settings = await log.extent(), now_ms(), self._settings
        before, most = there.first - 1, settings.max_mb * _MB
        excess = there.size_bytes - _TRIMMED_SHARE * most if 0 < most < there.size_bytes else 0.0
        oldest = least_ms() - settings.keep_days * _DAY_MS if settings.keep_days else 0
        ends = [await log.line(number) for number in (there.first, there.last)]
        first, newest = [None if line is None else audit_chain.read(line) for line in ends]
        # A clock that was put back says nothing about ages.
        if first is None or newest is None or now < newest.time:
            return None
        # Of what grows too old one entry after the other, a day goes at a time.
        if not excess and first.time >= oldest - _DAY_MS:
            return None
        upto, size, unended = before, 0, dict[int, AuditEntry]()
        limit: Limit = "age"
        async for entry, line_bytes in _entries(log, before, min(before + STEP_ENTRIES, there.last)):
            size += line_bytes
            too_old, too_large = entry.time < oldest, excess > 0
            is_recent = now - KEPT_MS < entry.time <= now
            if is_recent or size > STEP_BYTES or not (too_old or too_large):
                break
            _follow(unended, entry)
            excess -= line_bytes + _STORED_BYTES
            # One with a time to come is as old as the entries behind it.
            if entry.time <= now:
                upto, limit = entry.sequence, "age" if too_old else "size"
        unended = {number: entry for number, entry in unended.items() if number <= upto}
        upto = await self._before_unended(log, unended, upto, there.last)
        return Removable(there.first, upto, limit) if upto > before else None

    async def _before_unended(
        self, log: AuditLog, unended: dict[int, AuditEntry], upto: int, last: int
    ) -> int:
        """Return the newest entry up to `upto` before any of `unended` that has no end in the log.

        The ends of these are written, for the next step: no call lives as long as `KEPT_MS`.
        """
        if not unended:
            return upto
        place = max(upto, self._searched_to) if unended.keys() <= self._unended else upto
        async for entry, _ in _entries(log, place, last):
            place = entry.sequence
            if entry.kind == "ended":
                unended.pop(entry.began, None)
            if not unended:
                return upto
        if place < last:
            return 0  # Not all of it was read: the ends may be there.
        if unended.keys() != self._unended:
            _log.warning("audit log: nothing goes from entry %d on, a call without an end", min(unended))
        self._unended, self._searched_to = frozenset(unended), last
        for number, entry in unended.items():
            await self._end(log, number, entry, last)
        return min(unended) - 1

    async def _end(self, log: AuditLog, began: int, entry: AuditEntry, upto: int) -> None:
        """Record the end of a call that has none up to entry `upto`, unless it has got one since."""
        ended = self._entry(
            kind="ended", call=entry.call, service=entry.service, began=began, code="outcome_unknown"
        )
        await log.append(ended, _WRITE_SECONDS, since=upto)

    def _entry(self, **fields: object) -> AuditEntry:
        return AuditEntry(
            node=self._identity.node_id,
            community=self._community,
            sequence=0,
            previous="",
            time=now_ms(),
            instance="",
            **fields,  # type: ignore[arg-type]
        )


async def _entries(log: AuditLog, after: int, upto: int) -> AsyncIterator[tuple[AuditEntry, int]]:
    """Yield the entries after number `after`, up to `upto`, with the sizes of their lines."""
    async for batch in log.lines(after, upto):
        for message in batch:
            yield audit_chain.read(message.data), len(message.data)


def _follow(unended: dict[int, AuditEntry], entry: AuditEntry) -> None:
    """Keep the calls that have begun and not ended."""
    if entry.kind == "began":
        unended[entry.sequence] = entry
    elif entry.kind == "ended":
        unended.pop(entry.began, None)
