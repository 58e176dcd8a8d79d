"""The time of a home, over steps of the computer's clock, restarts, and what other homes have taught."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.core.home import Home
from hearthnet.core.times import SLACK_MS, ClockRecord, HomeClock, possible_time, read_record

DAY = 24 * 3_600_000
NOW = 1_800_000_000_000


class Computer:
    """A computer: its clock, the time since it was started, and the name of that start."""

    def __init__(self) -> None:
        self.system, self.steady, self.boot = NOW, 5_000, "first"

    def clock(self, home: Home | None = None) -> HomeClock:
        """A process's clock, which follows `home`."""
        clock = HomeClock(lambda: self.system, lambda: self.steady, lambda: self.boot)
        if home is not None:
            clock.follow(home)
        return clock

    def wait(self, milliseconds: int) -> None:
        self.system += milliseconds
        self.steady += milliseconds

    def restart(self, off_ms: int) -> None:
        """Switch off, and on again; the clock goes on meanwhile."""
        self.system, self.steady, self.boot = self.system + off_ms, 1_000, f"{self.boot}+"


@pytest.fixture
def computer() -> Computer:
    return Computer()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.resolve(tmp_path)


@pytest.mark.req("CLOCK-1")
def test_a_clock_set_back_while_it_runs_is_not_followed(computer: Computer, home: Home) -> None:
    clock = computer.clock(home)
    assert clock.now_ms() == NOW
    computer.wait(1_000)
    computer.system -= 3 * DAY
    assert clock.now_ms() == NOW + 1_000
    computer.wait(60_000)
    assert clock.now_ms() == NOW + 61_000, "time goes on all the same"


@pytest.mark.req("CLOCK-1")
def test_a_process_without_a_home_goes_by_the_computer(computer: Computer) -> None:
    clock = computer.clock()
    clock.now_ms()
    computer.system -= 3 * DAY
    assert clock.now_ms() == NOW - 3 * DAY


@pytest.mark.req("CLOCK-1")
def test_small_steps_back_and_steps_ahead_are_followed(computer: Computer, home: Home) -> None:
    clock = computer.clock(home)
    clock.now_ms()
    computer.system -= SLACK_MS
    assert clock.now_ms() == NOW - SLACK_MS
    computer.system -= 1
    assert clock.now_ms() == NOW, "many small steps add up to none"
    computer.system = NOW + DAY
    assert clock.now_ms() == NOW + DAY


@pytest.mark.req("CLOCK-1")
@pytest.mark.parametrize("off_ms", [0, 3_600_000])
def test_a_clock_set_back_between_two_starts_is_not_followed(
    computer: Computer, home: Home, off_ms: int
) -> None:
    computer.clock(home).keep(ClockRecord())
    computer.restart(off_ms)
    computer.system -= 30 * DAY
    clock = computer.clock(home)
    assert clock.now_ms() == NOW
    computer.wait(5_000)
    assert clock.now_ms() == NOW + 5_000


@pytest.mark.req("CLOCK-1")
def test_a_later_process_of_the_same_start_goes_on_where_time_is(computer: Computer, home: Home) -> None:
    computer.clock(home).keep(ClockRecord())
    computer.wait(DAY)
    computer.system -= 30 * DAY
    assert computer.clock(home).now_ms() == NOW + DAY


@pytest.mark.req("CLOCK-2")
@pytest.mark.parametrize("ahead_ms", [3 * DAY, -3 * DAY])
def test_what_was_learned_holds_until_the_clock_is_set(computer: Computer, home: Home, ahead_ms: int) -> None:
    keeper, other = computer.clock(home), computer.clock(home)
    assert other.now_ms() == keeper.now_ms() == NOW
    keeper.learn(ahead_ms)
    keeper.keep(keeper.record)
    computer.wait(1_000)
    right = NOW + 1_000 + ahead_ms
    assert (keeper.now_ms(), other.now_ms()) == (right, right)
    computer.restart(DAY)
    assert computer.clock(home).now_ms() == right + DAY, "also after a night"
    computer.system += ahead_ms
    assert computer.clock(home).now_ms() == right + DAY, "the person has set the clock"
    assert keeper.set_back() == (ahead_ms < 0)


@pytest.mark.req("CLOCK-2")
def test_a_time_that_is_moved_back_is_so_for_every_process(computer: Computer, home: Home) -> None:
    keeper, other = computer.clock(home), computer.clock(home)
    assert keeper.now_ms() == other.now_ms() == NOW
    computer.system -= 3 * DAY
    assert keeper.now_ms() == other.now_ms() == NOW
    before = other.set_back()
    keeper.learn(0)
    keeper.keep(keeper.record)
    computer.wait(1_000)
    assert keeper.now_ms() == other.now_ms() == computer.system
    assert other.set_back() == before + 1


@pytest.mark.req("CLOCK-6")
def test_what_cannot_be_undone_waits_for_both_clocks(computer: Computer, home: Home) -> None:
    clock = computer.clock(home)
    clock.learn(3 * DAY)
    assert (clock.now_ms(), clock.least_ms()) == (NOW + 3 * DAY, NOW)
    clock.learn(-3 * DAY)
    assert clock.least_ms() == clock.now_ms() == NOW - 3 * DAY


@pytest.mark.req("CLOCK-1")
@pytest.mark.parametrize("text", [b"", b"[]", b"7", b'{"time_ms": "soon"}', b'{"is_open": 1}', b"\xff"])
def test_a_damaged_record_counts_as_none(home: Home, text: bytes) -> None:
    home.clock.write_bytes(text)
    assert read_record(home) == ClockRecord()


@pytest.mark.req("CLOCK-1")
def test_a_record_of_a_later_version_counts(home: Home) -> None:
    home.clock.write_bytes(b'{"time_ms": 7, "leap_seconds": []}')
    assert read_record(home) == ClockRecord(time_ms=7)


@pytest.mark.req("CLOCK-2")
def test_of_two_possible_times_the_earlier_one_counts() -> None:
    assert possible_time(100, 50, 90) == 100
    assert possible_time(100, -50, 40) == 50
    assert possible_time(100, -50, 90) == 100
    assert possible_time(100, -50, 101) is None
