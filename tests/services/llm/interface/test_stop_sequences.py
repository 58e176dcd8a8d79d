"""Stop sequences in text that comes in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet_llm.interface.stop_sequences import Stopper

pytestmark = pytest.mark.req("LLM-5")
LETTERS = st.text(alphabet="ab\n", max_size=30)


def shown(stopper: Stopper, pieces: list[str]) -> str:
    """All that a reader sees."""
    return "".join(stopper.feed(piece) for piece in pieces) + stopper.flush()


@given(LETTERS, st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=3), st.data())
def test_pieces_make_no_difference(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    stopper = Stopper(stops)
    out = shown(stopper, pieces)
    ends = [(text.index(stop) + len(stop), text.index(stop)) for stop in stops if stop in text]
    assert stopper.stopped == bool(ends)
    assert out == (text[: min(ends)[1]] if ends else text)


def test_the_stop_that_is_complete_first_ends_the_text() -> None:
    for pieces in (["aba"], ["ab", "a"], ["a", "b", "a"]):
        assert shown(Stopper(["aba", "b"]), pieces) == "a"
        assert shown(Stopper(["ba", "aba"]), pieces) == ""


def test_nothing_is_held_back_that_is_no_beginning() -> None:
    stopper = Stopper(["END"])
    assert stopper.feed("hello E") == "hello "
    assert stopper.feed("x") == "Ex"
    assert stopper.feed("EN") == ""
    assert stopper.feed("D of it") == ""
    assert stopper.stopped
    assert stopper.feed("more") == ""
    assert stopper.flush() == ""
