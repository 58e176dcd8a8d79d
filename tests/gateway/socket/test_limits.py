"""What clients do wrong, and what they leave behind: nothing that others notice."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import Counter
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from hearthnet.gateway.http.rate_limits import RateLimits
from hearthnet.gateway.socket.conversation import Conversation
from hearthnet.gateway.socket.engine import ABORT, KNOWN, SEND
from hearthnet.gateway.socket.frames import SUBPROTOCOL, ClientFrame
from hearthnet.gateway.socket.protocol import SocketProtocol, SocketSettings
from hearthnet.gateway.socket.topic import Topic
from tests.helpers.gateway import House
from tests.helpers.socket_client import Line, complete, limits, line
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio(loop_scope="module")
DEADLINE = 30.0
CALL = {"type": "call", "capability": "llm.complete", "version": "1.0"}


async def ended(one: Line) -> tuple[int | None, str, list[str]]:
    """How the connection ended, and the events that came before."""
    frames = await one.rest()
    return one.close_code, one.reason.partition(":")[0], [frame["event"] for frame in frames]


@pytest.mark.req("SOCK-3")
@pytest.mark.parametrize(
    ("sent", "code", "reason"),
    [
        ("{", 4400, "bad_frame"),
        ('{"type":"hello"}', 4400, "bad_frame"),
        ('{"type":"ack","upto":1}', 4400, "bad_frame"),
        ('{"type":"cancel"}', 4400, "bad_frame"),
        ('{"type":"call","capability":7,"body":{}}', 4400, "bad_frame"),
        (b'{"type":"cancel"}', 1003, "binary"),
        (b"", 1003, "binary"),
        ("x" * 1_100_000, 4413, "payload_too_large"),
    ],
)
async def test_bad_input_closes_its_connection_and_no_other(
    shared: House, sent: str | bytes, code: int, reason: str
) -> None:
    guest = shared.guest()
    async with line(shared, guest) as good, line(shared, guest) as bad:
        await bad.socket.send(sent)
        assert (await ended(bad))[0] == code
        assert bad.reason.startswith(reason)
        await good.call(shared, guest, "llm.complete", complete("still here"))
        assert (await ended(good))[2] == ["opened", "token", "token", "done"]


@pytest.mark.req("SOCK-3")
async def test_what_is_far_too_large_is_not_even_taken_in(
    shared: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_in: list[int] = []
    receive = SocketProtocol.receive

    def counted(connection: SocketProtocol, data: str | bytes) -> ClientFrame | None:
        taken_in.append(len(data))
        return receive(connection, data)

    monkeypatch.setattr(SocketProtocol, "receive", counted)
    async with line(shared, shared.guest()) as one:
        with contextlib.suppress(ConnectionError, ConnectionClosed):
            await one.socket.send("x" * 5_000_000)
        # Its code may be lost with what it had still to send.
        assert (await ended(one))[0] in (1009, 1006)
    async with line(shared, shared.guest()) as one:
        await one.socket.send("x" * 1_100_000)
        assert (await ended(one))[0] == 4413
    assert taken_in == [1_100_000]


@pytest.mark.req("SOCK-3")
async def test_bad_input_in_the_middle_of_a_stream_leaves_the_stream_to_be_resumed(shared: House) -> None:
    shared.workshop.go.clear()
    guest = shared.guest()
    async with line(shared, guest) as one:
        await one.call(shared, guest, "llm.complete", complete("slow 1"))
        stream = (await one.until("opened"))["data"]["stream"]
        await one.send("ack", upto=70)
        assert await ended(one) == (4400, "bad_frame", ["opened"])
    shared.workshop.go.set()
    async with line(shared, guest) as again:
        await again.send("resume", stream=stream)
        assert (await ended(again))[2][-1] == "done"


@pytest.mark.req("SOCK-3")
async def test_what_cannot_be_served_is_told_in_frame_0(shared: House) -> None:
    guest = shared.guest("llm.complete")
    body = complete("hello")
    for capability, given, code in (
        ("llm.nothing", body, "not_found"),
        ("llm.complete", {"params": {}, "input": {}}, "bad_request"),
        (
            "rag.query",
            {"params": {"corpus": "probe"}, "input": {"query": "water"}},
            "token_scope_insufficient",
        ),
    ):
        async with line(shared, guest) as one:
            await one.call(shared, guest, capability, given)
            (refused,) = await one.rest()
        assert (refused["event"], refused["seq"], refused["data"]["error"]) == ("error", 0, code)
        assert one.close_code == 1000


@pytest.mark.req("SOCK-3")
async def test_strangers_are_told_so(shared: House) -> None:
    async with line(shared, None) as one:
        await one.call(shared, None, "llm.complete", complete("hello"))
        code, reason, events = await ended(one)
    assert (code, reason, events) == (4401, "unauthorized", ["error"])


@pytest.mark.req("SOCK-3")
async def test_a_page_from_elsewhere_does_not_get_a_socket(shared: House) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with line(shared, shared.guest(), origin="https://elsewhere.example"):
            pass
    assert refused.value.response.status_code == 401


@pytest.mark.req("SOCK-10")
@pytest.mark.parametrize("protocols", [(), ("hearthnet-bus.v1",), ("hearthnet-bus.v3", "graphql-ws")])
async def test_another_version_is_refused_with_a_hint(shared: House, protocols: tuple[str, ...]) -> None:
    async with line(shared, shared.guest(), protocols=protocols) as one:
        code, reason, _ = await ended(one)
    assert (code, reason) == (4426, "version_unsupported")
    assert SUBPROTOCOL in one.reason


@pytest.mark.req("SOCK-10")
async def test_of_several_versions_ours_is_taken(shared: House) -> None:
    async with line(shared, shared.guest(), protocols=("hearthnet-bus.v3", SUBPROTOCOL)) as one:
        assert one.socket.subprotocol == SUBPROTOCOL


@pytest.mark.req("SOCK-9")
async def test_who_says_nothing_is_closed(shared: House) -> None:
    guest = shared.guest()
    with limits(shared, opening_seconds=0.1):
        async with line(shared, guest) as one:
            assert (await ended(one))[:2] == (4408, "idle_timeout")
            assert "no first frame" in one.reason
    shared.workshop.go.clear()
    with limits(shared, idle_seconds=1):
        async with line(shared, guest) as one:
            await one.call(shared, guest, "llm.complete", complete("slow 1"))
            assert await ended(one) == (4408, "idle_timeout", ["opened"])
    shared.workshop.go.set()


@pytest.mark.req("SOCK-9")
async def test_a_sign_of_life_keeps_a_connection_open(shared: House) -> None:
    shared.workshop.go.clear()
    guest = shared.guest()
    async with line(shared, guest) as one:
        await one.call(shared, guest, "llm.complete", complete("slow 1"))
        await one.until("opened")
        (talk,) = [talk for talk in shared.gateway.sockets.conversations if talk.source is not None]
        before = talk.traffic_at
        await wait_for(lambda: shared.gateway.sockets.now > before, DEADLINE)
        await one.send("ack", upto=0)
        await wait_for(lambda: talk.traffic_at > before, DEADLINE)
        # Without the sign of life this would be its end.
        talk.look(before + shared.gateway.sockets.settings.idle_seconds)
        shared.workshop.go.set()
        assert (await ended(one))[0] == 1000


@pytest.mark.req("SOCK-17")
async def test_a_client_has_so_many_sockets(shared: House) -> None:
    shared.workshop.go.clear()
    guest = shared.guest()
    async with contextlib.AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(line(shared, guest)) for _ in range(33)]
        for one in lines[:32]:
            await one.call(shared, guest, "llm.complete", complete("slow 1"))
            await one.until("opened")
        await lines[32].call(shared, guest, "llm.complete", complete("slow 1"))
        assert await ended(lines[32]) == (4429, "rate_limited", ["error"])
        stranger = shared.guest()
        other = await stack.enter_async_context(line(shared, stranger))
        await other.call(shared, stranger, "llm.complete", complete("slow 1"))
        await other.until("opened")
        shared.workshop.go.set()
        assert (await ended(other))[0] == 1000
        for one in lines[:32]:
            assert (await ended(one))[0] == 1000


@pytest.mark.req("GATE-12", "GATE-16")
@pytest.mark.parametrize("shown", ["hnk_aaaaaaaa_x", "hntoken://v1/forged.or.broken"])
async def test_wrong_token_in_a_frame_counts_against_its_address(
    shared: House, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    monkeypatch.setattr(shared.gateway.clients, "limits", RateLimits(wrong=(2, 0.001)))
    codes = []
    for _ in range(3):
        async with line(shared, None) as one:
            await one.send("subscribe", topic="mesh", token=shown)
            codes.append((await ended(one))[0])
    assert codes == [4401, 4401, 4429]


@pytest.mark.req("SOCK-17")
async def test_a_thousand_opens_and_closes_leave_nothing(shared: House) -> None:
    guests = [shared.guest() for _ in range(8)]
    sockets = shared.gateway.sockets

    async def one_of_each(number: int) -> None:
        guest = guests[number % len(guests)]
        async with line(shared, guest) as one:
            kind = number % 5
            if kind == 0:
                await one.call(shared, guest, "llm.complete", complete("a b"))
                assert (await ended(one))[0] == 1000
            elif kind == 1:
                await one.socket.send("{")
                assert (await ended(one))[0] == 4400
            elif kind == 2:
                await one.call(shared, guest, "llm.complete", complete("a b"))
                one.cut()
            elif kind == 3:
                await one.send("subscribe", topic="mesh")
                await one.until("opened")
            else:
                one.cut()

    async def settled() -> bool:
        await asyncio.sleep(0)
        return not sockets.conversations and not len(sockets.channels) and not sockets.topics

    with limits(shared, linger_seconds=0.05):
        for number in range(10):
            await one_of_each(number)
        await wait_for(settled, DEADLINE)
        before = leftovers(shared)
        for start in range(0, 1000, 20):
            await asyncio.gather(*(one_of_each(number) for number in range(start, start + 20)))
        await wait_for(settled, DEADLINE)
        await wait_for(lambda: leftovers(shared) <= before, DEADLINE, "nothing left")
    assert shared.gateway.limits._open.total() == 0


def leftovers(house: House) -> Counter[str]:
    """What there is of what a socket needs: tasks, subscriptions at the bus, objects."""
    gc.collect()
    tasks = Counter(f"task {_kind(task)}" for task in asyncio.all_tasks())
    kinds: tuple[type[Any], ...] = (Conversation, Topic)
    objects = Counter(f"object {type(one).__name__}" for one in gc.get_objects() if isinstance(one, kinds))
    peer = house.bus.peer
    subscriptions = Counter(
        {"subscriptions": len(peer.link._handlers), "replies": len(peer.replies._handlers)}
    )
    return tasks + objects + subscriptions


def _kind(task: asyncio.Task[Any]) -> str:
    name = task.get_name()
    return "task" if name.startswith("Task-") else name.partition(" ")[0]


@pytest.mark.req("SOCK-17")
async def test_connection_that_dies_without_a_word_is_closed(shared: House) -> None:
    sockets = shared.gateway.sockets
    guest = shared.guest()
    # It dies without a word after its handshake: no FIN, no close.
    socket = await connect(
        shared.socket_url,
        subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
        additional_headers=guest.bearer,
        proxy=None,
        ping_interval=None,
        close_timeout=0,
    )
    await wait_for(lambda: sockets.conversations, DEADLINE)
    socket.transport.pause_reading()
    with limits(shared, opening_seconds=0.1):
        await wait_for(lambda: not sockets.conversations, DEADLINE)
    socket.transport.abort()


class Stuck:
    """A client that takes nothing, as the server's side of its socket sees it."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.scope: dict[str, Any] = {
            "type": "websocket",
            "subprotocols": [],
            "extensions": {
                ABORT: {"abort": self.gone.set},
                SEND: {"send": self.send_texts},
                KNOWN: {"known": int},
            },
        }
        self.begun = False

    async def receive(self) -> dict[str, Any]:
        if not self.begun:
            self.begun = True
            return {"type": "websocket.connect"}
        await self.gone.wait()
        return {"type": "websocket.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] != "websocket.accept":
            await self.gone.wait()
            raise OSError

    async def send_texts(self, _texts: list[bytes]) -> None:
        raise AssertionError("nothing was to be sent")


@pytest.mark.req("SOCK-8", "SOCK-9")
async def test_who_does_not_even_take_the_close_is_cut_off(shared: House) -> None:
    sockets, stuck = shared.gateway.sockets, Stuck()
    with limits(shared, stall_seconds=0.1):
        await asyncio.wait_for(sockets(stuck.scope, stuck.receive, stuck.send), DEADLINE)
    assert stuck.gone.is_set()
    gone = Stuck()
    gone.gone.set()
    gone.begun = True
    await sockets(gone.scope, gone.receive, gone.send)


@pytest.mark.req("SOCK-9")
async def test_deadlines_are_looked_at_often_enough() -> None:
    assert SocketSettings().tick_seconds == 0.25
    assert SocketSettings(check_seconds=60.0).tick_seconds == 1.0
    assert SocketSettings(idle_seconds=0.4).tick_seconds == pytest.approx(0.1)
    assert SocketSettings(stall_seconds=0.001).tick_seconds == pytest.approx(0.02)
