"""What a NATS server sends, cut anywhere: the same operations, in the same order, and nothing else."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hearthnet.nats.parser import LONGEST_LINE, NatsParser, ProtocolError

pytestmark = pytest.mark.req("BUS-60")
WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789.-_\x0b\x0c\x1c\x85\u00a0\u2028", min_size=1, max_size=20)
Operation = tuple[int, str, str, bytes, bool] | bytes


@st.composite
def operations(draw: st.DrawFn) -> tuple[bytes, Operation]:
    """One operation as a server writes it, and what the reader is to make of it."""
    kind = draw(st.sampled_from(["message", "headers", "nobody", "line"]))
    if kind == "line":
        line = draw(st.sampled_from([b"PING", b"PONG", b"+OK", b"-ERR 'no'", b'INFO {"max_payload":7}']))
        return line + b"\r\n", line
    subject, number, data = draw(WORD), draw(st.integers(0, 10**6)), draw(st.binary(max_size=80))
    reply = draw(st.one_of(st.just(""), WORD))
    ends = f"{subject} {number} {reply}".strip(" ")
    if kind == "message":
        return b"MSG %b %d\r\n%b\r\n" % (ends.encode(), len(data), data), (
            number,
            subject,
            reply,
            data,
            False,
        )
    head = b"NATS/1.0 503\r\n\r\n" if kind == "nobody" else b"NATS/1.0\r\nName: value\r\n\r\n"
    data = b"" if kind == "nobody" else data
    line = b"HMSG %b %d %d\r\n" % (ends.encode(), len(head), len(head) + len(data))
    return line + head + data + b"\r\n", (number, subject, reply, data, kind == "nobody")


def read(pieces: list[bytes]) -> list[Operation]:
    """What a reader makes of the pieces."""
    heard: list[Operation] = []
    reader = NatsParser(lambda *message: heard.append(message), heard.append)
    for piece in pieces:
        reader.feed(piece)
    return heard


@given(st.lists(operations(), max_size=8), st.lists(st.integers(0, 2000), max_size=12))
def test_wherever_the_bytes_are_cut_the_same_is_read(
    written: list[tuple[bytes, Operation]], cuts: list[int]
) -> None:
    whole = b"".join(data for data, _ in written)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(places)]
    assert read(pieces) == [operation for _, operation in written]


def test_one_byte_at_a_time_is_read_too() -> None:
    whole = b"PING\r\nMSG a 1 b 3\r\n\r\n!\r\nHMSG a 2 16 16\r\nNATS/1.0 503\r\n\r\n\r\nPONG\r\n"
    assert read([whole[place : place + 1] for place in range(len(whole))]) == [
        b"PING",
        (1, "a", "b", b"\r\n!", False),
        (2, "a", "", b"", True),
        b"PONG",
    ]


@pytest.mark.req("BUS-80")
def test_words_end_at_spaces_and_tabs_alone() -> None:
    subject = "a\x0b\x0c\x1c\x85\u00a0\u2028\u3000b"
    assert read([b"MSG \t%b\t 7 \tr 1\r\nx\r\n" % subject.encode()]) == [(7, subject, "r", b"x", False)]


@pytest.mark.parametrize(
    "data",
    [
        b"MSG a 1 x\r\n",
        b"MSG a x 1\r\nx\r\n",
        b"MSG \r\n",
        b"MSG a\x0b1\x0b1\r\nx\r\n",
        b"HMSG a 1 -5 3\r\nabc\r\n",
        b"MSG a 1 99999999999\r\n",
        b"HMSG 5\r\nabcde\r\n",
        b"MSG a 1 r more 1\r\nx\r\n",
        b"HMSG a 1 r more 5 5\r\nabcde\r\n",
        b"x" * (LONGEST_LINE + 1),
    ],
)
def test_what_is_no_protocol_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read([data])


PIECES = [b"MSG ", b"HMSG ", b"\r\n", b" ", b"\t", b"a", b"0", b"5", b"-1", b"\xff", b"NATS/1.0 503"]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=60), max_size=12))
@example([b"a 1 x 3\r\nabc\r\n"])
@example([b"\xff 1 \xff 5 5\r\n\xff\xff\xff\xff\xff\r\n"])
@example([b"\xff 1 \xff 1\r\n\xff\r\n"])
@pytest.mark.parametrize("start", [b"MSG ", b"HMSG "])
def test_nothing_else_is_ever_raised(start: bytes, pieces: list[bytes]) -> None:
    try:
        read([start, *pieces])
    except ProtocolError:
        return


def test_a_large_message_in_many_pieces_is_read_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined and looked through with each piece, it would cost as much as it is large, squared."""
    looked: list[int] = []
    consume = NatsParser._consume

    def counting(reader: NatsParser, data: bytes) -> tuple[int, int]:
        looked.append(len(data))
        return consume(reader, data)

    monkeypatch.setattr(NatsParser, "_consume", counting)
    data = bytes(range(256)) * 4096
    whole = b"MSG a 1 %d\r\n%b\r\n" % (len(data), data)
    pieces = [whole[start : start + 1000] for start in range(0, len(whole), 1000)]
    assert read(pieces) == [(1, "a", "", data, False)]
    assert looked == [1000, len(whole)]
