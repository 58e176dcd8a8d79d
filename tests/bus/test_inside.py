"""Calls inside one process go another way, and are the same in everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import Bus
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame as frames
from hearthnet.protocol.stream import WINDOW
from hearthnet.service.effects.audit_log import AuditLog
from hearthnet.service.hosting.host import Host
from hearthnet.trust.audit_chain import AuditEntry
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, POST, QUERY, ProbeService, post, query
from tests.helpers.waiting import wait_for
from tests.service.workers import audited

pytestmark = pytest.mark.asyncio
WAYS = pytest.mark.parametrize("inside", [True, False], ids=["inside", "over the server"])


@asynccontextmanager
async def _hosted(mesh: Mesh, service: ProbeService, inside: bool = True) -> AsyncIterator[tuple[Host, Bus]]:
    """The service, and a bus of its own process or of another one of the node."""
    async with mesh.hosting(service) as host, await mesh.bus() as other:
        yield host, Bus(host.peer) if inside else other


async def _refusal(work: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        await work
    return caught.value


@pytest.mark.req("BUS-27")
async def test_no_server_is_needed_and_the_window_holds(mesh: Mesh) -> None:
    service, sent = ProbeService(), 0

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        nonlocal sent
        for number in range(60):
            await stream.send("token", {"text": str(number)})
            sent += 1

    service.talk = talk
    async with _hosted(mesh, service) as (host, bus):
        await bus.call(QUERY, query())
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            await anext(stream)
        mesh.server.kill()
        await wait_for(lambda: not host.peer.link.is_connected, what="the loss to be noticed")
        sent = 0
        assert (await bus.call(QUERY, query())).instance == host.peer.instance
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            first = await anext(stream)
            await wait_for(lambda: sent >= WINDOW, what="a full window")
            assert sent == WINDOW
            texts = [
                first.data["text"],
                *[frame.data["text"] async for frame in stream if frame.event == "token"],
            ]
        assert texts == [str(number) for number in range(60)]
        mesh.server = mesh.server.again()


@pytest.mark.req("BUS-27")
async def test_a_call_inside_survives_the_loss_of_the_server(mesh: Mesh) -> None:
    service, started, go = ProbeService(), asyncio.Event(), asyncio.Event()

    async def slowly(call: Call[Any, Any]) -> None:
        started.set()
        await go.wait()

    service.answer = slowly
    async with _hosted(mesh, service) as (host, bus):
        asking = asyncio.create_task(bus.call(QUERY, query()))
        await started.wait()
        mesh.server.kill()
        await wait_for(lambda: not host.peer.link.is_connected, what="the loss to be noticed")
        go.set()
        assert (await asking).output
        assert len(service.calls) == 1
        mesh.server = mesh.server.again()


@WAYS
@pytest.mark.req("BUS-27")
async def test_each_side_has_its_own_body(mesh: Mesh, inside: bool) -> None:
    service, body = ProbeService(), query()

    async def spoil(call: Call[Any, Any]) -> None:
        call.body["input"].clear()

    service.answer = spoil
    async with _hosted(mesh, service, inside) as (_, bus):
        await bus.call(QUERY, body)
    assert body == query()


@WAYS
@pytest.mark.req("BUS-27")
async def test_places_deadline_and_giving_up_are_the_same(mesh: Mesh, inside: bool) -> None:
    service = ProbeService(places=1)

    async def forever(call: Call[Any, Any]) -> None:
        await asyncio.Event().wait()

    service.answer = forever
    async with _hosted(mesh, service, inside) as (host, bus):
        late = await _refusal(bus.call(QUERY, query(), timeout_seconds=2))
        await wait_for(lambda: len(service.stopped) == 1, what="the handler to be stopped")
        asking = asyncio.create_task(bus.call(QUERY, query()))
        await wait_for(lambda: host.in_flight == 1, what="the call")
        async with await mesh.bus("third") as third:
            full = await _refusal(third.call(QUERY, query(), timeout_seconds=2))
        asking.cancel()
        await wait_for(lambda: len(service.stopped) == 2, what="the handler to be stopped")
    assert (late.code, full.code) == ("timeout", "capacity_exceeded")


@WAYS
@pytest.mark.req("BUS-27")
async def test_failures_refusals_and_tokens_are_the_same(
    mesh: Mesh, inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    service = ProbeService()

    async def fail(call: Call[Any, Any]) -> None:
        raise ZeroDivisionError("the secret is 42")

    service.answer = fail
    async with _hosted(mesh, service, inside) as (_, bus):
        failed = await _refusal(bus.call(QUERY, query()))
        refused = await _refusal(bus.call(QUERY, query(), token="hntoken://v1/a.b.c"))
        with pytest.raises(HearthNetError) as streamed:
            async with bus.stream(CHAT, CHAT_BODY, token="hntoken://v1/a.b.c") as stream:
                await anext(stream)
    assert failed.code == "internal_error"
    assert failed.details["incident"] in caplog.text
    assert "secret" not in str(failed.to_body())
    assert refused.code == streamed.value.code == "token_invalid"
    assert len(service.calls) == 1


@pytest.mark.req("BUS-27")
async def test_a_frame_over_the_limit_is_refused_inside_too(mesh: Mesh) -> None:
    async with _hosted(mesh, ProbeService()) as (_, bus):
        text = "x" * bus.peer.link.max_payload
        body = {"params": {}, "input": {"messages": [{"role": "user", "content": text}]}}
        error = await _refusal(bus.call(CHAT, body))
    assert error.code == "payload_too_large"
    assert str(len(text)) in error.message


@pytest.mark.req("BUS-27")
async def test_an_effect_is_on_record_with_its_evidence_whichever_way_it_came(mesh: Mesh) -> None:
    service = ProbeService()
    async with _hosted(mesh, service) as (host, bus), await mesh.bus() as other, await mesh.store() as store:
        asked = [post(ids.new_ulid()), post(ids.new_ulid())]
        replies = [await bus.call(POST, asked[0]), await other.call(POST, asked[1])]
        again = [await bus.call(POST, asked[1]), await other.call(POST, asked[0])]
        log, finding = await audited(mesh, AuditLog(store, mesh.identity))
    assert finding is None
    assert [reply.meta["repeated"] for reply in (*replies, *again)] == [False, False, True, True]
    assert [entry.kind for entry in log] == ["began", "ended"] * 4
    began, ended = log[0:4:2], log[1:4:2]
    for entry, body, call in zip(began, asked, service.calls, strict=False):
        assert (entry.call, entry.digest, entry.instance) == (call.id, digest(body), host.peer.instance)
        assert call.evidence is not None
        proved = frames.read_signed(call.evidence, mesh.identity.node_id)
        assert (proved.header.id, msgspec.json.decode(proved.body)) == (call.id, body)
    assert _alike(began[0]) == _alike(began[1])
    assert [entry.outcome for entry in ended] == [digest(reply.output) for reply in replies]


def _alike(entry: AuditEntry) -> dict[str, Any]:
    """What two entries for two such calls have in common."""
    own = ("sequence", "previous", "time", "call", "digest", "idempotency_key", "frame", "signature")
    return {name: value for name, value in msgspec.to_builtins(entry).items() if name not in own}


@pytest.mark.req("BUS-27")
async def test_the_reply_to_an_effect_is_signed_inside_too(mesh: Mesh) -> None:
    seen: list[frames.Frame] = []
    async with _hosted(mesh, ProbeService()) as (host, bus):
        deliver = host.peer.replies.deliver

        def look(frame: frames.Frame) -> bool:
            seen.append(frame)
            return deliver(frame)

        host.peer.replies.deliver = look  # type: ignore[method-assign]
        await bus.call(POST, post(ids.new_ulid()))
        await bus.call(QUERY, query())
    evidence = [frame.evidence for frame in seen]
    assert evidence[1] is None
    assert evidence[0] is not None
    assert frames.read_signed(evidence[0], mesh.identity.node_id).header.kind == "reply"


@pytest.mark.req("BUS-27")
async def test_a_service_that_stops_refuses_its_own_calls_too(mesh: Mesh) -> None:
    service = ProbeService()
    async with _hosted(mesh, service) as (host, bus):
        await bus.call(QUERY, query())
        host._draining = True
        error = await _refusal(bus.call(QUERY, query(), timeout_seconds=10))
        host._draining = False
    assert error.code == "capacity_exceeded"
    assert len(service.calls) == 1
    assert host.peer.sender.local is None
