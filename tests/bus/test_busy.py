"""A service that is too busy to answer a find is waited for, not said to offer nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from hearthnet.bus import discovery
from hearthnet.bus.bus import Bus
from hearthnet.node_state import ServiceState
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.service_processes import START_SECONDS
from tests.helpers.stopwatch import Stopwatch

pytestmark = pytest.mark.asyncio
READY = ServiceState("probe", 1, "ready", 0, None, (f"{QUERY} corpus=probe", "llm.chat@2.0"), 0)


@contextmanager
def elsewhere(mesh: Mesh) -> Iterator[asyncio.AbstractEventLoop]:
    """The probe on an event loop of its own, which a test can keep busy."""
    up: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def host() -> None:
        over = asyncio.Event()
        async with mesh.hosting(ProbeService()):
            up.set_result((asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(host()))
    thread.start()
    loop, over = up.result(START_SECONDS)
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


async def _names(bus: Bus) -> set[str]:
    return {view.capability.name for view in await bus.offers()}


@pytest.mark.req("BUS-23")
async def test_a_busy_service_of_the_own_node_is_found(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "BUSY_SECONDS", 20.0)
    with mesh.published(READY), elsewhere(mesh) as loop:
        async with await mesh.bus() as bus, await mesh.bus("second") as second:
            loop.call_soon_threadsafe(time.sleep, discovery.NOBODY_SECONDS + 0.4)
            listed, called = await asyncio.gather(_names(bus), second.call(QUERY, query()))
            assert "rag.query" in listed
            assert called.output


@pytest.mark.req("BUS-23")
async def test_one_that_does_not_answer_at_all_is_not_waited_for_long(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "BUSY_SECONDS", 0.8)
    with mesh.published(READY), elsewhere(mesh) as loop:
        async with await mesh.bus() as bus:
            woken = threading.Event()
            loop.call_soon_threadsafe(woken.wait, 20)
            started, watch = time.monotonic(), Stopwatch(mesh.server.process.pid)
            try:
                assert await _names(bus) == set()
            finally:
                woken.set()
            assert time.monotonic() - started > 0.7
            assert watch.seconds() < 1.8


@pytest.mark.req("BUS-23")
async def test_who_has_answered_is_not_waited_for(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "BUSY_SECONDS", 20.0)
    other = ServiceState("market", None, "waiting", 1, None, ("market.post@1.0",), 0)
    with mesh.published(READY, other):
        async with mesh.hosting(ProbeService()), await mesh.bus() as bus:
            watch = Stopwatch(mesh.server.process.pid)
            assert "rag.query" in await _names(bus)
            assert watch.seconds() < 2
