"""The market's process is killed at each step of what it is asked to do, and asked again."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from typing import Any, Final

import pytest

from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet_market import MarketService
from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment
from tests.helpers.service_processes import START_SECONDS
from tests.helpers.waiting import wait_for
from tests.service.workers import audited
from tests.services.market import dying
from tests.services.market.trade import do, found, listed, post

pytestmark = pytest.mark.asyncio
_ASKED: Final[dict[str, dict[str, Any]]] = {
    "post": {"category": "offer", "title": "Saw", "body": "Mine."},
    "update": {"fields": {"title": "Saw", "body": "Mine."}},
    "expire": {"reason": "fulfilled"},
    "delete": {},
}
_BEFORE: Final = {"Kaleidoscope": "To lend."}
_AFTER: Final = {
    "post": {"Kaleidoscope": "To lend.", "Saw": "Mine."},
    "update": {"Saw": "Mine."},
    "expire": {},
    "delete": {},
}
_CASES: Final = [
    *((verb, step) for verb in _ASKED for step in (dying.UNDONE, *dying.DONE)),
    *(("delete", step) for step in dying.ERASING),
]


async def _killed_at(step: str, mesh: Mesh, bus: Bus, verb: str, given: dict[str, Any]) -> None:
    """Asks a process that dies at that step, and waits until it is dead."""
    command = (sys.executable, "-m", "tests.services.market.dying", str(mesh.home.path), step)
    process = await asyncio.create_subprocess_exec(*command, env=child_environment())
    asking: asyncio.Task[Any] | None = None
    try:

        async def offered() -> bool:
            return bool(await bus.offers("market.post"))

        await wait_for(offered, START_SECONDS, "the market")
        body = {"params": {}, "input": given}
        asking = asyncio.create_task(bus.call(f"market.{verb}@1.0", body, timeout_seconds=60))
        await asyncio.wait_for(process.wait(), 60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if asking is not None:
            asking.cancel()
            await asyncio.wait({asking})
    assert process.returncode == -9


def _whole(mesh: Mesh) -> None:
    """The view's file is sound, and its index holds the posts that are current and no others."""
    with contextlib.closing(sqlite3.connect(mesh.home.service("market") / "view.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        database.execute("INSERT INTO post_text (post_text, rank) VALUES ('integrity-check', 1)")


async def _seen(bus: Bus) -> dict[str, str]:
    """Titles and bodies as a list shows them, and no others by search."""
    titles = {one["title"]: one["body"] for one in (await listed(bus)).values()}
    for title in ("Kaleidoscope", "Saw"):
        assert await found(bus, title) == [title] * (title in titles)
    return titles


@pytest.mark.req("MARKET-12", "MARKET-14", "MARKET-17", "AUDIT-6")
@pytest.mark.parametrize(("verb", "step"), _CASES)
async def test_what_is_asked_of_a_market_that_is_killed_happens_once(
    mesh: Mesh, verb: str, step: str
) -> None:
    """Wholly or not at all before it is asked again, then once, with the same answer whenever it is asked."""
    async with await mesh.bus() as bus, await mesh.store() as store, contextlib.AsyncExitStack() as stack:
        stack.enter_context(mesh.published())
        async with mesh.hosting(MarketService()):
            one = await post(bus, "Kaleidoscope")
        given = {"client_id": ids.new_ulid(), **({} if verb == "post" else {"event_id": one}), **_ASKED[verb]}
        await _killed_at(step, mesh, bus, verb, given)
        _whole(mesh)
        async with mesh.hosting(MarketService()):
            assert await _seen(bus) == (_BEFORE if step == dying.UNDONE else _AFTER[verb])
            answer = await do(bus, verb, **given)
            assert await do(bus, verb, **given) == answer
            assert await _seen(bus) == _AFTER[verb]
            assert (await do(bus, "list"))["max_lamport"] == answer["lamport"] == 2
            assert (await store.js.stream_info("MARKET")).state.last_seq == 2

            def erased() -> bool:
                return verb != "delete" or not any(
                    b"Kaleidoscope" in file.read_bytes()
                    for file in (*mesh.home.jetstream.rglob("*.blk"), *mesh.home.service("market").iterdir())
                )

            await wait_for(erased, 20, "the words to be off the disk")
            log, wrong = await audited(mesh, AuditLog(store, mesh.identity))
        _whole(mesh)
    assert wrong is None
    # 1 and 2 are of the post that was there before.
    (cut_off,) = (entry for entry in log if entry.kind == "ended" and entry.began == 3)
    told = ("outcome_unknown", "") if step == dying.UNDONE else ("", digest(answer))
    assert (cut_off.code, cut_off.outcome) == told
    assert [entry.code for entry in log if entry.kind == "ended" and entry.began > 3] == ["", ""]
