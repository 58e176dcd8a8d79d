"""Packs: several calls, or answers, in one frame."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core import ids
from hearthnet.protocol import batch
from hearthnet.protocol.batch import Answered, BatchedCall
from hearthnet.protocol.frame import Frame, FrameError
from hearthnet.protocol.header import LONGEST, Header, Kind
from tests.protocol.mutants import ANNA, BERTA, mutations

FIRST, SECOND = "01HZX3Q4R5S6T7V8W9XA0BC1D0", "01HZX3Q4R5S6T7V8W9XA0BC1D1"


def header(kind: Kind, **fields: Any) -> Header:
    """What a pack of Anna's for Berta says of all that is in it."""
    return Header(
        kind=kind,
        id="01HZX3Q4R5S6T7V8W9XA0BC1DE",
        sender=ANNA.node_id,
        community=BERTA.node_id,
        time=1_795_292_100_000,
        from_instance="a1b2c3d4",
        to=BERTA.node_id,
        to_instance="z9y8x7w6",
        **fields,
    )


CALLS, REPLIES = header("calls", capability="rag.query@1.0"), header("replies")


def raw(value: Any) -> msgspec.Raw:
    """JSON that nobody parses on the way."""
    return msgspec.Raw(msgspec.json.encode(value))


def calls(body: bytes) -> list[Frame]:
    """The calls in a pack with this body."""
    return batch.calls(Frame(CALLS, body, None))


@pytest.mark.req("WIRE-17")
def test_calls_come_out_as_if_each_had_come_alone() -> None:
    items = [
        BatchedCall(
            id=FIRST,
            body=raw({"input": {"query": "water"}}),
            deadline=30_000,
            token="hntoken://v1/e30.e30.e30",
            run="r",
            hops=2,
            traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            session="table 7",
        ),
        BatchedCall(id=SECOND, body=raw({}), deadline=1),
    ]
    first, second = calls(batch.encode(items))
    alone = header(
        "call",
        capability="rag.query@1.0",
        deadline=30_000,
        token="hntoken://v1/e30.e30.e30",
        run="r",
        hops=2,
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        session="table 7",
    )
    assert first == Frame(msgspec.structs.replace(alone, id=FIRST), b'{"input":{"query":"water"}}', None)
    plain = header("call", capability="rag.query@1.0", deadline=1)
    assert second == Frame(msgspec.structs.replace(plain, id=SECOND), b"{}", None)


@pytest.mark.req("WIRE-17")
def test_answers_are_replies_and_frames_of_streams() -> None:
    items = [
        Answered(id=FIRST, body=raw({"error": "not_found"}), code="not_found"),
        Answered(id=SECOND, body=raw({"text": "word"}), seq=7, event="token"),
    ]
    reply, frame = batch.answers(Frame(REPLIES, batch.encode(items), None))
    assert reply.header == msgspec.structs.replace(header("reply", code="not_found"), id=FIRST)
    assert reply.body == b'{"error":"not_found"}'
    assert frame.header == msgspec.structs.replace(header("frame", seq=7, event="token"), id=SECOND)
    assert frame.body == b'{"text":"word"}'


@pytest.mark.req("WIRE-17")
@pytest.mark.parametrize(
    "spoilt",
    [
        b'{"id":"%b","deadline":-1,"body":{}}' % FIRST.encode(),
        b'{"id":"%b","deadline":"soon","body":{}}' % FIRST.encode(),
        b'{"id":"%b","token":null,"body":{}}' % FIRST.encode(),
        b'{"id":"%b"}' % FIRST.encode(),
    ],
)
def test_an_item_that_is_malformed_is_a_call_without_a_body_and_harms_no_other(spoilt: bytes) -> None:
    good = batch.encode([BatchedCall(id=SECOND, body=raw({"a": 1}), deadline=5)])[1:-1]
    first, second = calls(b"[" + spoilt + b"," + good + b"]")
    assert first == Frame(msgspec.structs.replace(first.header, id=FIRST, kind="call"), b"", None)
    assert (first.header.token, first.header.deadline) == ("", 0)
    assert (second.header.id, second.header.deadline, second.body) == (SECOND, 5, b'{"a":1}')


@pytest.mark.req("WIRE-17")
@pytest.mark.parametrize("nobody", [b"{}", b"5", b"null", b'{"id":5}', b'{"id":"../../*"}', b'{"body":{}}'])
def test_an_item_without_an_id_is_left_out(nobody: bytes) -> None:
    good = batch.encode([BatchedCall(id=SECOND, body=raw({}))])[1:-1]
    assert [frame.header.id for frame in calls(b"[" + nobody + b"," + good + b"]")] == [SECOND]


@pytest.mark.req("WIRE-17")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"[",
        b"null",
        b'{"id":1}',
        b"\xff",
        b"[" * 5_000,
        b"[{}" + b",{}" * batch.MOST + b"]",
    ],
)
def test_what_is_no_list_of_1_to_64_items_is_no_pack(body: bytes) -> None:
    for read, said in ((batch.calls, CALLS), (batch.answers, REPLIES)):
        with pytest.raises(FrameError, match="malformed pack"):
            read(Frame(said, body, None))


@pytest.mark.req("WIRE-17")
def test_as_many_as_may_be_are_read() -> None:
    items = [BatchedCall(id=ids.new_ulid(), body=raw({"n": number})) for number in range(batch.MOST)]
    assert [frame.header.id for frame in calls(batch.encode(items))] == [item.id for item in items]


@pytest.mark.req("WIRE-16", "WIRE-17")
def test_spoilt_packs_break_nobody() -> None:
    asked = batch.encode(
        [BatchedCall(id=name, body=raw({"a": [1]}), deadline=5, run="r") for name in (FIRST, SECOND)]
    )
    answered = batch.encode([Answered(id=FIRST, body=raw({})), Answered(id=SECOND, seq=1, event="token")])
    came = {"read": 0, "refused": 0}
    for read, said, body in ((batch.calls, CALLS, asked), (batch.answers, REPLIES, answered)):
        for data in mutations(body, 4_000, 17):
            try:
                found = read(Frame(said, data, None))
                came["read"] += 1
            except FrameError:
                came["refused"] += 1
                continue
            assert all(ids.is_ulid(frame.header.id) for frame in found)
            assert {frame.header.kind for frame in found} <= {"call", "reply", "frame"}
            assert {frame.header.sender for frame in found} <= {ANNA.node_id}
    assert min(came.values()) > 500


@pytest.mark.req("WIRE-17")
@given(st.lists(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5), max_size=5))
def test_any_json_as_items_is_left_out_or_refused(values: list[Any]) -> None:
    try:
        assert calls(msgspec.json.encode(values)) == []
    except FrameError:
        assert values == []


@pytest.mark.req("WIRE-17", "ADMIT-20")
def test_an_item_says_no_more_than_a_header_may() -> None:
    def answers(body: bytes) -> list[Frame]:
        return batch.answers(Frame(REPLIES, body, None))

    fields = {calls: ("token", "run", "session", "traceparent"), answers: ("event", "code")}
    for read, names in fields.items():
        for field in names:
            body = msgspec.json.encode(
                [{"id": FIRST, field: "x" * (LONGEST + 1)}, {"id": SECOND, field: "x"}]
            )
            assert [one.header.id for one in read(body)] == [SECOND]
    large = BatchedCall(id=SECOND, body=raw("x" * LONGEST), token="x")
    assert [call.header.id for call in calls(batch.encode([large]))] == [SECOND]
