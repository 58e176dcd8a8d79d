"""Who is too busy to answer a find is waited for, not said to offer nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, ClassVar

import msgspec
import pytest

from hearthnet import Call, Offer, Reply, Service
from hearthnet.bus.bus import Bus
from hearthnet.bus.routing import discovery
from hearthnet.contracts import contracts
from hearthnet.contracts.dynamic import versioned
from hearthnet.core.errors import HearthNetError
from hearthnet.core.node_state import ServiceState
from hearthnet.service.decorators import Endpoint
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, QUERY, ProbeService, query
from tests.helpers.service_processes import START_SECONDS
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
READY = ServiceState("probe", 1, "ready", 0, None, (f"{QUERY} corpus=probe", "llm.chat@2.0"), 0)


class _Other(ProbeService):
    """Has another corpus."""

    name: ClassVar[str] = "other"

    def offers(self) -> list[Offer]:
        return [Offer(capability=QUERY, params={"corpus": "other"})]


@contextmanager
def elsewhere(mesh: Mesh, service: Service | None = None) -> Iterator[asyncio.AbstractEventLoop]:
    """The probe, or `service`, on an event loop of its own, which a test can keep busy."""
    up: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def host() -> None:
        over = asyncio.Event()
        async with mesh.hosting(service or ProbeService()):
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


@pytest.mark.req("BUS-99")
async def test_a_busy_process_of_another_home_is_found(mesh: Mesh) -> None:
    with elsewhere(mesh) as loop:
        async with await mesh.guest_bus() as guest:
            loop.call_soon_threadsafe(time.sleep, discovery.NOBODY_SECONDS + 0.4)
            assert (await guest.call(QUERY, query())).output


@pytest.mark.req("BUS-99")
async def test_one_that_fits_is_waited_for_where_others_answer(mesh: Mesh) -> None:
    with elsewhere(mesh) as loop:
        async with mesh.hosting(_Other()), await mesh.guest_bus() as guest:
            loop.call_soon_threadsafe(time.sleep, discovery.NOBODY_SECONDS + 0.4)
            assert (await guest.call(QUERY, query())).output


@pytest.mark.req("BUS-99")
async def test_time_in_which_the_caller_stood_still_is_none(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both share the cores with others: when the caller goes on, the provider may not have."""
    monkeypatch.setattr(discovery, "BUSY_SECONDS", 1.0)
    with elsewhere(mesh) as loop:
        async with await mesh.guest_bus() as guest:
            woken = threading.Event()
            loop.call_soon_threadsafe(woken.wait, 20)
            asking = asyncio.create_task(guest.call(QUERY, query()))

            def stand_still() -> None:
                time.sleep(1.5)
                woken.set()

            try:
                await wait_for(lambda: guest._discovery._finds, what="the find")
                asyncio.get_running_loop().call_soon(stand_still)
                assert (await asking).output
            finally:
                woken.set()


@pytest.mark.req("BUS-99")
async def test_who_never_answers_is_away_and_waited_for_once(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "NOBODY_SECONDS", 0.3)
    woken = threading.Event()
    with elsewhere(mesh) as loop:
        async with await mesh.guest_bus() as guest:
            loop.call_soon_threadsafe(woken.wait, 60)
            try:
                took = [await _refused(guest, mesh) for _ in range(2)]
            finally:
                woken.set()
    (first, busy), (_, again) = took
    assert first >= discovery.BUSY_SECONDS
    assert busy < discovery.BUSY_SECONDS + 1
    assert again < 1


async def _refused(bus: Bus, mesh: Mesh) -> tuple[float, float]:
    """Seconds, on the wall and less what others took, until it is said that nobody answers."""
    began, watch = time.monotonic(), Stopwatch(mesh.server.process.pid)
    with pytest.raises(HearthNetError, match="does not answer") as caught:
        await bus.call(QUERY, query())
    assert caught.value.code == "partition"
    assert caught.value.retry_after_ms
    return time.monotonic() - began, watch.seconds()


@pytest.mark.req("BUS-99")
async def test_an_announcement_ends_the_wait_for_who_is_busy(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "BUSY_SECONDS", 60.0)
    monkeypatch.setattr(discovery, "NOBODY_SECONDS", 0.05)
    woken = threading.Event()
    with elsewhere(mesh, _Other()) as loop:
        async with await mesh.guest_bus() as guest:
            loop.call_soon_threadsafe(woken.wait, 60)
            asking = asyncio.create_task(guest.call(QUERY, query(), timeout_seconds=50))
            try:
                await wait_for(
                    lambda: any(one.settled for one in guest._discovery._finds.values()), what="silence"
                )
                async with mesh.hosting(ProbeService()):
                    assert (await asking).output
            finally:
                woken.set()


@pytest.mark.req("BUS-100")
async def test_who_has_nothing_for_the_asker_is_not_waited_for(mesh: Mesh) -> None:
    """The server itself says that nobody is there: to whom it is not offered, and when it is no more."""
    service = ProbeService(trust="self")
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest:
        await _not_found(guest)
        service.trust = ""
        await host.refresh()
        assert (await guest.call(QUERY, query())).output
        service.offers = list  # type: ignore[method-assign]
        await host.refresh()
        known = guest._discovery.registry
        await wait_for(lambda: not known.all_offers(0), what="the withdrawal to arrive")
        await _not_found(guest)
        async with await mesh.bus() as bus:
            assert await bus.offers() == []
            assert not bus._discovery.registry.all_offers(0)


async def _not_found(bus: Bus) -> None:
    with pytest.raises(HearthNetError, match="nobody in the mesh offers") as caught:
        await bus.call(QUERY, query())
    assert caught.value.code == "not_found"


@pytest.mark.req("BUS-101")
async def test_a_list_of_one_capability_waits_for_its_provider(mesh: Mesh) -> None:
    """Others that offer something else are not asked, and their answers end nothing."""
    with elsewhere(mesh) as loop:
        async with mesh.hosting(_Other()), await mesh.guest_bus() as guest:
            loop.call_soon_threadsafe(time.sleep, discovery.NOBODY_SECONDS + 0.4)
            (view,) = await guest.offers(CHAT)
    assert view.offer.service == "probe"


class _Teller(Service):
    """Offers a capability whose contract comes from its provider."""

    name: ClassVar[str] = "teller"
    contract = versioned(
        msgspec.structs.replace(contracts().get(QUERY), name="experimental.probe.query", match={})
    )

    def offers(self) -> list[Offer]:
        return [Offer(capability=self.contract.id, params={"corpus": "told"})]

    def endpoints(self) -> list[Endpoint]:
        anything = dict[str, Any]
        return [Endpoint(self.contract, self.answer, params_type=anything, input_type=anything)]

    async def answer(self, call: Call[Any, Any]) -> Reply:
        return Reply({"chunks": []}, {"corpus": "told", "embedding_model": None})


@pytest.mark.req("BUS-101")
async def test_provider_of_a_contract_is_waited_for_though_others_answered(mesh: Mesh) -> None:
    name = _Teller.contract.name
    with elsewhere(mesh, _Teller()) as loop:
        async with mesh.hosting(_Other()), await mesh.guest_bus() as guest, await mesh.guest_bus() as late:
            loop.call_soon_threadsafe(time.sleep, discovery.NOBODY_SECONDS + 0.4)
            assert (await guest.call(name, query(), node=mesh.identity.node_id)).output == {"chunks": []}
            with pytest.raises(HearthNetError, match=r"nobody offers experimental\.absent now"):
                await late.fetch_contract("experimental.absent")
            # It was waited for as long as that, and is not for a while.
            assert late._discovery._searched.keys() == {"experimental.absent"}


class _Impostor(_Teller):
    """Offers the same capability with another contract than its version says."""

    name: ClassVar[str] = "impostor"
    contract = msgspec.structs.replace(_Teller.contract, summary="Anything else.")


@pytest.mark.req("BUS-101")
async def test_provider_without_its_contract_does_not_hide_a_busy_one(mesh: Mesh) -> None:
    with elsewhere(mesh, _Teller()) as loop:
        async with mesh.hosting(_Impostor()), await mesh.guest_bus() as guest:
            loop.call_soon_threadsafe(time.sleep, discovery.NOBODY_SECONDS + 0.4)
            found = await guest.fetch_contract(_Teller.contract.name)
    assert (found.summary, found.schema_hash) == (_Teller.contract.summary, _Teller.contract.schema_hash)


@pytest.mark.req("BUS-101")
async def test_a_list_waits_longer_where_answers_are_slow(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second home's answer comes later after the first one's than on a machine with time."""
    monkeypatch.setattr(discovery, "BUSY_SECONDS", 60.0)
    gates = threading.Event(), threading.Event()
    with elsewhere(mesh) as first, elsewhere(mesh, _Other()) as second:
        async with await mesh.guest_bus() as guest:
            for loop, gate in zip((first, second), gates, strict=True):
                loop.call_soon_threadsafe(gate.wait, 60)
            listing = asyncio.create_task(guest.offers("rag.query"))
            try:
                (finding,) = await wait_for(
                    lambda: list(guest.peer.replies._handlers.values()), what="a find"
                )
                await _pass(1.0)
                gates[0].set()
                assert isinstance(finding, discovery.FindRequest)
                await wait_for(lambda: bool(finding._senders), what="the first answer")
                await _pass(2 * discovery.GRACE_SECONDS)
            finally:
                for gate in gates:
                    gate.set()
            corpora = [view.params for view in await listing]
    assert corpora == [{"corpus": "other"}, {"corpus": "probe"}]


async def _pass(seconds: float) -> None:
    """Lets time pass, which is what is tested."""
    over = time.monotonic() + seconds
    await wait_for(lambda: time.monotonic() > over, what="the time")
