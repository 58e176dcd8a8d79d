"""What frames of another node cost it that take long to read, and what is still answered."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from hearthnet import Call, Stream
from hearthnet.bus.routing.discovery import FindRequest
from hearthnet.bus.routing.offer_registry import Registry
from hearthnet.bus.session import gossip_frames
from hearthnet.bus.session.frame_budget import UNIT_BYTES, FrameBudget
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.rationed_log import RationedLog
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.protocol.frame import MAX_FOREIGN_BYTES, Frame
from hearthnet.protocol.header import Header
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
NO_ITEMS = b"[%b]" % b",".join([b"1"] * 64)
ONE_WITHOUT_ID = b'[{"id":"none","body":{}}]'


def _has_dropped(budget: FrameBudget) -> bool:
    return budget.dropped > 60


@pytest.mark.req("ATTACK-40", "RATE-3")
@pytest.mark.parametrize("body", [NO_ITEMS, ONE_WITHOUT_ID, b"[1,"])
async def test_a_malformed_batch_costs_as_much_as_the_largest(mesh: Mesh, body: bytes) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as guest:
        own, sender = host.peer, guest.peer.sender
        to = {"to": own.node_id, "to_instance": own.instance}
        calls = subjects.call(guest.peer.node_id, own.node_id, own.instance, parse_capability(QUERY))
        replies = subjects.replies(guest.peer.node_id, own.node_id, own.instance)
        key = sender.keys.to(own.node_id)
        for _ in range(100):
            header = sender.header("calls", ids.new_ulid(), capability=QUERY, **to)
            guest.peer.link.send(calls, frames.sealed(header, body, key))
            header = sender.header("replies", ids.new_ulid(), **to)
            guest.peer.link.send(replies, frames.sealed(header, body, key))
        budgets = host._call_budget, own.replies.budget
        await wait_for(lambda: all(one.dropped > 60 for one in budgets), what="frames to be dropped unread")


@pytest.mark.req("ATTACK-40", "RATE-3")
async def test_events_beyond_the_budget_are_dropped_unread_with_one_line(
    mesh: Mesh, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with await mesh.bus() as own, await mesh.guest_bus() as guest:
        budget, peer = own.peer.membership.reader.budget, guest.peer
        header = peer.sender.header("event", ids.new_ulid(), event=gossip_frames.LOG)
        data = frames.signed(header, b'{"events":1}', peer.identity)
        for _ in range(5_000):
            peer.link.send(subjects.event(peer.node_id, gossip_frames.LOG), data)
        await wait_for(lambda: budget.dropped > 2_500, 60, what="events to be dropped unread")
        lines = [record.message for record in caplog.records]
    # The flooding process hears itself, and is not limited.
    assert sum("event frames than are read" in line for line in lines) == 1
    assert sum("dropped an event" in line for line in lines) == 2


@pytest.mark.req("ATTACK-40", "RATE-3")
async def test_inputs_that_a_handler_takes_have_no_rate(mesh: Mesh) -> None:
    service, text, count = ProbeService(), "x" * UNIT_BYTES, 20

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        await stream.send("token", {"text": "ready"})
        for _ in range(count):
            assert (await stream.receive())["text"] == text
            await stream.send("token", {"text": "next"})

    service.talk = talk
    async with mesh.hosting(service) as host, await mesh.guest_bus() as guest:
        host._control_budget = FrameBudget(host.peer.node_id, "ctl", 2 * count, 0)
        async with guest.stream(CHAT, CHAT_BODY) as stream:
            sent = 0
            async for frame in stream:
                if frame.event == "token" and sent < count:
                    sent += 1
                    await stream.send_input({"text": text})
        assert sent == count


@pytest.mark.req("ATTACK-40", "RATE-3")
async def test_an_earlier_version_is_told_that_its_call_is_too_large(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as guest:
        await guest.call(QUERY, query())
        monkeypatch.setattr(frames, "MAX_FOREIGN_BYTES", 8 * MAX_FOREIGN_BYTES)
        sender, own = guest.peer.sender, host.peer
        subject = subjects.call(guest.peer.node_id, own.node_id, own.instance, parse_capability(QUERY))
        told = list[Frame]()

        class Heard:
            def on_frame(self, frame: Frame) -> None:
                told.append(frame)

            def on_no_responders(self, node: str) -> None: ...

            def on_lost(self) -> None: ...

        for _ in range(3):
            header = sender.header(
                "call", ids.new_ulid(), to=own.node_id, to_instance=own.instance, capability=QUERY
            )
            guest.peer.replies.expect(header.id, Heard())
            body = msgspec.json.encode({**query(), "more": "x" * MAX_FOREIGN_BYTES})
            guest.peer.link.send(subject, frames.sealed(header, body, sender.keys.to(own.node_id)))
        await wait_for(lambda: host._call_budget.dropped == 3, what="all to be dropped")
        await guest.call(QUERY, query())
        assert [frame.header.code for frame in told] == ["payload_too_large"], "one in ten seconds"


@pytest.mark.req("ATTACK-40", "RATE-3")
async def test_every_call_of_an_honest_burst_is_told_to_wait(mesh: Mesh) -> None:
    limited = HearthNetError("rate_limited", "wait")
    async with mesh.hosting(ProbeService()) as host:
        told = [host._may_answer(ids.node_id(bytes(32)), limited, packed=False) for _ in range(1_200)]
    assert all(told[:1_000])
    assert not all(told)


@pytest.mark.req("ATTACK-40", "RATE-3")
async def test_an_answer_to_a_find_has_a_size(caplog: pytest.LogCaptureFixture) -> None:
    own, other = (ids.node_id(bytes([number]) * 32) for number in (1, 2))
    finding = FindRequest(own, Registry(own), lambda answered: False, lists=False)
    for sender, answers in ((other, False), (own, True)):
        header = Header(
            kind="offer", id=ids.new_ulid(), sender=sender, from_instance="aaaaaaaa", community="c", time=1
        )
        finding.on_frame(Frame(header, b'{"offers":[]}' + b" " * MAX_FOREIGN_BYTES, None))
        assert finding.has_answered(sender, "") is answers
    finding.end()


async def test_lines_that_others_cause_are_rationed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 5
    monkeypatch.setattr("hearthnet.core.rationed_log.steady_ms", lambda: now)
    log = RationedLog(logging.getLogger("rationed"))
    for at in (5, 6, 10_004, 10_005):
        now = at
        log.write("at %d", at)
    assert [record.message for record in caplog.records] == ["at 5", "at 10005"]
