"""What every call leaves behind at its two ends, and how calls of a handler continue a trace."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from hearthnet import Call, NodeContext, Stream
from hearthnet.bus.bus import Bus
from hearthnet.bus.session.tracing import MAX_ENTRIES, UNTRACED, Traces, span_ended, span_started
from hearthnet.core.errors import HearthNetError
from hearthnet.nats.connection import NatsConnection
from hearthnet.protocol import traceparent
from hearthnet.protocol.header import Header
from hearthnet.telemetry import steps
from hearthnet.telemetry.span import SpanRecord
from tests.helpers.collector import Collector
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT, CHAT_BODY, QUERY, ProbeService, query
from tests.helpers.waiting import wait_for

SECRET = "my-diary-says"
ABOVE = f"00-{'ab' * 16}-{'cd' * 8}-01"


def header(**fields: Any) -> Header:
    """Of a call from a neighbour."""
    known = {
        "kind": "call",
        "id": "1",
        "sender": "them",
        "community": "c",
        "time": 0,
        "from_instance": "abcdefgh",
    }
    return msgspec.convert({"from": known.pop("sender"), **known, "capability": QUERY, **fields}, Header)


def entries(bus: Bus) -> list[SpanRecord]:
    """What a process has kept."""
    return [entry for _, entry in bus.peer.traces.after(0)]


async def ended(traces: Traces, count: int = 1) -> list[SpanRecord]:
    """The entries of a process that is about to end them."""

    def kept() -> list[SpanRecord] | None:
        found = [entry for _, entry in traces.after(0)]
        return found if len(found) >= count else None

    return await wait_for(kept, 30, f"{count} entries")


# --- the ring


@pytest.mark.req("TRACE-1")
def test_the_newest_ten_thousand_are_kept() -> None:
    traces = Traces()
    for number in range(MAX_ENTRIES + 10):
        entry = traces.calling(QUERY, str(number))
        traces.end(entry)
    kept = list(traces.after(0))
    assert (MAX_ENTRIES, traces.count, len(kept)) == (10_000, 10_010, 10_000)
    assert [kept[0][0], kept[-1][0]] == [11, 10_010]
    assert [kept[0][1].run, kept[-1][1].run] == ["10", "10009"]
    assert [number for number, _ in traces.after(10_008)] == [10_009, 10_010]
    assert list(traces.after(10_010)) == []


@pytest.mark.req("TRACE-1")
def test_who_looks_at_traces_leaves_none() -> None:
    traces = Traces()
    traces.end(traces.calling(UNTRACED, ""))
    assert traces.count == 0


# --- the context


@pytest.mark.req("TRACE-2")
def test_a_call_begins_a_trace_or_continues_the_one_it_is_made_in() -> None:
    traces = Traces()
    first, second = traces.calling(QUERY, ""), traces.calling(QUERY, "")
    assert first.parent == "" != first.span
    assert traceparent.read(first.traceparent) == first.traceparent
    assert first.trace != second.trace
    served = traces.serving(header(traceparent=first.traceparent), 3)
    token = span_started(served)
    inner = traces.calling(QUERY, "")
    span_ended(served, token)
    assert inner.trace == first.trace
    assert inner.parent == served.handler
    assert served.parent == first.span
    assert len({first.traceparent, served.traceparent, inner.traceparent}) == 3
    assert traces.calling(QUERY, "").parent == ""


@pytest.mark.req("TRACE-2")
@pytest.mark.parametrize(
    "text", ["", "nonsense", ABOVE.upper(), "00-" + "0" * 32 + ABOVE[35:], "x" * 100_000]
)
def test_a_malformed_context_begins_a_trace_of_its_own(text: str) -> None:
    entry = Traces().serving(header(traceparent=text), 0)
    assert entry.parent == ""
    assert traceparent.read(entry.traceparent) == entry.traceparent


@pytest.mark.req("TRACE-2")
def test_what_a_caller_says_of_itself_is_kept_in_bounds() -> None:
    entry = Traces().serving(header(run="r" * 10_000, capability="c" * 10_000), 0)
    assert (entry.run, entry.capability) == ("r" * 140, "c" * 140)


@pytest.mark.req("TRACE-2")
def test_the_choice_not_to_export_a_trace_goes_along_with_it() -> None:
    traces = Traces()
    traces.sampled = lambda trace: False
    with traces.run("ask", "r") as run:
        inner = traces.calling(QUERY, "")
    assert run.traceparent.endswith("-00")
    assert inner.traceparent.endswith("-00")


@pytest.mark.req("TRACE-12")
def test_flag_of_others_is_decided_here_and_of_own_node_kept() -> None:
    traces, asked = Traces(node="us"), list[str]()
    answer = True

    def sampled(trace: str) -> bool:
        asked.append(trace)
        return answer

    low, bare = f"00-{'0' * 31}1-{'cd' * 8}-01", f"{ABOVE[:53]}00"
    assert traces.serving(header(traceparent=bare), 0).above == bare, "nothing is exported here"
    for answer in (True, False):
        traces.sampled = sampled
        for said in (ABOVE, bare, low):
            served = traces.serving(header(traceparent=said), 0)
            assert (served.trace, served.parent) == (said[3:35], said[36:52])
            assert served.sampled is answer
            own = traces.serving(header(traceparent=said, **{"from": "us"}), 0)
            assert own.above == said
    assert not {ABOVE[3:35], low[3:35]} & set(asked), "an id must not be chosen so that a ratio takes it"
    assert len(set(asked)) == 2, "a trace is decided about alike"
    assert traces.foreign("nonsense") == ""


@pytest.mark.req("TRACE-1")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HearthNetError("timeout", "late"), "timeout"),
        (ValueError("x"), "internal_error"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_a_run_notes_how_it_ended(error: BaseException, code: str) -> None:
    traces = Traces()
    with pytest.raises(type(error)), traces.run("ask", "r"):
        raise error
    [(_, entry)] = traces.after(0)
    assert (entry.side, entry.code, entry.run) == ("run", code, "r")


# --- over the bus


@pytest.mark.req("TRACE-1", "TRACE-2")
@pytest.mark.asyncio
async def test_a_call_leaves_an_entry_at_each_end(mesh: Mesh) -> None:
    service = ProbeService()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        await bus.call(QUERY, query(SECRET), run="r1")
        [served], [called] = await ended(host.peer.traces), entries(bus)
    assert (called.side, called.capability, called.code, called.run) == ("caller", QUERY, "", "r1")
    assert (called.peer, called.attempts) == (mesh.identity.node_id, 1)
    assert (served.side, served.capability, served.code, served.run) == ("provider", QUERY, "", "r1")
    assert (served.peer, served.call) == (mesh.identity.node_id, called.call)
    assert served.above == called.traceparent
    assert (called.bytes_out, called.bytes_in) == (served.bytes_in, served.bytes_out)
    assert called.bytes_out > len(SECRET)
    assert called.took_ns > served.took_ns > served.handler_took_ns > 0
    assert SECRET not in repr((called, served))
    assert service.calls[0].traceparent == served.traceparent


@pytest.mark.req("TRACE-1")
@pytest.mark.asyncio
async def test_refusals_failures_and_timeouts_leave_their_codes(mesh: Mesh) -> None:
    service = ProbeService()

    async def act(call: Call[Any, Any]) -> None:
        if call.body["input"]["query"] == "fail":
            raise HearthNetError("thread_missing", "gone")
        if call.body["input"]["query"] == "hang":
            await asyncio.Event().wait()

    service.answer = act
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        codes = []
        wrong: dict[str, Any] = {"token": "hntoken://v1/e30.e30.e30"}
        asked: list[tuple[str, dict[str, Any]]] = [
            ("fail", {}),
            ("hang", {"timeout_seconds": 1.5}),
            ("x", wrong),
        ]
        for text, options in asked:
            with pytest.raises(HearthNetError) as caught:
                await bus.call(QUERY, query(text), **options)
            codes.append(caught.value.code)
        assert (
            [entry.code for entry in entries(bus)] == codes == ["thread_missing", "timeout", "token_invalid"]
        )
        served = await ended(host.peer.traces, 3)
        assert sorted(entry.code for entry in served) == sorted(codes)
        assert "e30.e30" not in repr([*served, *entries(bus)])


@pytest.mark.req("TRACE-1")
@pytest.mark.asyncio
async def test_a_call_that_is_given_up_is_cancelled_at_both_ends(mesh: Mesh) -> None:
    service, begun = ProbeService(), asyncio.Event()

    async def act(call: Call[Any, Any]) -> None:
        begun.set()
        await asyncio.Event().wait()

    service.answer = act
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        asking = asyncio.create_task(bus.call(QUERY, query()))
        await begun.wait()
        assert (bus.peer.traces.in_flight["caller"](), host.peer.traces.in_flight["provider"]()) == (1, 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        [served] = await ended(host.peer.traces)
        assert [served.code, *(entry.code for entry in entries(bus))] == ["cancelled", "cancelled"]
        assert (bus.peer.traces.in_flight["caller"](), host.peer.traces.in_flight["provider"]()) == (0, 0)


@pytest.mark.req("TRACE-1")
@pytest.mark.asyncio
@pytest.mark.parametrize(("frames", "code"), [(10, ""), (1, "cancelled")])
async def test_a_stream_leaves_one_entry_with_its_frames(mesh: Mesh, frames: int, code: str) -> None:
    service = ProbeService()

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        for number in range(3):
            await stream.send("token", {"text": f"t{number}"})
        if code:
            await asyncio.Event().wait()

    service.talk = talk
    async with mesh.hosting(service) as host, await mesh.bus() as bus:
        async with bus.stream(CHAT, CHAT_BODY) as stream:
            async for _ in stream:
                frames -= 1
                if not frames:
                    break
        [called] = entries(bus)
        [served] = await ended(host.peer.traces)
        assert (called.code, served.code) == (code, code)
        assert called.frames == (1 if code else 4)
        assert served.frames >= called.frames
        assert served.above == called.traceparent
        assert called.bytes_in > 0


@pytest.mark.req("TRACE-1")
@pytest.mark.asyncio
async def test_a_stream_that_nobody_answers_leaves_an_entry(mesh: Mesh) -> None:
    async with await mesh.bus() as bus:
        with pytest.raises(HearthNetError, match="nobody in the mesh offers"):
            async with bus.stream(CHAT, CHAT_BODY):
                pass
        [called] = entries(bus)
    assert (called.code, called.attempts, called.peer) == ("not_found", 0, "")


class Relay(ProbeService):
    """Calls others over the bus of its own process."""

    bus: Bus

    async def start(self, node: NodeContext) -> None:
        """Keeps the bus."""
        await super().start(node)
        self.bus = node.bus


@pytest.mark.req("TRACE-3")
@pytest.mark.asyncio
async def test_calls_of_a_handler_and_of_its_tasks_belong_to_its_trace(mesh: Mesh) -> None:
    front, back = Relay(), ProbeService()
    hosting = mesh.hosting(back, at=mesh.guest), mesh.hosting(front)
    async with hosting[0] as behind, hosting[1] as host, await mesh.bus() as bus:
        other = behind.peer.node_id

        async def act(call: Call[Any, Any]) -> None:
            task = asyncio.create_task(front.bus.call(QUERY, query(), node=other))
            await front.bus.call(QUERY, query(), node=other)
            await task

        front.answer = act
        await bus.call(QUERY, query(), node=mesh.identity.node_id)
        served = await ended(host.peer.traces, 3)
        behind_it = await ended(behind.peer.traces, 2)
        [asked] = entries(bus)
    every = [asked, *served, *behind_it]
    assert len({entry.trace for entry in every}) == 1
    assert len({entry.traceparent for entry in every}) == 6
    [provider] = [entry for entry in served if entry.side == "provider"]
    callers = [entry for entry in served if entry.side == "caller"]
    assert {entry.parent for entry in callers} == {provider.handler}
    assert {entry.above for entry in behind_it} == {entry.traceparent for entry in callers}


@pytest.mark.req("TRACE-1", "TRACE-3")
@pytest.mark.asyncio
async def test_a_call_inside_one_process_leaves_both_its_entries_there(mesh: Mesh) -> None:
    service = Relay()
    async with mesh.hosting(service) as host, await mesh.bus() as bus:

        async def act(call: Call[Any, Any]) -> None:
            if call.body["input"]["query"] == "again":
                await service.bus.call(QUERY, query("once"))

        service.answer = act
        await bus.call(QUERY, query("again"))
        inner, called, outer = await ended(host.peer.traces, 3)
    assert [entry.side for entry in (inner, called, outer)] in (
        ["provider", "caller", "provider"],
        ["caller", "provider", "provider"],
    )
    inner, called = sorted((inner, called), key=lambda entry: entry.side, reverse=True)
    assert (inner.parent, called.parent) == (called.span, outer.handler)
    assert (called.bytes_out, called.bytes_in) == (inner.bytes_in, inner.bytes_out)


@pytest.mark.req("TRACE-4")
@pytest.mark.asyncio
async def test_a_process_sends_what_it_traced_to_where_it_was_told(mesh: Mesh) -> None:
    with Collector() as collector:
        bus = await Bus.join(mesh.home, mesh.server.url, "test", telemetry_to=collector.url)
        async with mesh.hosting(ProbeService()), bus:
            await bus.call(QUERY, query())
    [span] = collector.spans
    assert (span.service, span.name, span.parent) == ("hearthnet-test", QUERY, "")
    counts = {point.name: point.value for point in collector.points}
    assert (counts["hearthnet.calls"], counts["hearthnet.calls.in_flight"]) == (1, 0)


@pytest.mark.req("TRACE-5")
@pytest.mark.asyncio
async def test_a_process_that_cannot_send_it_leaves_the_bus_and_says_why(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[NatsConnection] = []
    opened = NatsConnection.open

    async def noted(*arguments: Any) -> NatsConnection:
        made.append(await opened(*arguments))
        return made[-1]

    monkeypatch.setattr(NatsConnection, "open", noted)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(HearthNetError, match="otlp"):
        await mesh.bus()
    (left,) = made
    await wait_for(lambda: not left.alive, what="it to leave")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    async with await mesh.bus():
        assert made[-1].alive


@pytest.mark.req("TRACE-1")
def test_many_threads_take_ids_of_one_store_and_no_two_the_same() -> None:
    """Each thread with a bus of its own draws from it."""

    def draw(_: int) -> list[str]:
        return [steps.new_span() for _ in range(3_000)]

    with ThreadPoolExecutor(8) as threads:
        drawn = [span for spans in threads.map(draw, range(8)) for span in spans]
    assert len(set(drawn)) == len(drawn) == 24_000
    assert {len(span) for span in drawn} == {16}
