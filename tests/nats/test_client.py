"""The bus connection of one process, before a real server that dies, stops, comes back, or is none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from hearthnet.core.errors import HearthNetError
from hearthnet.nats import client, connection
from hearthnet.nats.client import NatsClient
from hearthnet.trust.keys import Login
from tests.helpers.nats_server import NatsServer
from tests.helpers.processes import unused_port
from tests.helpers.waiting import DEADLINE_SECONDS, wait_for

pytestmark = pytest.mark.asyncio
LOGIN = Login(bytes(32))
Start = Callable[..., NatsServer]


def _equal(one: list[bytes], other: list[bytes]) -> bool:
    return one == other


class Ear:
    """What came, in order."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def __call__(self, subject: str, data: bytes, absent: bool) -> None:
        self.heard.append(b"nobody" if absent else data)


@pytest_asyncio.fixture
async def server(nats_server: Start) -> AsyncIterator[NatsServer]:
    """A server that everybody may use."""
    yield nats_server()


async def _join(server: NatsServer) -> NatsClient:
    return await NatsClient.connect(server.url, LOGIN, "test")


@pytest.mark.req("BUS-61")
async def test_messages_come_in_order_and_nobody_there_is_said(server: NatsServer) -> None:
    one, other, ear = await _join(server), await _join(server), Ear()
    await one.subscribe("a.*", ear)
    await one.flush_subscriptions()
    for number in range(500):
        await other.publish("a.b", b"%d" % number)
    await one.publish("nobody.here", b"", reply="a.503")
    await wait_for(lambda: len(ear.heard) == 501, what="all of it")
    assert sorted(ear.heard, key=lambda data: data == b"nobody")[:500] == [b"%d" % n for n in range(500)]
    assert b"nobody" in ear.heard
    await one.close()
    await other.close()


@pytest.mark.req("BUS-61")
async def test_what_is_sent_while_the_server_is_away_arrives_and_subscriptions_come_back(
    server: NatsServer,
) -> None:
    one, other, ear, told = await _join(server), await _join(server), Ear(), list[str]()

    async def back() -> None:
        told.append("back")

    one.on_lost(lambda: told.append("lost"))
    one.on_restored(back)
    await one.subscribe("a", ear)
    server.kill()
    await wait_for(lambda: not (one.is_connected or other.is_connected), what="the loss")
    with pytest.raises(HearthNetError, match="away"):
        await one.flush_subscriptions()
    await other.subscribe("b", ear)
    again = server.again()
    await wait_for(lambda: told == ["lost", "back"], what="the way back")
    assert one.is_settling
    await other.connected()
    await other.flush_subscriptions()
    await one.publish("b", b"subscribed while away")
    await other.publish("a", b"subscribed before")
    await wait_for(lambda: len(ear.heard) == 2, what="both")
    assert set(ear.heard) == {b"subscribed while away", b"subscribed before"}
    again.kill()
    await wait_for(lambda: not (one.is_connected or other.is_connected), what="the loss")
    await one.publish("a", b"sent while away")
    third = again.again()
    await wait_for(lambda: ear.heard[2:] == [b"sent while away"], what="what was kept")
    await one.close()
    await other.close()
    third.stop()


@pytest.mark.req("BUS-62")
async def test_memory_is_bounded_while_the_server_is_away(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_WAITING", 1000)
    one = await _join(server)
    server.kill()
    await wait_for(lambda: not one.is_connected, what="the loss")
    # Each takes its line too: 113 and 11 bytes.
    for size, count in ((100, 8), (0, 8)):
        for _ in range(count):
            await one.publish("a", bytes(size))
        with pytest.raises(HearthNetError, match="too much waits") as caught:
            await one.publish("a", bytes(size))
        assert caught.value.code == "partition"
    await one.close()


@pytest.mark.req("BUS-62")
async def test_memory_is_bounded_while_the_server_does_not_read(server: NatsServer) -> None:
    one = await _join(server)
    sent, most = 0, 32 * 1024 * 1024  # what two sockets and the buffer before them hold

    async def flood() -> None:
        nonlocal sent
        while True:
            await one.publish("a", bytes(100_000))
            sent += 1
            await asyncio.sleep(0)

    with server.paused():
        flooding = asyncio.create_task(flood())
        await wait_for(lambda: one.is_congested or sent * 100_000 >= most, what="it to be held")
        before = -1
        while before != sent and sent * 100_000 < most:
            before = sent
            for _ in range(100):  # turns of the loop: nobody reads what the sockets hold
                await asyncio.sleep(0)
        assert one.is_congested
        assert sent * 100_000 < most
        assert one._connection is not None
        assert one._connection._transport is not None
        waiting = one._connection._transport.get_write_buffer_size()
        # Above the limit: what was sent in the turns of the loop before the sender knew of it.
        assert connection._HIGH_WATER < waiting <= connection._HIGH_WATER + 4 * 100_100
    await wait_for(lambda: sent > before, what="it to go on")
    flooding.cancel()
    await asyncio.wait({flooding})
    await one.close()


@pytest.mark.req("BUS-62")
async def test_a_server_that_is_silent_counts_as_gone(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_SECONDS", 0.5)
    one = await _join(server)
    first = one._connection
    assert first is not None
    pulses: set[object] = set()

    def beaten() -> bool:
        pulses.add(first._pulse)
        return len(pulses) > 3

    await wait_for(beaten, what="three pings, which the server answers")
    assert one._connection is first
    with server.paused():
        await wait_for(lambda: not one.is_connected, what="the silence to be noticed")
    await one.connected()
    await one.close()


@pytest.mark.req("BUS-62")
async def test_round_trips_under_way_are_no_silence(server: NatsServer) -> None:
    one = await _join(server)
    first = one._connection
    assert first is not None
    trips = [asyncio.create_task(one.flush_subscriptions()) for _ in range(3)]
    await asyncio.sleep(0)  # they have begun, and nothing was read since
    assert first._pulse is not None
    first._pulse.cancel()
    first._beat()
    await asyncio.gather(*trips)
    assert one._connection is first
    await one.close()


@pytest.mark.req("BUS-61")
async def test_a_reader_that_chokes_ends_nothing(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    one, ear = await _join(server), Ear()

    def choke(subject: str, data: bytes, absent: bool) -> None:
        raise RuntimeError("not to my taste")

    await one.subscribe("bad", choke)
    await one.subscribe("good", ear)
    await one.publish("bad", b"1")
    await one.publish("good", b"2")
    await wait_for(lambda: ear.heard == [b"2"], what="the other")
    assert "a message on bad was not taken" in caplog.text
    await one.close()


@pytest.mark.req("BUS-61")
async def test_questions_are_answered_refused_or_given_up(server: NatsServer) -> None:
    one, other = await _join(server), await _join(server)

    def answer(subject: str, reply: str, data: bytes) -> None:
        answering.append(asyncio.ensure_future(one.publish(reply, data.upper())))

    answering: list[asyncio.Future[None]] = []
    await one.subscribe_requests("q", answer)
    await one.subscribe_requests("silent", lambda subject, reply, data: None)
    await one.flush_subscriptions()
    assert await other.request("q", b"loud", DEADLINE_SECONDS) == b"LOUD"
    assert await asyncio.gather(*(other.request("q", b"%d" % n, DEADLINE_SECONDS) for n in range(20))) == [
        b"%d" % n for n in range(20)
    ]
    with pytest.raises(TimeoutError):
        await other.request("silent", b"", 0.05)
    with pytest.raises(HearthNetError, match="nobody is there") as caught:
        await other.request("nobody", b"", DEADLINE_SECONDS)
    assert caught.value.code == "partition"
    await one.close()
    await other.close()


@pytest.mark.req("BUS-63")
async def test_a_login_that_is_refused_is_said_so_and_one_that_is_taken_away_ends_the_link(
    nats_server: Start, caplog: pytest.LogCaptureFixture
) -> None:
    users = "authorization {{ users: [ {{ nkey: {} }} ] }}"
    guarded = nats_server(users.format(LOGIN.public))
    one = await NatsClient.connect(guarded.url, LOGIN, "test")
    with pytest.raises(HearthNetError) as caught:
        await NatsClient.connect(guarded.url, Login(bytes([1]) * 32), "stranger")
    assert (caught.value.code, "refuses this node's login" in caught.value.message) == ("unauthorized", True)
    guarded.reload(users.format(Login(bytes([2]) * 32).public))
    async with asyncio.timeout(DEADLINE_SECONDS):
        await one.closed()
    with pytest.raises(HearthNetError, match="closed"):
        await one.publish("a", b"")
    with pytest.raises(HearthNetError, match="closed"):
        await one.connected()
    assert "refuses this login for good" in caplog.text
    await one.close()


@pytest.mark.req("BUS-63")
@pytest.mark.parametrize(
    ("greeting", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers is no NATS server: b'HTTP/1.1"),
        (b"INFO nonsense\r\n", "what answers is no NATS server: JSON is malformed"),
        (b"\x00" * 50, "TimeoutError"),
    ],
)
async def test_what_is_no_nats_server_is_a_partition(
    greeting: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECT_SECONDS", 0.5 if reason == "TimeoutError" else DEADLINE_SECONDS)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as elsewhere:
        for port, cause in ((elsewhere.sockets[0].getsockname()[1], reason), (unused_port(), "[Errno 111]")):
            said = re.escape(f"no NATS server answers at nats://127.0.0.1:{port} ({cause}")
            with pytest.raises(HearthNetError, match=said) as caught:
                await NatsClient.connect(f"nats://127.0.0.1:{port}", LOGIN, "test")
            assert caught.value.code == "partition"


@pytest.mark.req("BUS-63")
async def test_a_message_over_the_servers_limit_is_not_sent(nats_server: Start) -> None:
    small = nats_server("max_payload: 1000")
    one, ear = await _join(small), Ear()
    await one.subscribe("a", ear)
    with pytest.raises(HearthNetError, match="the server takes 1000") as caught:
        await one.publish("a", bytes(1001))
    assert (caught.value.code, caught.value.details) == ("payload_too_large", {"limit": 1000})
    await one.publish("a", bytes(1000))
    await wait_for(lambda: ear.heard, what="what may be sent")
    await one.flush_subscriptions()
    assert ear.heard == [bytes(1000)]
    await one.close()


@pytest.mark.req("BUS-61")
async def test_a_link_that_is_closed_while_the_server_is_away_leaves_nothing_behind(
    server: NatsServer,
) -> None:
    before = asyncio.all_tasks()
    one, told = await _join(server), list[str]()
    one.on_lost(lambda: told.append("lost"))
    server.kill()
    await wait_for(lambda: not one.is_connected, what="the loss")
    await one.close()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await one.closed()
    assert told[0] == "lost"
    assert asyncio.all_tasks() == before


@pytest.mark.req("BUS-61")
async def test_a_connection_that_breaks_again_while_it_comes_back_is_made_once_more(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end may come between the server's word that the login is good and the next turn of the loop."""
    one, ear, opened = await _join(server), Ear(), connection.NatsConnection.open
    await one.subscribe("a", ear)
    broken: list[connection.NatsConnection] = []

    async def open_and_break(*arguments: Any) -> connection.NatsConnection:
        made: connection.NatsConnection = await opened(*arguments)
        if len(broken) < 3:
            broken.append(made)
            made.abort()
            await asyncio.sleep(0)
        return made

    monkeypatch.setattr(connection.NatsConnection, "open", open_and_break)
    assert one._connection is not None
    one._connection.abort()
    await wait_for(lambda: len(broken) == 3 and one.is_connected, 20, "the way back")
    await one.flush_subscriptions()
    await one.publish("a", b"1")
    await wait_for(lambda: ear.heard == [b"1"], 20, "what is sent")
    await one.close()


@pytest.mark.req("BUS-61")
async def test_the_first_connection_may_break_as_soon_as_it_is_made(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = connection.NatsConnection.open
    broken: list[connection.NatsConnection] = []

    async def open_and_break(*arguments: Any) -> connection.NatsConnection:
        made: connection.NatsConnection = await opened(*arguments)
        if not broken:
            broken.append(made)
            made.abort()
            await asyncio.sleep(0)
        return made

    monkeypatch.setattr(connection.NatsConnection, "open", open_and_break)
    one = await _join(server)
    assert not broken[0].alive
    await one.flush_subscriptions()
    await one.close()


@pytest.mark.req("BUS-61")
async def test_who_chokes_on_a_loss_or_a_return_keeps_it_from_nobody(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    one, told = await _join(server), list[str]()

    def lost() -> None:
        raise RuntimeError("not to my taste")

    async def back() -> None:
        raise TimeoutError("nor this")

    async def hears() -> None:
        told.append("back")

    one.on_lost(lost)
    one.on_lost(lambda: told.append("lost"))
    one.on_restored(back)
    one.on_restored(hears)
    assert one._connection is not None
    one._connection.abort()
    await wait_for(lambda: told == ["lost", "back"], 20, "both")
    assert "after the connection came back" in caplog.text
    await one.close()


@pytest.mark.req("BUS-96", "BUS-61")
async def test_who_chokes_at_the_end_of_a_turn_keeps_nothing_from_leaving(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    one, ear = await _join(server), Ear()
    await one.subscribe("a", ear)
    await one.flush_subscriptions()

    def choke() -> None:
        raise RuntimeError("not to my taste")

    for heard in ([b"here"], [b"here"] * 2):
        one.on_loop_end(choke)
        one.on_loop_end(lambda: one.send("a", b"here"))
        await wait_for(partial(_equal, ear.heard, heard), 20, "what is sent")
    assert "as a turn ended" in caplog.text
    await one.close()
