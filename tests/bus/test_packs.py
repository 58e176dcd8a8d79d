"""Calls that are made at once travel together, and are judged, answered, stopped and lost one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hearthnet import Call
from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session.batching import ENOUGH, LARGEST, MOST_BYTES
from hearthnet.bus.session.session import Session
from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import SchemaCheck
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol import batch, subjects
from hearthnet.protocol import frame as frames
from hearthnet.protocol.batch import Answered, BatchedCall
from hearthnet.protocol.frame import MAX_FOREIGN_BYTES, Frame
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.service.hosting import admission
from hearthnet.service.hosting.host import Host
from hearthnet.service.hosting.peer_rates import PeerRates
from tests.helpers.mesh import Mesh
from tests.helpers.offers import offered
from tests.helpers.probe import POST, QUERY, ProbeService, post, query
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.asyncio
MANY = 20
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def _unlimited(mesh: Mesh) -> None:
    """How often another node may ask is counted, and no number is too large."""
    mesh.home.config_file.write_text("[limits]\ncapability_soft = 0\ntotal_soft = 0\n")


def counting(monkeypatch: pytest.MonkeyPatch, *what: tuple[Any, str]) -> Counter[str]:
    """How often each is called from now on."""
    counted: Counter[str] = Counter()
    for owner, name in what:
        original: Callable[..., Any] = getattr(owner, name)

        def count(*given: Any, _original: Any = original, _name: str = name, **named: Any) -> Any:
            counted[_name] += 1
            return _original(*given, **named)

        monkeypatch.setattr(owner, name, count)
    return counted


def expected(bus: Bus) -> int:
    """How many ids the process waits for."""
    return len(bus.peer.replies._handlers)


async def at_once(bus: Bus, bodies: list[dict[str, Any]], **how: Any) -> list[Any]:
    """What came of calls that are made in the same turn of the loop."""
    return await asyncio.gather(*(bus.call(QUERY, body, **how) for body in bodies), return_exceptions=True)


async def until_packed(bus: Bus) -> None:
    """Returns in the very turn of the loop in which calls wait for its end."""
    for _ in range(1_000):
        if bus.peer.batcher._calls:
            return
        await asyncio.sleep(0)
    raise TimeoutError("no call was made")


def codes(came: list[Any]) -> list[str]:
    """The wire code of each, "" where it was answered."""
    return [one.code if isinstance(one, HearthNetError) else "" for one in came]


@pytest.mark.req("BUS-95", "ADMIT-20")
async def test_calls_made_at_once_share_a_frame_and_no_check(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = ProbeService(places=2 * MANY)
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        each = [
            (SchemaCheck, "accepts"),
            (admission, "authorize"),
            (ReplayWindow, "check"),
            (PeerRates, "charge"),
        ]
        counted = counting(monkeypatch, *each, (frames, "box"), (frames, "unbox"))
        came = await at_once(bus, [query(f"water {number}") for number in range(MANY)])
        monkeypatch.undo()
        assert codes(came) == [""] * MANY
        assert expected(bus) == 0
        assert (counted["box"], counted["unbox"]) == (2, 2)
        one_by_one = {"accepts": 4 * MANY, "authorize": MANY, "check": MANY, "charge": MANY}
        assert {name: counted[name] for name in one_by_one} == one_by_one
        seen = service.calls[1:]
        assert [call.body["input"]["query"] for call in seen] == [f"water {number}" for number in range(MANY)]
        assert len({call.id for call in seen}) == len({call.traceparent for call in seen}) == MANY
        assert bus.peer.traces.count == MANY + 1


@pytest.mark.req("BUS-95")
async def test_a_pack_with_enough_in_it_leaves_at_once(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other end works at it while the next is made."""
    async with mesh.hosting(ProbeService(places=500)), await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        flushed = counting(monkeypatch, (bus.peer.link, "flush"))
        tasks = [asyncio.create_task(bus.call(QUERY, query())) for _ in range(2 * ENOUGH + 8)]
        await until_packed(bus)
        assert flushed["flush"] == 2
        assert [len(calls.items) for calls in bus.peer.batcher._calls.values()] == [8]
        assert codes(await asyncio.gather(*tasks, return_exceptions=True)) == [""] * (2 * ENOUGH + 8)


@pytest.mark.req("BUS-95")
async def test_one_call_is_the_frame_that_it_always_was(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        kinds: list[str] = []
        original = host._open

        def seen(subject: str, data: bytes) -> Frame | None:
            frame = original(subject, data)
            kinds.append("" if frame is None else frame.header.kind)
            return frame

        monkeypatch.setattr(host, "_open", seen)
        await bus.call(QUERY, query())
        await at_once(bus, [query(), query()])
        assert kinds == ["call", "calls"]


@pytest.mark.req("BUS-95")
async def test_a_process_that_does_not_say_so_gets_no_packs(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mesh.hosting(ProbeService()), await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        table = bus._discovery.tables[QUERY]
        for listing in table.entries:
            offer = msgspec.structs.replace(listing.view.offer, packs=False)
            listing.view = msgspec.structs.replace(listing.view, offer=offer)
        counted = counting(monkeypatch, (frames, "box"))
        assert codes(await at_once(bus, [query()] * 3)) == [""] * 3
        assert counted["box"] == 6


@pytest.mark.req("BUS-95")
async def test_each_call_of_a_pack_has_an_answer_of_its_own(mesh: Mesh) -> None:
    service, refused = ProbeService(places=2 * MANY), list[str]()

    async def answer(call: Call[Any, Any]) -> None:
        if call.body["input"]["query"] == "refuse":
            refused.append(call.id)
            raise HearthNetError("not_found", "no")
        if call.body["input"]["query"] == "wait":
            await wait_for(lambda: len(refused) == 2, PATIENCE)

    service.answer = answer
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        bodies = [query("wait"), query("refuse"), query(), query("refuse")]
        came = await at_once(bus, bodies)
        assert codes(came) == ["", "not_found", "", "not_found"]


@pytest.mark.req("BUS-95", "BUS-5")
async def test_calls_for_which_there_is_no_place_come_again(mesh: Mesh) -> None:
    service, running, most = ProbeService(places=4), 0, 0

    async def answer(call: Call[Any, Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    service.answer = answer
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        assert codes(await at_once(bus, [query()] * 6, timeout_seconds=PATIENCE)) == [""] * 6
    assert (len(service.calls), most) == (6, 2)


@pytest.mark.req("BUS-96")
async def test_a_pack_is_bounded_and_what_is_too_large_is_told_to_its_caller_alone(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(contracts().get(QUERY).__dict__, "request_limit", 2 * MAX_FOREIGN_BYTES)
    service, packs, unpack = ProbeService(places=500), list[tuple[int, int]](), batch.calls

    def calls(frame: Frame, on_fault: Callable[[], None]) -> list[Frame]:
        found = unpack(frame, on_fault)
        packs.append((len(found), len(frame.body)))
        return found

    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        monkeypatch.setattr(batch, "calls", calls)
        padded = [{**query(), "more": "x" * size} for size in (15_000, 300_000) for _ in range(20)]
        too_large = {**query(), "more": "x" * MAX_FOREIGN_BYTES}
        deep: dict[str, Any] = {**query(), "more": []}
        for _ in range(800):
            deep["more"] = [deep["more"]]
        came = await at_once(bus, [*padded, too_large, deep, *[query()] * 200], timeout_seconds=PATIENCE)
        assert codes(came) == [""] * 40 + ["payload_too_large"] + [""] * 201
        assert str(MAX_FOREIGN_BYTES) in came[40].message
        assert expected(bus) == 0
    assert sum(items for items, _ in packs) >= 200
    assert max(items for items, _ in packs) <= ENOUGH
    assert max(size for _, size in packs) <= MOST_BYTES + LARGEST


@pytest.mark.req("BUS-96")
async def test_what_cannot_be_written_beside_others_fails_alone(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService(places=9)), await mesh.guest_bus() as bus:
        came = await asyncio.gather(
            bus.call(QUERY, query()),
            bus.call(QUERY, query(), run="\ud800"),
            bus.call(QUERY, query()),
            return_exceptions=True,
        )
        assert isinstance(came[1], UnicodeEncodeError)
        assert codes([came[0], came[2]]) == ["", ""]
        assert expected(bus) == 0


@pytest.mark.req("BUS-96", "BUS-4")
async def test_one_call_of_a_pack_is_given_up_and_the_others_are_not(mesh: Mesh) -> None:
    service, go_on = ProbeService(places=2 * MANY), asyncio.Event()

    async def answer(call: Call[Any, Any]) -> None:
        await go_on.wait()

    service.answer = answer
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        tasks = [asyncio.create_task(bus.call(QUERY, query(str(number)))) for number in range(3)]
        await wait_for(lambda: len(service.calls) == 3, PATIENCE)
        tasks[1].cancel()
        await wait_for(lambda: service.stopped, PATIENCE)
        go_on.set()
        came = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(came[1], asyncio.CancelledError)
        assert codes([came[0], came[2]]) == ["", ""]
        (stopped,) = [call for call in service.calls if call.id in service.stopped]
        assert stopped.body["input"]["query"] == "1"
        assert expected(bus) == 0


@pytest.mark.req("BUS-96")
async def test_a_call_that_is_given_up_before_its_pack_leaves_is_not_made(mesh: Mesh) -> None:
    service = ProbeService(places=2 * MANY)
    async with mesh.hosting(service), await mesh.guest_bus() as bus:
        await bus.call(QUERY, query("first"))
        tasks = [asyncio.create_task(bus.call(QUERY, query(name))) for name in ("a", "b", "c")]
        await until_packed(bus)
        tasks[1].cancel()
        came = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(came[1], asyncio.CancelledError)
        assert codes([came[0], came[2]]) == ["", ""]
        assert [call.body["input"]["query"] for call in service.calls] == ["first", "a", "c"]


@pytest.mark.req("BUS-96", "BUS-6")
async def test_nobody_there_is_told_to_every_call_of_a_pack(mesh: Mesh) -> None:
    async with await mesh.guest_bus() as bus:
        async with mesh.hosting(ProbeService(places=2 * MANY)) as host:
            await bus.call(QUERY, query())
            # It dies without a word: its offer is still known.
            await host.peer.link.close()
            came = await at_once(bus, [query()] * MANY, timeout_seconds=PATIENCE)
        assert set(codes(came)) <= {"partition", "not_found"}
        assert expected(bus) == 0


@pytest.mark.req("BUS-96")
async def test_a_pack_that_cannot_be_sent_is_told_to_every_call(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService(places=2 * MANY)), await mesh.guest_bus() as bus:
        await bus.call(QUERY, query())
        tasks = [asyncio.create_task(bus.call(QUERY, query(), timeout_seconds=1)) for _ in range(3)]
        await until_packed(bus)
        link = bus.peer.link
        link._connection, connection = None, link._connection
        link._closed.set()
        came = await asyncio.gather(*tasks, return_exceptions=True)
        assert codes(came) == ["partition"] * 3
        link._closed.clear()
        link._connection = connection
        assert expected(bus) == 0


@pytest.mark.req("BUS-96", "BUS-33")
async def test_what_is_answered_as_the_process_ends_is_sent(mesh: Mesh) -> None:
    service, go_on = ProbeService(places=2 * MANY), asyncio.Event()

    async def answer(call: Call[Any, Any]) -> None:
        await go_on.wait()

    service.answer = answer
    async with await mesh.guest_bus() as bus:
        async with mesh.hosting(service):
            tasks = [asyncio.create_task(bus.call(QUERY, query())) for _ in range(3)]
            await wait_for(lambda: len(service.calls) == 3, PATIENCE)
            go_on.set()
        assert codes(await asyncio.gather(*tasks, return_exceptions=True)) == [""] * 3


class Hostile:
    """A member that sends packs of its own making to the one process that offers `capability`."""

    def __init__(self, bus: Bus, host: Host, capability: str = QUERY) -> None:
        self.peer: Session = bus.peer
        self.host = host
        self.capability = capability
        self.heard: dict[str, list[Frame]] = {}

    def expect(self, *call_ids: str) -> None:
        """Hears the answers to these."""
        for call_id in call_ids:
            self.peer.replies.expect(call_id, _Listener(self.heard.setdefault(call_id, [])))

    async def send(self, body: bytes, **changes: Any) -> None:
        """A pack with this body, honest but for the changes to its header."""
        peer, to = self.peer, self.host.peer
        header = peer.sender.header(
            "calls", ids.new_ulid(), to=to.node_id, to_instance=to.instance, capability=self.capability
        )
        data = frames.sealed(
            msgspec.structs.replace(header, **changes), body, peer.sender.keys.to(to.node_id)
        )
        subject = subjects.call(peer.node_id, to.node_id, to.instance, parse_capability(self.capability))
        await peer.link.publish(subject, data)

    def answer(self, call_id: str) -> str:
        """The one answer's code, `ok` where it is none."""
        (frame,) = self.heard[call_id]
        return frame.header.code or "ok"


class _Listener:
    def __init__(self, heard: list[Frame]) -> None:
        self._heard = heard

    def on_frame(self, frame: Frame) -> None:
        if frame.header.event != "alive":
            self._heard.append(frame)

    def on_no_responders(self, node: str) -> None: ...

    def on_lost(self) -> None: ...


def asked(call_id: str, body: Any) -> BatchedCall:
    """An item of a pack."""
    return BatchedCall(id=call_id, body=msgspec.Raw(msgspec.json.encode(body)), deadline=20_000)


@pytest.mark.req("ADMIT-20", "ADMIT-5")
async def test_what_is_wrong_with_one_item_is_told_of_it_alone(mesh: Mesh) -> None:
    service = ProbeService(places=2 * MANY)
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        hostile = Hostile(bus, host)
        twice, spoilt, unfit, last = (ids.new_ulid() for _ in range(4))
        hostile.expect(twice, spoilt, unfit, last)
        items = [
            batch.encode([asked(twice, query("one")), asked(twice, query("two"))])[1:-1],
            b'{"id":"%b","deadline":"soon","body":{}}' % spoilt.encode(),
            batch.encode([asked(unfit, {"params": {"corpus": "probe"}, "input": {"query": 5}})])[1:-1],
            b'{"id":"../*","body":{}}',
            batch.encode([asked(last, query("last"))])[1:-1],
        ]
        body = b"[" + b",".join(items) + b"]"
        await hostile.send(body)
        await wait_for(lambda: all(hostile.heard.values()), PATIENCE)
        said = [hostile.answer(call_id) for call_id in (twice, spoilt, unfit, last)]
        assert said == ["ok", "bad_request", "bad_request", "ok"]
        assert [call.body["input"]["query"] for call in service.calls] == ["one", "last"]
        # The same again, in a frame of its own: every id was seen.
        dropped = host.dropped
        await hostile.send(body)
        await wait_for(lambda: host.dropped == dropped + 5, PATIENCE)
        assert len(service.calls) == 2
        assert all(len(heard) == 1 for heard in hostile.heard.values())


@pytest.mark.req("ADMIT-20", "ADMIT-7")
async def test_effects_are_not_asked_for_in_packs(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        hostile, call_id = Hostile(bus, host, POST), ids.new_ulid()
        hostile.expect(call_id)
        await hostile.send(batch.encode([asked(call_id, post(ids.new_ulid()))]))
        await wait_for(lambda: hostile.heard[call_id], PATIENCE)
        assert hostile.answer(call_id) == "invalid_signature"
        assert service.calls == []
        # And nobody does: each is signed, and so is its answer.
        bodies = [post(ids.new_ulid()) for _ in range(3)]
        came = await asyncio.gather(*(bus.call(POST, body) for body in bodies))
        assert all(call.evidence for call in service.calls)
        assert len(came) == len(service.calls) == 3


@pytest.mark.req("ADMIT-20", "ADMIT-6", "ADMIT-8")
async def test_a_pack_is_opened_and_judged_as_any_frame(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        hostile, late = Hostile(bus, host), ids.new_ulid()
        hostile.expect(late)
        lost = [ids.new_ulid() for _ in range(6)]
        for call_id, change in zip(
            lost,
            [
                {"to_instance": "zzzzzzzz"},
                {"community": bus.peer.node_id},
                {"to": bus.peer.node_id},
                {"kind": "replies"},
                {"capability": POST},
                {"sender": host.peer.node_id},
            ],
            strict=True,
        ):
            await hostile.send(batch.encode([asked(call_id, query())]), **change)
        await hostile.send(b"[]")
        await hostile.send(batch.encode([asked(ids.new_ulid(), query()) for _ in range(batch.MOST + 1)]))
        await hostile.send(batch.encode([asked(late, query())]), time=now_ms() - 90_000)
        await wait_for(lambda: hostile.heard[late], PATIENCE)
        assert hostile.answer(late) == "expired"
        assert host.dropped == len(lost) + 2
        assert service.calls == []


@pytest.mark.req("ADMIT-20")
async def test_a_pack_counts_against_the_rate_as_often_as_it_has_calls(mesh: Mesh) -> None:
    mesh.home.config_file.write_text("[limits]\ncapability_soft = 5\ncapability_hard = 500\n")
    service = ProbeService(places=2 * MANY)
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus:
        hostile, names = Hostile(bus, host), [ids.new_ulid() for _ in range(MANY)]
        hostile.expect(*names)
        await hostile.send(batch.encode([asked(name, query()) for name in names]))
        await wait_for(lambda: all(hostile.heard.values()), PATIENCE)
        assert Counter(map(hostile.answer, names)) == {"ok": 5, "rate_limited": MANY - 5}


@pytest.mark.req("BUS-95", "BUS-75")
async def test_answers_count_only_as_the_process_that_was_asked_sends_them(mesh: Mesh) -> None:
    service, go_on = ProbeService(places=2 * MANY), asyncio.Event()

    async def answer(call: Call[Any, Any]) -> None:
        await go_on.wait()

    service.answer = answer
    async with mesh.hosting(service) as host, await mesh.guest_bus() as bus, await mesh.bus() as other:
        tasks = [asyncio.create_task(bus.call(QUERY, query())) for _ in range(3)]
        await wait_for(lambda: len(service.calls) == 3, PATIENCE)
        names = [call.id for call in service.calls]
        false = [_false(name) for name in names]
        bodies: list[tuple[bytes, dict[str, Any]]] = [
            (batch.encode(false), {"to_instance": "zzzzzzzz"}),
            (batch.encode(false), {"to": host.peer.node_id}),
            (batch.encode(false), {"community": bus.peer.node_id}),
            (batch.encode(false), {"kind": "reply"}),
            (batch.encode([_false(ids.new_ulid())]), {}),
            (b"[]", {}),
            (b"{}", {}),
        ]
        for body, changes in bodies:
            await _say(host.peer, bus.peer, body, **changes)
        await _say(bus.peer, bus.peer, batch.encode(false))
        await host.peer.link.publish(
            subjects.replies(host.peer.node_id, bus.peer.node_id, bus.peer.instance), b"noise"
        )
        await host.peer.link.flush_subscriptions()
        await wait_for(lambda: bus.peer.replies.dropped == 7, PATIENCE)
        assert not any(task.done() for task in tasks)
        go_on.set()
        came = await asyncio.gather(*tasks)
        assert all(reply.output["chunks"] for reply in came)
        assert expected(other) == 0


def _false(call_id: str) -> Answered:
    body = {"output": {"chunks": []}, "meta": {"corpus": "false", "embedding_model": None, "ms": 1}}
    return Answered(id=call_id, body=msgspec.Raw(msgspec.json.encode(body)))


async def _say(own: Session, caller: Session, body: bytes, **changes: Any) -> None:
    """Answers to `caller` in a pack of its own making."""
    header = own.sender.header("replies", ids.new_ulid(), to=caller.node_id, to_instance=caller.instance)
    header = msgspec.structs.replace(header, **changes)
    data = frames.sealed(header, body, own.sender.keys.to(caller.node_id))
    await own.link.publish(subjects.replies(own.node_id, caller.node_id, caller.instance), data)


@pytest.mark.req("BUS-96")
async def test_answers_keep_their_order_and_large_ones_go_alone(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    packs, unpack = list[list[int]](), batch.answers

    def answers(frame: Frame, on_fault: Callable[[], None]) -> list[Frame]:
        found = unpack(frame, on_fault)
        packs.append([one.header.seq for one in found])
        return found

    monkeypatch.setattr(batch, "answers", answers)
    async with mesh.hosting(ProbeService()) as host, await mesh.guest_bus() as bus:
        call_id, heard = ids.new_ulid(), list[Frame]()
        bus.peer.replies.expect(call_id, _Listener(heard))
        sizes = [10, 20_000, 10, 10, 15_000, 15_000, 15_000, 15_000, 15_000, 10]
        for seq, size in enumerate(sizes, 1):
            body = msgspec.Raw(msgspec.json.encode({"text": "x" * size}))
            item = Answered(id=call_id, seq=seq, event="token", body=body)
            host.peer.batcher.add_reply(bus.peer.node_id, bus.peer.instance, item, bytes(item.body))
        await wait_for(lambda: len(heard) == len(sizes), PATIENCE)
        assert [frame.header.seq for frame in heard] == list(range(1, len(sizes) + 1))
        assert [len(frame.body) for frame in heard] == [size + 11 for size in sizes]
        assert packs == [[3, 4, 5, 6, 7, 8, 9, 10]], "the second is alone, and so the first before it"
        bad = Answered(id=call_id, seq=99, event="\ud800", body=msgspec.Raw(b"{}"))
        good = Answered(id=call_id, seq=100, event="token", body=msgspec.Raw(b"{}"))
        for item in (bad, good):
            host.peer.batcher.add_reply(bus.peer.node_id, bus.peer.instance, item, bytes(item.body))
        await wait_for(lambda: heard[-1].header.seq == 100, PATIENCE)
        assert len(heard) == len(sizes) + 1


@pytest.mark.req("BUS-95")
async def test_offers_say_that_they_take_packs(mesh: Mesh) -> None:
    async with mesh.hosting(ProbeService()), await mesh.guest_bus() as bus:
        views: list[OfferView] = await offered(bus, QUERY)
        assert [view.offer.packs for view in views] == [True]
