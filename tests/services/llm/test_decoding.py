"""Server-sent events, wherever their bytes are cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet_llm.vendors.decoding import EventLines

STREAM = (
    b': comment\r\ndata: {"a": "\xc3\xa9\xe2\x80\xa8"}\r\n\r\n'
    b'event: x\r\nid: 3\r\ndata:{"b":\r\ndata: 2}\r\n\r\n'
    b'data: [DONE]\n\n{"error": "late"}\ndata: last\x0b\xe2\x80\xa9'
)
EVENTS = ['{"a": "é\u2028"}', '{"b":\n2}', "[DONE]", '{"error": "late"}', "last\x0b\u2029"]


def events(pieces: list[bytes]) -> Iterator[str]:
    """The events of a stream that comes in pieces."""
    lines = EventLines()
    for piece in pieces:
        yield from lines.feed(piece)
    yield from lines.end()


@pytest.mark.req("LLM-10")
@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_the_same_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert list(events([STREAM[a:b] for a, b in pairwise(edges)])) == EVENTS


@pytest.mark.req("LLM-10")
@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_give_the_same_in_two_pieces_as_in_one(data: bytes, cut: int) -> None:
    assert list(events([data[:cut], data[cut:]])) == list(events([data]))
