"""Providers that answer twice, garbage, in another's name or too much: real frames over a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from hearthnet import Call, Stream
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.attempt import PendingReply
from hearthnet.bus.session.session import Session
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.protocol import frame, subjects
from hearthnet.protocol.header import Header, Kind
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, CHAT_META, QUERY, ROW, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
FALSE = b'{"output":{"chunks":[]},"meta":{"corpus":"false","embedding_model":null,"ms":1}}'
DONE = msgspec.json.encode({**CHAT_META, "ms": 1})


class Liar:
    """Sends what it likes to `caller` as the answer to `call_id`, with the rights and keys of `own`."""

    def __init__(self, own: Session, caller: Session, call_id: str) -> None:
        self.own, self.caller, self.call_id = own, caller, call_id

    def header(self, of_kind: Kind, **changes: Any) -> Header:
        """An honest header but for the changes."""
        caller = self.caller
        honest = self.own.sender.header(of_kind, self.call_id, to=caller.node_id, to_instance=caller.instance)
        return msgspec.structs.replace(honest, **changes)

    async def say(self, header: Header, body: bytes) -> None:
        """Seals and sends."""
        await self.send(self.sealed(header, body))

    def sealed(self, header: Header, body: bytes) -> bytes:
        """Boxed for the caller."""
        return frame.box(frame.plain(header, body), self.own.sender.keys.to(self.caller.node_id))

    async def send(self, data: bytes) -> None:
        """Any bytes."""
        caller = self.caller
        subject = subjects.reply(self.own.node_id, caller.node_id, caller.instance, self.call_id)
        await self.own.link.publish(subject, data)


Lie = Callable[[Liar], Awaitable[None]]


async def _noise(liar: Liar) -> None:
    await liar.send(b"\xff" * 100)
    await liar.send(b"")


async def _unboxed(liar: Liar) -> None:
    await liar.send(frame.plain(liar.header("reply"), FALSE))


async def _sealed_for_itself(liar: Liar) -> None:
    inner = frame.plain(liar.header("reply"), FALSE)
    await liar.send(frame.box(inner, liar.own.sender.keys.of(liar.caller.node_id)))


async def _no_header(liar: Liar) -> None:
    await liar.send(frame.box(b"HN1 p\n[]\n" + FALSE, liar.own.sender.keys.to(liar.caller.node_id)))


def _changed(**changes: Any) -> Lie:
    async def lie(liar: Liar) -> None:
        await liar.say(liar.header("reply", **changes), FALSE)

    return lie


DROPPED: dict[str, tuple[Lie, int]] = {
    "noise": (_noise, 2),
    "unboxed": (_unboxed, 1),
    "sealed for itself": (_sealed_for_itself, 1),
    "no header": (_no_header, 1),
    "another id": (_changed(id=ids.new_ulid()), 1),
    "another sender": (_changed(sender=ids.node_id(bytes([9]) * 32)), 1),
    "another receiver": (_changed(to=ids.node_id(bytes([9]) * 32)), 1),
    "another community": (_changed(community=ids.node_id(bytes([9]) * 32)), 1),
    "kind call": (_changed(kind="call"), 1),
    "kind ack": (_changed(kind="ack"), 1),
    "kind frame": (_changed(kind="frame", seq=1, event="done"), 0),
    "kind offer": (_changed(kind="offer"), 0),
}


@pytest.mark.req("BUS-75")
async def test_what_is_no_answer_changes_nothing(mesh: Mesh) -> None:
    """It is dropped; the answer that comes after it counts."""
    service, lies = ProbeService(), list(DROPPED.values())
    async with mesh.hosting(service, at=mesh.guest) as host, await mesh.bus() as bus:

        async def answer(call: Call[Any, Any]) -> None:
            await lies[len(service.calls) - 1][0](Liar(host.peer, bus.peer, call.id))

        service.answer = answer
        for name, (_, counted) in DROPPED.items():
            before = bus.peer.replies.dropped
            assert (await bus.call(QUERY, query())).output == {"chunks": [ROW]}, name
            assert bus.peer.replies.dropped - before == counted, name


@pytest.mark.req("BUS-75", "STREAM-72")
async def test_nobody_answers_for_another_member(mesh: Mesh) -> None:
    """Not even who knows the call: its answers, frames and signs of life are not the provider's."""
    service = ProbeService()
    async with mesh.hosting(service), await mesh.bus() as bus, await mesh.guest_bus() as guest:

        async def lie(call_id: str) -> None:
            liar = Liar(guest.peer, bus.peer, call_id)
            await liar.say(liar.header("reply"), FALSE)
            await liar.say(liar.header("frame", seq=1, event="done"), DONE)
            await liar.say(liar.header("frame", event="alive"), b"{}")
            await guest.peer.link.flush_subscriptions()
            await bus.peer.link.flush_subscriptions()

        async def answer(call: Call[Any, Any]) -> None:
            waiting = bus.peer.replies._handlers[call.id]
            assert isinstance(waiting, PendingReply)
            last_sign = waiting._last_sign
            await lie(call.id)
            assert waiting._last_sign == last_sign

        async def talk(call: Call[Any, Any], stream: Stream) -> None:
            await lie(call.id)
            await stream.send("token", {"text": "mine"})

        service.answer, service.talk = answer, talk
        assert (await bus.call(QUERY, query())).output == {"chunks": [ROW]}
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            assert [frame.data.get("text") for frame in [one async for one in stream]] == ["mine", None]


@pytest.mark.req("BUS-74")
async def test_of_two_answers_the_first_counts(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service, at=mesh.guest) as host, await mesh.bus() as bus:

        async def twice(call: Call[Any, Any]) -> None:
            liar = Liar(host.peer, bus.peer, call.id)
            first = liar.header("reply")
            for body in (FALSE, FALSE.replace(b"false", b"third")):
                await liar.say(first, body)

        service.answer = twice

        for _ in range(10):
            assert (await bus.call(QUERY, query())).meta["corpus"] == "false"
        await bus.peer.link.flush_subscriptions()
        assert len(service.calls) == 10
        assert not {call.id for call in service.calls} & bus.peer.replies._handlers.keys()


ANSWERS: list[tuple[bytes, str, str]] = [
    (b"", "", "no object"),
    (b"[]", "", "no object"),
    (b'{"output":', "", "no object"),
    (b"[" * 100_000, "", "no object"),
    (b"{}", "", "does not fit"),
    (b'{"output":{"chunks":7},"meta":{}}', "", "does not fit"),
    (b"{}", "not_found", "unknown code"),
    (b'{"error":["not_found"],"message":7}', "not_found", "unknown code"),
    (b'{"error":"shrug","message":"whatever"}', "shrug", "whatever"),
]


@pytest.mark.req("BUS-75")
async def test_an_answer_that_says_nothing_is_an_error_at_once(mesh: Mesh) -> None:
    service, said = ProbeService(places=64), list(ANSWERS)
    async with mesh.hosting(service, at=mesh.guest) as host, await mesh.bus() as bus:

        async def answer(call: Call[Any, Any]) -> None:
            body, code, _ = said[len(service.calls) - 1]
            liar = Liar(host.peer, bus.peer, call.id)
            await liar.say(liar.header("reply", code=code), body)
            await asyncio.Event().wait()

        service.answer = answer
        for _, _, reason in ANSWERS:
            with pytest.raises(HearthNetError, match=reason) as caught:
                await bus.call(QUERY, query(), timeout_seconds=20)
            assert caught.value.code == "internal_error"


Frames = list[tuple[int, str, bytes]]
WORD = b'{"text":"w"}'
STREAMS: dict[str, tuple[Frames, list[str], str]] = {
    "doubled": ([(1, "token", WORD), (1, "token", WORD), (2, "done", DONE)], ["token", "done"], ""),
    "after its end": ([(1, "done", DONE), (2, "token", WORD), (3, "done", DONE)], ["done"], ""),
    "two ends": ([(1, "done", DONE), (1, "error", b"{}"), (2, "error", b"{}")], ["done"], ""),
    "a gap": ([(1, "token", WORD), (3, "token", WORD), (2, "token", WORD)], ["token"], "partition"),
    "a gap before its end": ([(1, "token", WORD), (3, "done", DONE)], ["token"], "partition"),
    "far ahead": ([(2**53 - 1, "token", WORD)], [], "partition"),
    "no object": ([(1, "token", b"[]")], [], "internal_error"),
    "not of its contract": ([(1, "token", b'{"text":[]}')], [], "internal_error"),
    "an end not of its contract": ([(1, "done", b"{}")], [], "internal_error"),
    "an error without one": ([(1, "error", b"{}")], [], "internal_error"),
    "an error that is none": ([(1, "error", b"no")], [], "internal_error"),
    "of a later version": ([(1, "aside", b"{}"), (2, "done", DONE)], ["done"], ""),
}


async def _heard(bus: Bus) -> tuple[list[str], str]:
    events: list[str] = []
    try:
        async with bus.stream(CHAT, CHAT_BODY, timeout_seconds=20) as stream:
            async for one in stream:
                events += [one.event]
    except HearthNetError as error:
        return events, error.code
    return events, ""


@pytest.mark.req("STREAM-72")
async def test_a_stream_that_lies_ends_once_and_with_an_error(mesh: Mesh) -> None:
    service, said = ProbeService(places=64), list(STREAMS.values())
    async with mesh.hosting(service, at=mesh.guest) as host:
        callers: list[Bus] = []

        async def talk(call: Call[Any, Any], stream: Stream) -> None:
            liar = Liar(host.peer, callers[-1].peer, call.id)
            await liar.say(liar.header("reply"), FALSE)
            for seq, event, body in said[len(service.calls) - 1][0]:
                code = "internal_error" if event == "error" else ""
                await liar.say(liar.header("frame", seq=seq, event=event, code=code), body)
            if said[len(service.calls) - 1][2]:
                await asyncio.Event().wait()

        service.talk = talk
        for name, (_, events, code) in STREAMS.items():
            # Each asks for the first time: a process that lies too often is not asked at all.
            async with await mesh.bus() as bus:
                callers.append(bus)
                assert await _heard(bus) == (events, code), name
        await wait_for(lambda: host.in_flight == 0, what="what was given up to be stopped")


@pytest.mark.req("BUS-76")
@pytest.mark.parametrize("home", ["own", "guest"])
async def test_an_answer_over_the_servers_limit_is_a_clear_error_and_the_provider_lives_on(
    mesh: Mesh, home: str
) -> None:
    service = ProbeService()
    async with mesh.hosting(service, at=mesh.guest if home == "guest" else None), await mesh.bus() as bus:
        limit = bus.peer.link.max_payload
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(ROW, "text", "x" * limit)
            with pytest.raises(HearthNetError, match=str(limit)) as caught:
                await bus.call(QUERY, query())
        assert caught.value.code == "payload_too_large"
        assert caught.value.details["limit"] == limit
        assert (await bus.call(QUERY, query())).output
        assert len(service.calls) == 2, "nobody is asked again for what does not fit"
