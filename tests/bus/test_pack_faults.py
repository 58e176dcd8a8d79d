"""What goes wrong with one call, one reader or one deadline, and what it must not take with it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.core.errors import HearthNetError
from hearthnet.core.timer_wheel import TimerWheel
from hearthnet.protocol import batch
from hearthnet.protocol.frame import Frame
from hearthnet.protocol.header import LONGEST, Header
from hearthnet.telemetry.span import SpanRecord
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

PATIENCE = 30.0


def packs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls each pack has that arrives from now on."""
    arrived, unpack = list[int](), batch.calls

    def calls(frame: Frame, on_fault: Callable[[], None]) -> list[Frame]:
        found = unpack(frame, on_fault)
        arrived.append(len(found))
        return found

    monkeypatch.setattr(batch, "calls", calls)
    return arrived


@pytest.mark.asyncio
@pytest.mark.req("BUS-96")
async def test_what_one_call_of_a_pack_breaks_at_its_provider_is_told_of_it_alone(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh.hosting(ProbeService(places=9)) as host, await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        serving, begun, arrived = host.peer.traces.serving, 0, packs(monkeypatch)

        def break_second(header: Header, bytes_in: int) -> SpanRecord:
            nonlocal begun
            begun += 1
            if begun == 2:
                raise RuntimeError("not to my taste")
            return serving(header, bytes_in)

        monkeypatch.setattr(host.peer.traces, "serving", break_second)
        came = await asyncio.gather(
            *(bus.call(QUERY, query(), timeout_seconds=PATIENCE) for _ in range(3)), return_exceptions=True
        )
        codes = [one.code if isinstance(one, HearthNetError) else "" for one in came]
        assert codes == ["", "internal_error", ""]
        assert arrived == [3], "they came as one pack"
        assert host.in_flight == 0


@pytest.mark.asyncio
@pytest.mark.req("BUS-96")
async def test_an_answer_is_not_kept_for_the_calls_that_left_with_it(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, go_on, frames = ProbeService(places=9), asyncio.Event(), list["weakref.ref[Any]"]()
    unpack = batch.answers

    class Kept(Frame, frozen=True, weakref=True, gc=True):
        """One whose end can be seen."""

    def answers(frame: Frame, on_fault: Callable[[], None]) -> list[Frame]:
        found: list[Frame] = [Kept(one.header, one.body, None) for one in unpack(frame, on_fault)]
        frames.extend(map(weakref.ref, found))
        return found

    async def answer(call: Call[Any, Any]) -> None:
        if call.body["input"]["query"] == "slow":
            await go_on.wait()

    service.answer = answer
    monkeypatch.setattr(batch, "answers", answers)
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        slow, *quick = [
            asyncio.create_task(bus.call(QUERY, query(name))) for name in ("slow", "one", "two", "three")
        ]
        await asyncio.wait(quick)
        quick.clear()
        gc.collect()
        assert len(frames) == 3
        assert [frame() for frame in frames] == [None] * 3
        assert len(bus.peer.replies._handlers) == 2
        go_on.set()
        await slow
        assert not bus.peer.replies._handlers


@pytest.mark.asyncio
@pytest.mark.req("BUS-96")
async def test_who_says_too_much_for_a_header_is_told_so_alone(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh.hosting(ProbeService(places=9)), await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        arrived = packs(monkeypatch)
        came = await asyncio.gather(
            bus.call(QUERY, query()),
            bus.call(QUERY, query(), run="r" * (LONGEST + 1), timeout_seconds=PATIENCE),
            bus.call(QUERY, query(), run="r" * 5_000),
            bus.call(QUERY, query()),
            return_exceptions=True,
        )
        codes = [one.code if isinstance(one, HearthNetError) else "" for one in came]
        assert codes == ["", "payload_too_large", "", ""]
        assert arrived == [2], "the others came as one pack"


@pytest.mark.asyncio
@pytest.mark.req("STREAM-15")
async def test_two_who_read_one_stream_both_go_on(mesh: Mesh) -> None:
    service, go_on = ProbeService(), asyncio.Event()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await go_on.wait()
        for text in ("one", "two"):
            await stream.send("token", {"text": text})

    service.talk = talk
    async with mesh.hosting(service), await mesh.guest_bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        readers = [asyncio.ensure_future(anext(stream)) for _ in range(2)]
        await asyncio.sleep(0)
        go_on.set()
        async with asyncio.timeout(PATIENCE):
            read = await asyncio.gather(*readers)
        assert sorted(frame.data["text"] for frame in read) == ["one", "two"]


@pytest.mark.asyncio
@pytest.mark.req("BUS-97")
async def test_who_chokes_on_a_deadline_keeps_it_from_nobody(caplog: pytest.LogCaptureFixture) -> None:
    alarms, rung = TimerWheel(), list[int]()

    class Waits:
        def __init__(self, number: int) -> None:
            self.number = number

        def due(self) -> None:
            rung.append(self.number)
            raise RuntimeError("not to my taste")

    now = asyncio.get_running_loop().time()
    for number in range(3):
        alarms.at(now, Waits(number))
    await wait_for(lambda: len(rung) == 3, PATIENCE)
    assert sorted(rung) == [0, 1, 2]
    assert caplog.text.count("as a deadline passed") == 3
