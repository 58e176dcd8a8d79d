"""Terms of sharing at given times: hours over midnight, and days on which the clocks change."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import local_day
from hearthnet.service.sharing.terms import (
    Terms,
    changing_terms,
    read_terms,
    until_next_day_ms,
)

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000
NIGHT = Terms(hours=(22 * 60, 8 * 60))
DAY = Terms(hours=(8 * 60, 22 * 60))


def at(text: str) -> int:
    """The time in Berlin, in ms; `2026-03-29 01:30`."""
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000)


@pytest.mark.req("SHARE-3")
@pytest.mark.parametrize(
    ("terms", "time", "is_open"),
    [
        (NIGHT, "21:59", False),
        (NIGHT, "22:00", True),
        (NIGHT, "23:59", True),
        (NIGHT, "00:00", True),
        (NIGHT, "07:59", True),
        (NIGHT, "08:00", False),
        (DAY, "07:59", False),
        (DAY, "08:00", True),
        (DAY, "21:59", True),
        (DAY, "22:00", False),
        (Terms(hours=(0, 1440)), "23:59", True),
        (Terms(hours=(20 * 60, 1440)), "23:59", True),
        (Terms(), "12:00", True),
    ],
)
def test_terms_hours_over_midnight(terms: Terms, time: str, is_open: bool) -> None:
    assert terms.is_open(at(f"2026-06-10 {time}"), BERLIN) is is_open


@pytest.mark.req("SHARE-3")
@pytest.mark.parametrize(
    ("time", "hours"),
    [
        ("2026-06-10 20:00", 2),
        ("2026-06-10 08:00", 14),
        ("2026-03-28 12:00", 10),  # the night of a short day begins when it says
        ("2026-10-24 12:00", 10),
    ],
)
def test_terms_closed_service_opens_when_its_hours_begin(time: str, hours: int) -> None:
    assert NIGHT.until_open_ms(at(time), BERLIN) == hours * HOUR_MS


@pytest.mark.req("SHARE-3")
def test_terms_hours_hold_on_days_when_clocks_change() -> None:
    before_spring, before_autumn = at("2026-03-28 23:00"), at("2026-10-24 23:00")
    closes = {
        name: next(hours for hours in range(24) if not NIGHT.is_open(start + hours * HOUR_MS, BERLIN))
        for name, start in (("spring", before_spring), ("autumn", before_autumn))
    }
    assert closes == {"spring": 8, "autumn": 10}, "eight o'clock is an hour earlier, or later"
    gap = Terms(hours=(2 * 60 + 30, 4 * 60))
    assert gap.until_open_ms(at("2026-03-29 01:30"), BERLIN) == HOUR_MS // 2, "02:30 does not occur: at 03:00"
    twice = Terms(hours=(2 * 60, 3 * 60))
    first = at("2026-10-25 01:30") + HOUR_MS
    assert [twice.is_open(first + hour * HOUR_MS, BERLIN) for hour in range(3)] == [True, True, False]


@pytest.mark.req("SHARE-3")
@pytest.mark.parametrize(("day", "hours"), [("2026-06-10", 24), ("2026-03-29", 23), ("2026-10-25", 25)])
def test_terms_local_day_has_23_to_25_hours(day: str, hours: int) -> None:
    assert until_next_day_ms(at(f"{day} 00:00"), BERLIN) == hours * HOUR_MS
    assert local_day(at(f"{day} 00:00") + hours * HOUR_MS - 1, BERLIN) == day


@pytest.mark.req("SHARE-4")
def test_terms_file_keeps_what_was_set(tmp_path: Path) -> None:
    path = tmp_path / "sharing.json"
    assert read_terms(path) == {}
    wanted = Terms(audience="trusted", hours=(1320, 480), per_day_seconds=1800)
    with changing_terms(path) as terms:
        terms["llm"] = wanted
    with changing_terms(path) as terms:
        terms["rag"] = Terms(audience="nobody")
    assert read_terms(path) == {"llm": wanted, "rag": Terms(audience="nobody")}
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.req("SHARE-4")
@pytest.mark.parametrize(
    "text",
    ["", "{", '{"services": {"llm": {"hours": [1, 1441]}}}', '{"services": {"llm": {"wiht": "nobody"}}}'],
)
def test_terms_damaged_file_is_refused_until_set_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sharing.json"
    path.write_text(text)
    with pytest.raises(HearthNetError, match="hearthnet share --reset"):
        read_terms(path)
    with changing_terms(path, anew=True) as terms:
        terms["llm"] = Terms(audience="nobody")
    assert read_terms(path) == {"llm": Terms(audience="nobody")}
