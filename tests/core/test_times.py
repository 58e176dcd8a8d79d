"""Time on the wire.

See: docs/protocol/identity.md#text-forms.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import from_rfc3339, now_ms, rfc3339

FIRST, LAST = -62_135_596_800, 253_402_300_799


@pytest.mark.req("WIRE-15")
@given(st.integers(FIRST, LAST), st.integers(0, 999))
def test_a_time_is_read_as_it_was_written_to_the_second(seconds: int, millis: int) -> None:
    text = rfc3339(seconds * 1000 + millis)
    assert len(text) == 20
    assert from_rfc3339(text) == seconds * 1000


@pytest.mark.req("WIRE-15")
@given(st.integers(FIRST, LAST), st.integers(FIRST, LAST))
def test_texts_sort_as_times_do(one: int, other: int) -> None:
    assert (rfc3339(one * 1000) < rfc3339(other * 1000)) == (one < other)


@pytest.mark.req("WIRE-15")
def test_known_times() -> None:
    assert rfc3339(1_795_292_100_999) == "2026-11-21T20:15:00Z"
    assert rfc3339(0) == "1970-01-01T00:00:00Z"
    assert rfc3339(-1) == "1969-12-31T23:59:59Z"
    assert rfc3339(FIRST * 1000) == "0001-01-01T00:00:00Z"
    assert from_rfc3339("2024-02-29T23:59:59Z") == 1_709_251_199_000


@pytest.mark.req("WIRE-15")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21T20:15:00",
        "2026-11-21 20:15:00Z",
        "2026-11-21T20:15:00z",
        "2026-11-21T20:15:00+00:00",
        "2026-11-21T20:15:00.0Z",
        "2026-11-21T20:15:60Z",
        "2026-11-21T24:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-1-1T2:1:0Z",
        "2026-11-21T20:15:00Z\n",
        "\u0662\u0660\u0662\u0666-11-21T20:15:00Z",
        "x" * 1000,
    ],
)
def test_a_time_has_one_form(text: str) -> None:
    with pytest.raises(HearthNetError, match="is not a time such as") as caught:
        from_rfc3339(text)
    assert caught.value.code == "bad_request"
    assert len(caught.value.message) < 120


@pytest.mark.req("WIRE-15")
@pytest.mark.parametrize("millis", [(LAST + 1) * 1000, (FIRST - 1) * 1000, 10**18, 10**40, -(10**40)])
def test_what_no_calendar_holds_is_refused(millis: int) -> None:
    with pytest.raises(HearthNetError, match="no time of the calendar") as caught:
        rfc3339(millis)
    assert caught.value.code == "bad_request"


def test_now_is_in_milliseconds() -> None:
    before = time.time()
    assert before - 1 <= now_ms() / 1000 <= time.time() + 1
