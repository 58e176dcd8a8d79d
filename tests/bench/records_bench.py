"""What it costs to put an effect on record, on a real server and disk.

See: docs/protocol/audit.md#entry, docs/protocol/effects.md#claims.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hearthnet.bus.store import Store
from hearthnet.core import ids
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.service.effects.claims import ClaimStore, key
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.service.hosting.host import Host
from hearthnet.trust.audit_chain import AuditEntry
from tests.bench.figures import Figure
from tests.helpers.mesh import Mesh, start_mesh
from tests.helpers.probe import POST, ProbeService, post

_TURNS = 150
_FRAME = "A" * 1200
Work = Callable[[], Awaitable[Any]]


def figures() -> list[Figure]:
    """Medians on an idle node: an audit entry, a claim, and a post with and without them, in turns."""
    with tempfile.TemporaryDirectory(prefix="hn-bench-") as folder:
        cost = asyncio.run(_measure(Path(folder)))
    return [
        Figure("records.append_ms", cost["plain"], "ms", "", "append a message of that size, for comparison"),
        Figure("records.audit_entry_ms", cost["audit"], "ms", "", "chain, sign and append an audit entry"),
        Figure("records.claim_ms", cost["claim"], "ms", "", "claim an effect"),
        Figure("records.post_bare_ms", cost["bare"], "ms", "", "`market.post` without records, to its reply"),
        Figure("records.post_ms", cost["post"], "ms", "", "`market.post` with both its audit entries"),
    ]


async def _measure(folder: Path) -> dict[str, float]:
    mesh = await start_mesh(folder)
    try:
        async with mesh.hosting(ProbeService()) as host, await mesh.bus() as bus, await mesh.store() as store:

            async def posting() -> None:
                await bus.call(POST, post(ids.new_ulid()))

            posts = await _medians({"bare": _bare(host, posting), "post": posting})
            # Apart from these, as two writers in turns would each find the other's entry first.
            return posts | await _medians(_parts(mesh, store))
    finally:
        mesh.server.stop()


def _parts(mesh: Mesh, store: Store) -> dict[str, Work]:
    node = mesh.identity.node_id
    entry = AuditEntry(
        node=node,
        community=node,
        sequence=0,
        previous="",
        time=0,
        kind="began",
        call=ids.new_ulid(),
        instance="aaaaaaaa",
        capability=POST,
        caller=node,
        principal=node,
        frame=_FRAME,
    )
    log, claims = AuditLog(store, mesh.identity), ClaimStore(store, DiskGuard(None))
    return {
        "plain": lambda: store.js.publish(f"mk.post.bench.{ids.new_ulid()}", _FRAME.encode()),
        "audit": lambda: log.append(entry, 5),
        "claim": lambda: claims.write(key("ef", ids.new_ulid()), {"state": "taken"}, 0, 5),
    }


def _bare(host: Host, posting: Work) -> Work:
    """The same with nothing put on record."""
    records = host._records
    begin, end = records.begin, records.end

    async def nothing(*_: Any, **__: Any) -> int:
        return 0

    async def bare() -> None:
        records.begin = records.end = nothing  # type: ignore[method-assign,assignment]
        try:
            await posting()
        finally:
            records.begin, records.end = begin, end  # type: ignore[method-assign]

    return bare


async def _medians(work: dict[str, Work]) -> dict[str, float]:
    """The median of each in ms; they take turns, so that what else the machine does meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(_TURNS):
        for name, do in work.items():
            began = time.perf_counter()
            await do()
            times[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(found) for name, found in times.items()}
