"""Following who offers a capability; and a process that is killed is gone from every router."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing import discovery, offer_watch
from hearthnet.bus.routing.discovery import GRACE_SECONDS
from hearthnet.bus.routing.offer_registry import Event, OfferView
from hearthnet.bus.routing.offer_watch import OfferChange, OfferWatch, PendingUpdates
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import steady_ms
from hearthnet.protocol import subjects
from hearthnet.protocol.offer import OfferRecord
from tests.bus import failing_worker
from tests.helpers.mesh import Mesh
from tests.helpers.probe import QUERY, ProbeService, query
from tests.helpers.processes import child_environment, pause, paused
from tests.helpers.service_processes import START_SECONDS
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

NODE = ids.node_id(bytes(32))


def _view(instance: int, in_flight: int = 0) -> OfferView:
    record = OfferRecord(
        capability=QUERY,
        instance=f"{instance:08}",
        schema_hash="",
        params={},
        max_concurrent=1,
        in_flight=in_flight,
        issued_at=0,
        expires_at=1,
    )
    return OfferView(NODE, parse_capability(QUERY), record)


@pytest.mark.req("BUS-28")
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=60))
def test_a_slow_reader_ends_up_with_what_is_true(steps: list[tuple[int, bool, bool]]) -> None:
    """Whatever it missed in between; and never has more waiting than there are offers."""
    pending, there, seen = PendingUpdates(), dict[str, OfferView](), dict[str, OfferView]()

    def read() -> None:
        change = pending.pop()
        key = change.view.offer.instance
        assert (key in seen) == (change.event != "appeared")
        seen.pop(key, None)
        if change.event != "gone":
            seen[key] = change.view

    for count, (instance, present, reads) in enumerate(steps):
        view = _view(instance, count)
        key = view.offer.instance
        event: Event = "gone" if not present else "changed" if key in there else "appeared"
        if present or key in there:
            pending.put(event, view)
            there.pop(key, None)
            if present:
                there[key] = view
        assert len(pending) <= 4
        if reads and len(pending):
            read()
    while len(pending):
        read()
    assert seen == there


async def _next(changes: OfferWatch, seconds: float = DEADLINE_SECONDS) -> OfferChange:
    async with asyncio.timeout(seconds):
        return await anext(changes)


@pytest.mark.asyncio
@pytest.mark.req("BUS-28")
async def test_what_appears_changes_and_goes_is_told(mesh: Mesh) -> None:
    service, go = ProbeService(), asyncio.Event()

    async def wait(call: object) -> None:
        await go.wait()

    async with await mesh.guest_bus() as guest, guest.watch("rag.query") as changes:
        async with mesh.hosting(service) as host:
            first = await _next(changes)
            assert (first.event, first.view.offer.instance) == ("appeared", host.peer.instance)
            service.answer = wait
            asking = asyncio.create_task(guest.call(QUERY, query()))
            await wait_for(lambda: service.calls, what="the call")
            await host.refresh()
            busy = await _next(changes)
            assert (busy.event, busy.view.offer.in_flight) == ("changed", 1)
            go.set()
            await asking
            service.places = 9
            await host.refresh()
            while (await _next(changes)).view.offer.max_concurrent != 9:
                pass
        while (await _next(changes)).event != "gone":
            pass
        assert guest._discovery.registry.all_offers(0) == []


@pytest.mark.asyncio
@pytest.mark.req("BUS-28")
async def test_what_is_there_already_comes_first_and_the_end_is_clean(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService(trust="self")):
        bus = await mesh.bus()
        before = asyncio.all_tasks()
        async with bus.watch(QUERY) as changes:
            assert (await _next(changes)).event == "appeared", "it is asked for: nobody announces it"
        assert asyncio.all_tasks() == before
        assert not [
            watcher for watchers in bus._discovery.registry._watchers.values() for watcher in watchers
        ]
        async with bus.watch(QUERY) as changes:
            assert (await _next(changes)).event == "appeared"
            ending = asyncio.create_task(anext(changes, None))
            await bus.close()
            assert await asyncio.wait_for(ending, DEADLINE_SECONDS) is None


@pytest.mark.asyncio
@pytest.mark.req("BUS-28")
async def test_what_nobody_knows_cannot_be_watched(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match=r"rag\.query"):
            bus.watch("rag.qery")


_HOST = """
import asyncio, sys
from pathlib import Path
from hearthnet.bus.bus import Bus
from hearthnet.core.config import Config
from hearthnet.core.home import Home
from hearthnet.service.hosting import active_offers as hosted
from hearthnet.service.hosting.context import NodeContext
from hearthnet.service.hosting.host import Host
from hearthnet.service.hosting.status import Status
from tests.helpers.probe import ProbeService

async def main(folder, url, lifetime):
    hosted.LIFETIME_MS = int(lifetime)
    home, service = Home.resolve(Path(folder)), ProbeService()
    bus = await Bus.join(home, url, "probe")
    node = NodeContext(home, Config(), url, "probe", bus, Status(None))
    await service.start(node)
    host = Host(service, node)
    await host.open()
    print(bus.peer.instance, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


HostingProcess = Callable[[int], Awaitable[tuple[asyncio.subprocess.Process, str]]]


@pytest_asyncio.fixture
async def hosting_process(mesh: Mesh) -> AsyncIterator[HostingProcess]:
    """Starts processes that host the probe, whose offers live for so many ms; each with its instance."""
    started: list[asyncio.subprocess.Process] = []

    async def start(lifetime_ms: int) -> tuple[asyncio.subprocess.Process, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _HOST,
            str(mesh.home.path),
            mesh.server.url,
            str(lifetime_ms),
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(PYTHONPATH=os.getcwd()),
        )
        started.append(process)
        assert process.stdout is not None
        return process, (await asyncio.wait_for(process.stdout.readline(), START_SECONDS)).decode().strip()

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.asyncio
@pytest.mark.req("BUS-29")
async def test_a_killed_process_is_forgotten_at_once_by_who_asks_it(
    mesh: Mesh, hosting_process: HostingProcess
) -> None:
    process, instance = await hosting_process(30_000)
    async with await mesh.guest_bus() as guest, mesh.hosting(ProbeService(), at=mesh.guest) as near:
        chosen, registry = mesh.identity.node_id, guest._discovery.registry

        async def answered() -> bool:
            # On a busy machine another process may be later with its offer than a find waits.
            with contextlib.suppress(HearthNetError):
                return (await guest.call(QUERY, query(), node=chosen)).instance == instance
            return False

        await wait_for(answered, what="an answer of the process")
        pause(process.pid)
        asking = asyncio.create_task(guest.call(QUERY, query(), node=chosen))
        # The call is handed to it before the server can notice, and nobody says that it is lost.
        for _ in range(2):
            await guest.peer.link.flush_subscriptions()
        process.kill()
        watch = Stopwatch(mesh.server.process.pid)
        with pytest.raises(HearthNetError) as caught:
            await asking
        assert caught.value.code in ("not_found", "partition")
        assert watch.seconds() < 7, "a provider that is silent for 5 s is looked for again"
        await process.wait()
        assert instance not in {view.offer.instance for view in registry.all_offers(0)}
        assert (await guest.call(QUERY, query())).instance == near.peer.instance


@pytest.mark.asyncio
@pytest.mark.req("BUS-29")
async def test_a_killed_process_is_gone_within_the_lifetime_of_its_offers(
    mesh: Mesh, hosting_process: HostingProcess
) -> None:
    """Nobody asks it, and nobody says that it is gone. Its offers say 3 s here, for 30."""
    process, instance = await hosting_process(3_000)
    async with await mesh.guest_bus() as guest, guest.watch(QUERY) as changes:
        first = await _next(changes)
        watch = Stopwatch(mesh.server.process.pid)
        assert (first.event, first.view.offer.instance) == ("appeared", instance)
        process.kill()
        await process.wait()
        assert (await _next(changes)).event == "gone"
        assert watch.seconds() <= 3.0 + offer_watch.POLL_SECONDS + 0.5
        assert guest._discovery.registry.all_offers(0) == []


@pytest.mark.asyncio
@pytest.mark.req("BUS-98")
async def test_named_process_that_answers_late_is_found(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have long answered when it goes on; nothing about it was known before."""
    monkeypatch.setattr(discovery, "BUSY_SECONDS", 20.0)
    async with failing_worker.running(mesh, 2) as (quick, slow), await mesh.bus() as bus:
        with paused(slow.process.pid):
            call = asyncio.create_task(
                bus.call(QUERY, query(), node=bus.peer.node_id, instance=slow.instance, timeout_seconds=60)
            )
            await wait_for(lambda: quick.instance in _known(bus), what="the other's answer")
            over = asyncio.get_running_loop().time() + 3 * GRACE_SECONDS
            await wait_for(
                lambda: asyncio.get_running_loop().time() > over, what="the end of a find without a name"
            )
            assert not call.done()
        assert (await call).output


def _known(bus: Bus) -> set[str]:
    topic = subjects.topic(parse_capability(QUERY))
    return {view.offer.instance for view in bus._discovery.registry.offers(topic, steady_ms())}
