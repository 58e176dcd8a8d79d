"""`traceparent`: what is read of it, and what is passed over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.protocol import traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.req("TRACE-2")
def test_its_parts_are_read_as_they_were_written() -> None:
    assert traceparent.write(TRACE, SPAN) == GOOD
    assert traceparent.read(GOOD) == GOOD


@pytest.mark.req("TRACE-2")
@pytest.mark.parametrize("rest", ["", "-more", "-"])
def test_a_later_version_is_read_as_far_as_it_is_known(rest: str) -> None:
    assert traceparent.read(f"cc-{TRACE}-{SPAN}-01{rest}") == GOOD


@pytest.mark.req("TRACE-2")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        GOOD.upper(),
        f" {GOOD}",
        f"{GOOD}\n",
        f"{GOOD}-more",
        f"cc-{TRACE}-{SPAN}-01more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0",
        GOOD.replace("4", "٤", 1),
        GOOD.replace("-", "_"),
    ],
)
def test_what_is_malformed_counts_as_absent(text: str) -> None:
    assert traceparent.read(text) == ""


@given(st.text(max_size=80) | st.text("0123456789abcdef-", min_size=50, max_size=60))
def test_whatever_comes_it_is_read_in_our_form_or_not_at_all(text: str) -> None:
    assert traceparent.read(text) in ("", text, f"00{text[2:55]}")
