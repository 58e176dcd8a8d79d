"""Handlers, services and connections that fail: whoever waits is answered, and the rest goes on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from hearthnet import Call, NodeContext, Offer, Reply, Stream, capability
from hearthnet.bus.bus import Bus
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import (
    HearthNetError,
    InternalError,
    NotFound,
    Overloaded,
    Unauthorized,
    Unavailable,
)
from hearthnet.service.hosting import announcer, main
from hearthnet.service.hosting.call_execution import CallExecution
from hearthnet.service.hosting.host import Host
from hearthnet.service.hosting.status import Status
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, Anything, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio


class Stray(BaseException):
    """Not an Exception."""


class Misfit(ProbeService):
    """Answers `rag.query` with something else."""

    @capability(QUERY)
    async def query(self, call: Call[Anything, Anything]) -> Reply:
        """No list of passages."""
        return Reply({"chunks": "none"}, {"corpus": "probe", "embedding_model": None})


async def _events(bus: Bus) -> list[str]:
    async with bus.stream(CHAT, CHAT_BODY) as stream:
        return [frame.event async for frame in stream]


@pytest.mark.req("SERVICE-5")
@pytest.mark.parametrize("raised", [Stray("no Exception"), SystemExit(3)])
async def test_whatever_a_handler_raises_its_caller_is_answered(mesh: Mesh, raised: BaseException) -> None:
    service = ProbeService()

    async def fail(call: Call[Any, Any]) -> None:
        raise raised

    service.answer = fail
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match="its log has the reason") as caught:
            await bus.call(QUERY, query(), timeout_seconds=30)
        assert caught.value.code == "internal_error"
        assert await _events(bus) == ["token", "token", "token", "done"]
        assert host.in_flight == 0


@pytest.mark.req("SERVICE-5", "WIRE-12")
@pytest.mark.parametrize(
    ("raised", "caught_by"),
    [
        (NotFound("there is no shelf 'a'"), NotFound),
        (HearthNetError("token_expired", "it is over"), Unauthorized),
        (HearthNetError("rate_limited", "wait", retry_after_ms=9_000), Overloaded),
        (HearthNetError("partition", "it ends", details={"rule": "provider_stopping"}), Unavailable),
    ],
    ids=["not_found", "token_expired", "rate_limited", "partition"],
)
async def test_caller_catches_a_providers_error_by_class(
    mesh: Mesh, raised: HearthNetError, caught_by: type[HearthNetError]
) -> None:
    service = ProbeService()

    async def fail(call: Call[Any, Any]) -> None:
        raise raised

    service.answer = fail
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        with pytest.raises(caught_by) as caught:
            await bus.call(QUERY, query(), timeout_seconds=10)
    assert (caught.value.code, caught.value.rule) == (raised.code, raised.rule)


@pytest.mark.req("SERVICE-5")
@pytest.mark.parametrize("details", [{"huge": "x" * 20_000_000}, {"odd": object()}])
async def test_an_error_that_cannot_be_sent_is_still_an_answer(mesh: Mesh, details: dict[str, Any]) -> None:
    service = ProbeService()

    async def fail(call: Call[Any, Any], *stream: Stream) -> None:
        raise HearthNetError("not_found", "no", details=details)

    service.answer, service.talk = fail, fail
    async with mesh.hosting(service), await mesh.bus() as bus:
        for asking in (bus.call(QUERY, query(), timeout_seconds=30), _events(bus)):
            with pytest.raises(HearthNetError) as caught:
                await asking
            assert caught.value.code == "internal_error"


@pytest.mark.req("SERVICE-5")
async def test_answer_that_breaks_its_contract_is_the_services_defect(
    mesh: Mesh, caplog: pytest.LogCaptureFixture
) -> None:
    service = Misfit()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"words": "unknown"})

    service.talk = talk
    async with mesh.hosting(service), await mesh.bus() as bus:
        for asking, says in ((bus.call(QUERY, query(), timeout_seconds=30), QUERY), (_events(bus), CHAT)):
            caplog.clear()
            with pytest.raises(InternalError, match=f"{says} failed; its log has the reason") as caught:
                await asking
            incident = caught.value.details["incident"]
            reasons = [
                str(one.exc_info[1]) for one in caplog.records if one.exc_info and incident in one.message
            ]
            assert len(reasons) == 1
            assert reasons[0].startswith(f"the answer does not fit its contract: {says}")


@pytest.mark.req("STREAM-4")
async def test_a_frame_that_is_too_large_is_named_as_such(mesh: Mesh) -> None:
    service = ProbeService()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "small"})
        await stream.send("token", {"text": "x" * 20_000_000})

    service.talk = talk
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        assert (await anext(stream)).seq == 1
        with pytest.raises(HearthNetError) as caught:
            await anext(stream)
    assert caught.value.code == "payload_too_large"


@pytest.mark.req("STREAM-4")
async def test_nothing_is_sent_and_nobody_waits_after_the_end(mesh: Mesh) -> None:
    service, late = ProbeService(), []

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        async def flood() -> None:
            for _ in range(100):
                await stream.send("token", {"text": "more"})

        late.append(asyncio.create_task(flood()))
        await wait_for(lambda: not stream._outgoing.may_send, what="a full window")

    service.talk = talk
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        await wait_for(lambda: late and late[0].done(), what="the leftover to be told")
        assert [frame.event async for frame in stream] == ["token"] * 16 + ["done"]
    assert "after the end" in str(late[0].exception())


@pytest.mark.req("STREAM-10")
async def test_a_clock_that_is_set_ends_no_stream(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    service, real, ticks = ProbeService(), time.time_ns, []
    look = Host._check_running

    def look_after(host: Host, running: CallExecution) -> None:
        look(host, running)
        ticks.append(running)

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "before"})
        await wait_for(lambda: len(ticks) >= 2, what="two looks at the clock")

    monkeypatch.setattr(Host, "_check_running", look_after)
    service.talk = talk
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        await anext(stream)
        monkeypatch.setattr(time, "time_ns", lambda: real() + 3_600 * 10**9)
        ticks.clear()
        assert [frame.event async for frame in stream] == ["done"]


@pytest.mark.req("SERVICE-6")
async def test_announcements_and_signs_of_life_outlast_a_failure(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(announcer, "REPUBLISH_MS", 20)
    service = ProbeService()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await asyncio.Event().wait()

    service.talk = talk
    caplog.set_level("INFO")
    async with await mesh.bus() as bus, mesh.hosting(service) as host, bus.stream(CHAT, CHAT_BODY):
        heard: list[str] = []
        await wait_for(lambda: service.calls, what="the stream")
        await bus.peer.link.subscribe("hn.adv.>", lambda subject, data, absent: heard.append(subject))
        monkeypatch.setattr(host.peer.link, "max_payload", 10)
        await wait_for(lambda: "not announced" in caplog.text, what="an announcement to fail")
        await wait_for(lambda: "no sign of life sent" in caplog.text, what="a sign of life to fail")
        monkeypatch.undo()
        monkeypatch.setattr(announcer, "REPUBLISH_MS", 20)
        alive: list[str] = []
        replies = f"hn.rep.*.{bus.peer.identity.token}.>"
        await bus.peer.link.subscribe(replies, lambda subject, data, absent: alive.append(subject))
        heard.clear()
        assert host.in_flight == 1
        await wait_for(lambda: heard, what="an announcement after the failure")
        await wait_for(lambda: alive, what="a sign of life after the failure")


@pytest.mark.req("SERVICE-6")
async def test_an_offer_without_a_method_is_refused_and_the_others_stay(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        before = host.offers
        service.offers = lambda: [Offer(capability="rag.ingest@1.0")]  # type: ignore[method-assign]
        with pytest.raises(HearthNetError, match="no method"):
            await host.refresh()
        assert host.offers == before
        assert (await bus.call(QUERY, query())).output


class _SlowStart(ProbeService):
    ended = ""

    async def start(self, node: NodeContext) -> None:
        """Takes for ever."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise


async def _node(mesh: Mesh, service: ProbeService) -> tuple[Bus, NodeContext]:
    bus = await mesh.bus(service.name)
    status = Status(None)
    return bus, NodeContext(mesh.home, load_config(mesh.home), mesh.server.url, service.name, bus, status)


@pytest.mark.req("SERVICE-1")
async def test_a_service_that_is_told_to_end_while_it_starts_ends(mesh: Mesh) -> None:
    service, stop = _SlowStart(), asyncio.Event()
    bus, node = await _node(mesh, service)
    starting = asyncio.create_task(main._started(service, node, stop))
    await asyncio.sleep(0)
    stop.set()
    assert await starting is False
    assert service.ended == "cancelled"
    await bus.close()


@pytest.mark.req("SERVICE-6")
async def test_a_service_whose_connection_is_over_ends(mesh: Mesh) -> None:
    service, stop = ProbeService(), asyncio.Event()
    bus, node = await _node(mesh, service)
    await service.start(node)
    host = Host(service, node)
    hosting = asyncio.create_task(main._host(service, host, Status(None), stop))
    await wait_for(lambda: host.offers, what="the offers")
    await bus.peer.link.close()
    with pytest.raises(HearthNetError, match="starts again"):
        await hosting
    await node.close()


@pytest.mark.req("SERVICE-6")
async def test_a_change_of_offers_that_cannot_be_made_is_logged(
    mesh: Mesh, caplog: pytest.LogCaptureFixture
) -> None:
    service, stop = ProbeService(), asyncio.Event()
    _bus, node = await _node(mesh, service)
    await service.start(node)
    host = Host(service, node)
    hosting = asyncio.create_task(main._host(service, host, Status(None), stop))
    await wait_for(lambda: host.offers, what="the offers")
    before = host.offers
    service.offers = lambda: [Offer(capability="rag.ingest@1.0")]  # type: ignore[method-assign]
    service.offers_changed()
    await wait_for(lambda: "stay as they were" in caplog.text, what="the refusal")
    assert host.offers == before
    stop.set()
    await hosting
    assert caplog.text.count("stay as they were") == 1
    await node.close()
