"""Times and lengths of time as people say and type them."""

from __future__ import annotations

from datetime import datetime

import click
import pytest

from hearthnet.cli.output.durations import Span, format_duration, format_time

NOON = datetime(2026, 11, 22, 12, 0)


def at(*moment_: int) -> int:
    """A local time as milliseconds."""
    return int(datetime(*moment_).timestamp() * 1000)  # type: ignore[arg-type]


@pytest.mark.req("CLI-13")
@pytest.mark.parametrize(
    ("when", "said"),
    [
        ((2026, 11, 22, 9, 5), "today 09:05"),
        ((2026, 11, 22, 23, 59), "today 23:59"),
        ((2026, 11, 21, 18, 40), "yesterday 18:40"),
        ((2026, 11, 23, 0, 0), "tomorrow 00:00"),
        ((2026, 11, 3, 7, 30), "3 Nov 07:30"),
        ((2025, 11, 3, 7, 30), "3 Nov 2025"),
        ((2028, 1, 1, 0, 0), "1 Jan 2028"),
    ],
)
def test_a_time_is_said_as_near_as_it_matters(when: tuple[int, ...], said: str) -> None:
    assert format_time(at(*when), int(NOON.timestamp() * 1000)) == said


@pytest.mark.req("CLI-13")
@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("90m", 5400), ("24h", 86_400), ("7d", 604_800), ("3600", 3600), (" 2 H ", 7200), ("60 s", 60)],
)
def test_a_length_of_time_is_typed_with_its_unit(typed: str, seconds: int) -> None:
    assert Span(60, 604_800).convert(typed, None, None) == seconds
    assert Span(60, 604_800).convert(seconds, None, None) == seconds


@pytest.mark.req("CLI-13")
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("soon", "write it like 90m, 24h or 7d"),
        ("8d", "1 min to 7 d"),
        ("59", "1 min to 7 d"),
        ("-1h", "no length"),
    ],
)
def test_what_is_no_length_of_time_or_too_long_is_refused(typed: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        Span(60, 604_800).convert(typed, None, None)


@pytest.mark.req("CLI-13")
def test_a_length_of_time_is_said_in_the_largest_unit_that_is_exact() -> None:
    assert [format_duration(seconds) for seconds in (59, 60, 5400, 86_400, 172_800, 604_800)] == [
        "59 s",
        "1 min",
        "90 min",
        "24 h",
        "2 d",
        "7 d",
    ]
