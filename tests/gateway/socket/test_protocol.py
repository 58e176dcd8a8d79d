"""The rules of one connection, frame by frame, without a socket."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthnet.gateway.socket import frames, protocol
from hearthnet.gateway.socket.frames import Ack, CallFrame, Cancel, Confirm, Resume, Subscribe, ToolResult
from hearthnet.gateway.socket.protocol import (
    CLOSE_CODES,
    TRANSITIONS,
    WINDOW,
    Closed,
    SocketProtocol,
    SocketState,
    SocketStep,
)

CALL = {"type": "call", "capability": "llm.chat", "version": "2.0", "body": {"params": {}, "input": {}}}
RESUME = {"type": "resume", "stream": "01JZZZZZZZZZZZZZZZZZZZZZ01", "after": 4}
SUBSCRIBE = {"type": "subscribe", "topic": "mesh"}
ACK = {"type": "ack", "upto": 0}
RESULT = {"type": "tool_result", "tool_call_id": "call_1", "content": {"colour": "red"}}
CONFIRM = {"type": "confirm", "confirmation_id": "c", "decision": "approve", "shown": "blake3:00"}
CANCEL = {"type": "cancel"}
LATER = (ACK, RESULT, CONFIRM, CANCEL)
MOST = 4096


def text(frame: Any) -> str:
    return msgspec.json.encode(frame).decode()


def connection(state: SocketState = SocketState.WAITING) -> SocketProtocol:
    """A connection that got as far as `state`."""
    made = SocketProtocol(MOST)
    if state is SocketState.WAITING:
        return made
    made.receive(text(SUBSCRIBE if state is SocketState.FOLLOWING else CALL))
    if state is SocketState.FOLLOWING:
        made.followed(0)
    elif state in (SocketState.STREAMING, SocketState.ENDED):
        made.opened()
    if state is SocketState.ENDED:
        made.sent("done", 1)
    assert made.state is state
    return made


def refused(made: SocketProtocol, data: str | bytes) -> tuple[int, str]:
    with pytest.raises(Closed) as closed:
        made.receive(data)
    assert len(closed.value.reason.encode()) <= 123
    return closed.value.code, closed.value.reason


@pytest.mark.req("SOCK-1")
@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (CALL, CallFrame),
        (RESUME, Resume),
        ({"type": "resume", "run": "01JZZZZZZZZZZZZZZZZZZZZZ01"}, Resume),
        ({**SUBSCRIBE, "since_seq": 7}, Subscribe),
    ],
)
def test_a_connection_begins_with_one_of_three_frames(frame: dict[str, Any], kind: type) -> None:
    made = connection()
    assert type(made.receive(text(frame))) is kind
    assert made.state is SocketState.OPENING
    assert refused(made, text(frame)) == (4400, "bad_frame: " + str(frame["type"]) + " has no place here")


@pytest.mark.req("SOCK-1", "SOCK-3")
@pytest.mark.parametrize("frame", LATER)
def test_nothing_else_comes_first(frame: dict[str, Any]) -> None:
    assert refused(connection(), text(frame)) == (
        4400,
        "bad_frame: the first frame is call, resume or subscribe",
    )


@pytest.mark.req("SOCK-1")
def test_while_it_lasts_a_stream_takes_answers_and_a_topic_takes_none() -> None:
    made = connection(SocketState.STREAMING)
    assert [type(made.receive(text(frame))) for frame in (RESULT, CONFIRM, CANCEL)] == [
        ToolResult,
        Confirm,
        Cancel,
    ]
    for frame in (RESULT, CONFIRM):
        assert refused(connection(SocketState.FOLLOWING), text(frame)) == (
            4400,
            "bad_frame: a topic takes ack and cancel",
        )
    assert isinstance(connection(SocketState.FOLLOWING).receive(text(CANCEL)), Cancel)


@pytest.mark.req("SOCK-2")
@pytest.mark.parametrize("frame", LATER)
def test_what_crosses_with_the_last_frame_is_passed_over(frame: dict[str, Any]) -> None:
    assert connection(SocketState.ENDED).receive(text(frame)) is None


@pytest.mark.req("SOCK-1")
def test_a_second_call_is_refused_also_after_the_end() -> None:
    for state in (SocketState.OPENING, SocketState.STREAMING, SocketState.FOLLOWING, SocketState.ENDED):
        assert refused(connection(state), text(CALL))[0] == 4400


@pytest.mark.req("SOCK-3")
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("", "no JSON object with a type"),
        ("{", "no JSON object with a type"),
        ("[]", "no JSON object with a type"),
        ("[" * 2000, "no JSON object with a type"),
        ('{"type":"ack","upto":"' + "\\ud800" + '"}', "no JSON object with a type"),
        ("\ud800", "no UTF-8"),
        (
            '{"type":"hello"}',
            "unknown type; known: ack, call, cancel, confirm, resume, subscribe, tool_result",
        ),
        ('{"type":"resume"}', "resume: resume names either a stream or a run"),
        ('{"type":"resume","run":"a","stream":"b"}', "resume: resume names either a stream or a run"),
        ('{"type":"subscribe","topic":"all"}', "subscribe: Invalid enum value 'all' - at `$.topic`"),
        ('{"type":"call"}', "call: Object missing required field `capability`"),
        ('{"type":"call","capability":"a","body":{"a":1,"a":2}}', "call: ambiguous JSON"),
    ],
)
def test_what_is_malformed_closes_with_its_reason(sent: str, reason: str) -> None:
    code, said = refused(connection(), sent)
    assert code == 4400
    assert said.startswith("bad_frame: " + reason)


@pytest.mark.req("SOCK-3")
def test_an_edit_has_arguments_and_nothing_else_has() -> None:
    edit = {**CONFIRM, "decision": "edit"}
    assert refused(connection(SocketState.STREAMING), text(edit))[0] == 4400
    assert refused(connection(SocketState.STREAMING), text({**CONFIRM, "arguments": {}}))[0] == 4400
    assert isinstance(connection(SocketState.STREAMING).receive(text({**edit, "arguments": {}})), Confirm)


@pytest.mark.req("SOCK-3")
def test_binary_and_oversized_frames_have_codes_of_their_own() -> None:
    assert refused(connection(), text(CALL).encode()) == (1003, "binary: frames are text")
    for long in ("x" * (MOST + 1), "\u00fc" * (MOST // 2 + 1)):
        assert refused(connection(), long) == (4413, f"payload_too_large: a frame has at most {MOST} bytes")
    assert refused(connection(), "x" * MOST)[0] == 4400


@pytest.mark.req("SOCK-4")
def test_sixteen_frames_may_be_unacknowledged_and_the_last_one_always_goes() -> None:
    made = connection(SocketState.STREAMING)
    for seq in range(1, WINDOW + 1):
        assert made.room == WINDOW + 1 - seq
        made.sent("token", seq)
    assert made.room == 0
    with pytest.raises(ValueError, match="beyond the window"):
        made.sent("token", WINDOW + 1)
    assert made.receive('{"type":"ack","upto":8}') == Ack(upto=8)
    assert made.room == 8
    assert made.receive('{"type":"ack","upto":3}') is None
    assert made.room == 8
    for seq in range(WINDOW + 1, WINDOW + 9):
        made.sent("token", seq)
    made.sent("done", WINDOW + 9)
    assert (made.state, made.room) == (SocketState.ENDED, 0)


@pytest.mark.req("SOCK-4")
def test_an_acknowledgement_of_what_was_not_sent_is_refused() -> None:
    made = connection(SocketState.STREAMING)
    made.sent("token", 1)
    assert refused(made, '{"type":"ack","upto":2}') == (4400, "bad_frame: ack: frame 2 was not sent")


@pytest.mark.req("SOCK-4", "SOCK-6")
def test_a_snapshot_needs_no_acknowledgement_of_what_it_stands_for() -> None:
    made = connection()
    made.receive(text(RESUME))
    made.opened(after=4)
    made.sent("snapshot", 400)
    assert (made.room, made.acked) == (WINDOW, made.seq)
    with pytest.raises(ValueError, match="after frame 400"):
        made.sent("token", 400)


@pytest.mark.req("SOCK-3")
def test_each_close_code_has_a_name() -> None:
    named = {value for name, value in vars(protocol).items() if isinstance(value, int) and name.isupper()} - {
        WINDOW,
        protocol.ACK_EVERY,
    }
    assert named == set(CLOSE_CODES)
    assert len(Closed(4400, "\u00fc" * 200).reason.encode()) <= 123


@pytest.mark.req("SOCK-1")
def test_the_table_names_every_state_and_step() -> None:
    assert set(TRANSITIONS) == set(SocketState)
    assert {step for steps in TRANSITIONS.values() for step in steps} == set(SocketStep)
    of_server = {SocketStep.OPENED, SocketStep.FOLLOWED, SocketStep.FINISHED}
    assert set(SocketStep) - of_server == frames._KINDS


_ANY = st.one_of(
    st.sampled_from([text(frame) for frame in (CALL, RESUME, SUBSCRIBE, *LATER)]),
    st.integers(0, 40).map(lambda upto: text({"type": "ack", "upto": upto})),
    st.text(max_size=40),
    st.binary(max_size=20),
    st.sampled_from(["opened", "followed", "token", "done", "snapshot"]).map(lambda event: (event,)),
)


@pytest.mark.req("SOCK-1", "SOCK-2", "SOCK-4")
@settings(max_examples=300, deadline=None)
@given(st.lists(_ANY, max_size=60))
def test_in_any_order_there_is_one_end_and_never_more_than_a_window(steps: list[Any]) -> None:
    made, terminals, last = SocketProtocol(MOST), 0, 0
    for step in steps:
        before = made.state
        try:
            if not isinstance(step, tuple):
                made.receive(step)
            elif step[0] == "opened":
                made.opened()
            elif step[0] == "followed":
                made.followed(0)
            else:
                made.sent(step[0], made.seq + 1)
                assert before in (SocketState.STREAMING, SocketState.FOLLOWING)
                assert made.seq == last + 1
                terminals += step[0] == "done" and made.state is SocketState.ENDED
        except Closed:
            if not isinstance(step, tuple):
                break
        except ValueError:
            assert made.room <= 0
        last = made.seq
        unacknowledged = made.seq - made.acked - (made.state is SocketState.ENDED)
        assert 0 <= unacknowledged <= WINDOW or made.state is SocketState.ENDED
        assert terminals <= 1
