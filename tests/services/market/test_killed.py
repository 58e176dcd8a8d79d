"""The market's process is killed between its effect and its answer."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import Process
from typing import Any

import pytest

from hearthnet import ids
from hearthnet.bus.bus import Bus
from hearthnet.canonical import digest
from hearthnet.service.audit import AuditLog
from tests.helpers.mesh import Mesh
from tests.helpers.processes import child_environment
from tests.helpers.waiting import wait_for
from tests.service.workers import audited
from tests.services.market.trade import do, listed, post

pytestmark = pytest.mark.asyncio


async def _market(mesh: Mesh, bus: Bus) -> Process:
    command = (sys.executable, "-m", "hearthnet.service.run", "market", "--home", str(mesh.home.path))
    process = await asyncio.create_subprocess_exec(
        *command, env=child_environment(), stderr=asyncio.subprocess.DEVNULL
    )

    async def offered() -> bool:
        return bool(await bus.offers("market.post"))

    await wait_for(offered, 20, "the market")
    return process


@pytest.mark.req("MARKET-12", "AUDIT-6")
async def test_a_post_whose_market_is_killed_before_it_answers_is_there_once(mesh: Mesh) -> None:
    body: dict[str, Any] = {
        "params": {},
        "input": {"client_id": ids.new_ulid(), "category": "offer", "title": "Saw", "body": "To lend."},
    }
    async with await mesh.bus() as bus, await mesh.store() as store, contextlib.AsyncExitStack() as stack:
        stack.enter_context(mesh.published())
        process = await _market(mesh, bus)
        appended = asyncio.Event()

        def kill() -> None:
            if not appended.is_set():
                process.kill()
                appended.set()

        await store.link.subscribe("mk.post.>", kill)
        await store.link.client.flush()
        posting = asyncio.create_task(bus.call("market.post@1.0", body, timeout_seconds=40))
        try:
            await asyncio.wait_for(appended.wait(), 10)
            await process.wait()
            process = await _market(mesh, bus)
            again = await bus.call("market.post@1.0", body)
            listed = await bus.call("market.list@1.0", {"params": {}, "input": {}})
            info = await store.js.stream_info("MARKET")
            log, wrong = await audited(mesh, AuditLog(store, mesh.identity))
        finally:
            posting.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await asyncio.wait({posting})
    assert [post["event_id"] for post in listed.output["posts"]] == [again.output["event_id"]]
    assert info.state.messages == 1
    assert wrong is None
    settled = next(entry for entry in log if entry.kind == "ended" and entry.began == 1)
    assert (settled.code, settled.outcome) == ("", digest(again.output))


@pytest.mark.req("MARKET-12", "MARKET-14", "MARKET-17")
@pytest.mark.parametrize("verb", ["update", "expire", "delete"])
async def test_what_changes_a_post_happens_once_where_its_market_is_killed(mesh: Mesh, verb: str) -> None:
    """Killed as soon as its event is in the log; asked again at the next process with the same client id."""
    async with await mesh.bus() as bus, await mesh.store() as store, contextlib.AsyncExitStack() as stack:
        stack.enter_context(mesh.published())
        process = await _market(mesh, bus)
        one = await post(bus, "Kaleidoscope")
        appended = asyncio.Event()

        def kill() -> None:
            if not appended.is_set():
                process.kill()
                appended.set()

        await store.link.subscribe("mk.post.>", kill)
        await store.link.client.flush()
        more: dict[str, dict[str, Any]] = {
            "update": {"fields": {"body": "Mine."}},
            "expire": {"reason": "fulfilled"},
            "delete": {},
        }
        given = {"client_id": ids.new_ulid(), "event_id": one, **more[verb]}
        asking = asyncio.create_task(
            bus.call(f"market.{verb}@1.0", {"params": {}, "input": given}, timeout_seconds=40)
        )
        try:
            await asyncio.wait_for(appended.wait(), 20)
            await process.wait()
            process = await _market(mesh, bus)
            again = await do(bus, verb, **given)
            assert await do(bus, verb, **given) == again
            current = await listed(bus)
            assert (await do(bus, "list"))["max_lamport"] == again["lamport"] == 2
            log, wrong = await audited(mesh, AuditLog(store, mesh.identity))

            def erased() -> bool:
                return verb != "delete" or not any(
                    b"Kaleidoscope" in file.read_bytes() for file in mesh.home.jetstream.rglob("*.blk")
                )

            await wait_for(erased, 20, "the words to be off the disk")
        finally:
            asking.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await asyncio.wait({asking})
    assert [found["body"] for found in current.values()] == (["Mine."] if verb == "update" else [])
    assert wrong is None
    began = next(entry.sequence for entry in log if entry.capability == f"market.{verb}@1.0")
    settled = next(entry for entry in log if entry.kind == "ended" and entry.began == began)
    assert (settled.code, settled.outcome) == ("", digest(again))
