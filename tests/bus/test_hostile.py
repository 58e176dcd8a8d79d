"""What members can do to the connections, the calls and the memory of others: nothing.

See: docs/protocol/subjects.md#permissions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import Bus
from hearthnet.bus.session.tracing import CANCELLED
from hearthnet.core import capability_name, ids
from hearthnet.core.capability_name import LONGEST_CAPABILITY, parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.probe import CHAT, CHAT_BODY, POST, QUERY, ProbeService, post, query
from tests.helpers.waiting import wait_for

ODD = ["\u00a0", "\u2028", "\x0b", "\x0c", "\x1c", "\x85", "\u3000", "\ufeff", "\U0001f30a"]
STARVING = 5_000_000
NOBODY = b"NATS/1.0 503\r\n\r\n"


async def _write(bus: Bus, *lines: bytes) -> None:
    """Says to the server what no honest client says."""
    connection = bus.peer.link._connection
    assert connection is not None
    connection.write(*lines)
    await bus.peer.link.flush_subscriptions()


@pytest.mark.asyncio
@pytest.mark.req("BUS-80")
async def test_no_byte_in_a_subject_ends_the_connections_of_those_who_hear_it(mesh: Mesh) -> None:
    lost: list[str] = []
    async with (
        asyncio.timeout(60),
        mesh.hosting(ProbeService()) as host,
        await mesh.guest_bus() as guest,
    ):
        host.peer.link.on_lost(lambda: lost.append("lost"))
        ends = f"{ids.token_form(guest.peer.node_id)}.{ids.token_form(host.peer.node_id)}"
        for odd in ODD:
            subject = f"hn.call.{ends}.{host.peer.instance}.rag{odd}query.v1".encode()
            expected = host.dropped + 2
            await _write(guest, b"PUB %b 3\r\nabc\r\n" % subject)
            await _write(guest, b"PUB %b re%bply 3\r\nabc\r\n" % (subject, odd.encode()))
            while host.dropped < expected:
                await host.peer.link.flush_subscriptions()
        assert (lost, host.peer.link.is_connected) == ([], True)
        assert (await guest.call(QUERY, query())).provider == host.peer.node_id


@pytest.mark.asyncio
@pytest.mark.req("BUS-81")
async def test_nobody_there_is_the_word_of_the_server_alone(mesh: Mesh) -> None:
    """A member publishes it where it may: as its own answers, to a call, a stream and a find of others."""
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus, await mesh.guest_bus() as guest:
        place = f"hn.rep.{ids.token_form(guest.peer.node_id)}.{ids.token_form(bus.peer.node_id)}"

        async def lie(call_id: str) -> None:
            subject = f"{place}.{bus.peer.instance}.{call_id}".encode()
            await _write(guest, b"HPUB %b %d %d\r\n%b\r\n" % (subject, len(NOBODY), len(NOBODY), NOBODY))
            await bus.peer.link.flush_subscriptions()

        async def answer(call: Call[Any, Any]) -> None:
            await lie(call.id)

        async def talk(call: Call[Any, Any], stream: Stream) -> None:
            await lie(call.id)
            await stream.send("token", {"text": "here"})

        service.answer, service.talk = answer, talk
        finds: list[str] = []
        await guest.peer.link.subscribe(
            "hn.find.>",
            lambda subject, data, absent: finds.append(frames.read_signed(data, bus.peer.node_id).header.id),
        )
        await guest.peer.link.flush_subscriptions()
        listing = asyncio.create_task(bus.offers(QUERY))
        await wait_for(lambda: finds, 20, "the find")
        await lie(finds[0])
        assert len(await listing) == 1
        assert (await bus.call(QUERY, query())).output["chunks"]
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            assert [frame.event async for frame in stream] == ["token", "done"]
        assert len(service.calls) == 2


@pytest.mark.req("BUS-82")
def test_what_others_name_is_kept_in_mind_up_to_a_length_only() -> None:
    node = ids.token_form(ids.node_id(bytes(32)))
    kept = [parse_capability.cache_info().currsize, subjects.directed.cache_info().currsize]
    for number in range(50):
        with pytest.raises(HearthNetError) as refused:
            parse_capability(f"a.{'b' * 60_000}{number}@1.0")
        assert len(refused.value.message) < 300
        with pytest.raises(HearthNetError, match="not a directed subject"):
            subjects.directed(f"hn.call.{node}.{node}.abcdefgh.{'b' * 3000}{number}")
        with pytest.raises(HearthNetError, match="not a subject for all"):
            subjects.open_sender(f"hn.find.{node}.{'b' * 3000}{number}")
    assert [parse_capability.cache_info().currsize, subjects.directed.cache_info().currsize] == kept
    longest = f"a.{'b' * (LONGEST_CAPABILITY - 12)}@9999.9999"
    assert len(longest) == LONGEST_CAPABILITY
    named = capability_name.parse_capability(longest)
    subject = subjects.call(ids.PREFIX + node, ids.PREFIX + node, "abcdefgh", named)
    assert subjects.directed(subject).rest == f"abcdefgh.{named.name}.v9999"


@pytest.mark.asyncio
@pytest.mark.req("BUS-83")
@pytest.mark.parametrize("late", [False, True], ids=["stopped", "too late"])
async def test_a_call_that_is_stopped_before_its_first_step_is_answered(mesh: Mesh, late: bool) -> None:
    """As by a cancel or a revocation that comes in the same packet."""
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest:
        start = host._start

        def start_and_stop(running: Any) -> None:
            start(running)
            if late:
                running.due()
            else:
                running.stop()

        host._start = start_and_stop  # type: ignore[method-assign]
        for body, ask in ((post(ids.new_ulid()), POST), (CHAT_BODY, CHAT)):
            with pytest.raises(HearthNetError) as caught:
                await guest.call(ask, body, timeout_seconds=30, approval=None)
            assert caught.value.code == ("timeout" if late else "partition")
        with pytest.raises(HearthNetError) as caught:
            async with guest.stream(CHAT, CHAT_BODY) as stream:
                await anext(stream)
        assert caught.value.code == ("timeout" if late else "partition")
        assert (service.calls, host.in_flight) == ([], 0)
        served = [entry.code for _, entry in host.peer.traces.after(0) if entry.side == "provider"]
        assert served
        assert all(code == ("timeout" if late else CANCELLED) for code in served)


@pytest.mark.asyncio
@pytest.mark.req("BUS-83")
async def test_who_is_refused_by_a_process_that_ends_is_told_so(mesh: Mesh) -> None:
    async with await mesh.guest_bus() as guest, mesh.hosting(ProbeService()) as host:
        view = (await offered(guest, QUERY))[0]
        assert view.offer.instance == host.peer.instance
        asked = asyncio.create_task(guest.call(QUERY, query(), timeout_seconds=30))
        take = host.receive_call

        def take_and_end(frame: Any) -> None:
            host._draining = True
            take(frame)
            closing.append(asyncio.ensure_future(host._answers.finish(5)))

        closing: list[asyncio.Future[None]] = []
        host.receive_call = take_and_end  # type: ignore[method-assign, assignment]
        with pytest.raises(HearthNetError, match="is stopping") as caught:
            await asked
        assert caught.value.code == "capacity_exceeded"
        assert closing
        await asyncio.gather(*closing)


@pytest.mark.asyncio
@pytest.mark.req("STREAM-6")
async def test_input_that_is_no_unicode_is_refused_and_the_stream_goes_on(mesh: Mesh) -> None:
    service = ProbeService()

    async def echo(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": str((await stream.receive())["text"])})

    service.talk = echo
    async with mesh.hosting(service), await mesh.bus() as bus, bus.stream(CHAT, CHAT_BODY) as stream:
        with pytest.raises(HearthNetError) as caught:
            await stream.send_input({"text": "\ud800"})
        assert caught.value.code == "bad_request"
        await stream.send_input({"text": "fine"})
        assert [frame.data.get("text") async for frame in stream] == ["fine", None]


@pytest.mark.asyncio
@pytest.mark.req("STREAM-13")
async def test_a_handler_that_only_sends_gives_way_to_others(mesh: Mesh) -> None:
    """To a caller of one reply no window holds it; its deadline does."""
    service, sent = ProbeService(), 0

    async def forever(call: Call[Any, Any], stream: Stream) -> None:
        nonlocal sent
        while True:
            await stream.send("token", {"text": "more"})
            sent += 1
            if sent == STARVING:
                return

    service.talk = forever
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest:
        with pytest.raises(HearthNetError) as caught:
            await guest.call(CHAT, CHAT_BODY, timeout_seconds=2)
        assert caught.value.code == "timeout"
        await wait_for(lambda: host.in_flight == 0, 20, "its end")
    assert 0 < sent < STARVING
