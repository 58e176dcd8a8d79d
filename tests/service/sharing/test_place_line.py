"""Whose turn it is at an offer whose places are taken; times are given."""

from __future__ import annotations

import pytest

from hearthnet.service.sharing.places import (
    HALF_LIFE_SECONDS,
    MAX_WAITING,
    MAX_WAITING_OF_HOME,
    Places,
)

OWN = ""


def jain(shares: list[float]) -> float:
    """Jain's index: 1.0 for equal shares, 1/n where one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


class Line:
    """Places that are handed over as `Host` does, and a clock."""

    def __init__(self, count: int) -> None:
        self.places: Places[str] = Places(count)
        self.now = 1_000.0
        self.running: dict[str, tuple[str, float]] = {}
        self.homes: dict[str, str] = {}
        self.crowded_out: list[str] = []

    def ask(self, call: str, home: str) -> None:
        """A call of `home` arrives."""
        self.homes[call] = home
        if self.places.is_free(home):
            self._begin(call)
        elif (left := self.places.wait(call, home, self.now)) is not None:
            self.crowded_out.append(left)

    def end(self, call: str) -> list[str]:
        """A call ends; the result are those that begin."""
        home, began = self.running.pop(call)
        self.places.release(home, began, self.now)
        begun = []
        while (following := self.places.next(self.now)) is not None:
            self._begin(following)
            begun.append(following)
        return begun

    def _begin(self, call: str) -> None:
        self.running[call] = self.homes[call], self.now
        self.places.take(self.homes[call], self.now)


@pytest.mark.req("SHARE-1")
def test_places_own_call_is_first_whoever_waits() -> None:
    line = Line(1)
    line.ask("a1", "anna")
    for number in range(5):
        line.ask(f"b{number}", f"home{number}")
    line.ask("mine", OWN)
    assert line.end("a1") == ["mine"]
    assert line.end("mine") == ["b0"], "and then the others, in the order of their arrival"


@pytest.mark.req("SHARE-1")
def test_places_home_with_less_recent_use_is_next() -> None:
    line = Line(1)
    line.ask("a1", "anna")
    line.ask("a2", "anna")
    line.ask("b1", "berta")
    line.now += 10
    assert line.end("a1") == ["b1"], "anna came first, and has used ten seconds"
    line.ask("b2", "berta")
    line.now += 30
    assert line.end("b1") == ["a2"], "berta has used thirty since"


@pytest.mark.req("SHARE-1")
def test_places_running_calls_count_as_use() -> None:
    line = Line(4)
    line.ask("a1", "anna")
    line.now += 20
    line.ask("a2", "anna")
    line.ask("b1", "berta")
    line.ask("c1", "carol")
    line.ask("a3", "anna")
    line.ask("b2", "berta")
    assert line.end("c1") == ["b2"]


@pytest.mark.req("SHARE-1")
def test_places_use_of_long_ago_is_forgotten() -> None:
    line = Line(1)
    line.ask("a1", "anna")
    line.now += 100
    line.end("a1")
    line.now += 20 * HALF_LIFE_SECONDS
    line.ask("b1", "berta")
    line.now += 1
    line.ask("a2", "anna")
    line.ask("b2", "berta")
    assert line.end("b1") == ["a2"]


@pytest.mark.req("SHARE-1")
def test_places_half_of_a_home_does_not_hold_up_others() -> None:
    line = Line(4)
    for number in range(4):
        line.ask(f"a{number}", "anna")
    assert sorted(line.running) == ["a0", "a1"], "two wait for anna's half"
    line.ask("b1", "berta")
    line.ask("mine", OWN)
    assert sorted(line.running) == ["a0", "a1", "b1", "mine"], "free places are for everybody else"
    assert line.end("b1") == []
    assert line.end("a0") == ["a2"]


@pytest.mark.req("ATTACK-129")
def test_places_line_is_bounded_for_each_home_and_in_all() -> None:
    line = Line(1)
    line.ask("running", "anna")
    for number in range(100):
        line.ask(f"a{number}", "anna")
    assert line.crowded_out == [f"a{number}" for number in range(MAX_WAITING_OF_HOME, 100)]
    line.crowded_out.clear()
    for home in range(MAX_WAITING):
        for number in range(MAX_WAITING_OF_HOME):
            line.ask(f"{home}.{number}", f"home{home}")
    waiting = [call for call in line.homes if call != "running" and call not in line.crowded_out]
    assert len(set(waiting)) - (100 - MAX_WAITING_OF_HOME) == MAX_WAITING
    for number in range(MAX_WAITING):
        line.ask(f"mine{number}", OWN)
    assert not [call for call in line.crowded_out if call.startswith("mine")], (
        "others leave the own ones room"
    )


@pytest.mark.req("ATTACK-129")
def test_places_home_with_one_call_is_let_into_a_full_line() -> None:
    line = Line(1)
    line.ask("running", "anna")
    for home in range(MAX_WAITING // MAX_WAITING_OF_HOME):
        for number in range(MAX_WAITING_OF_HOME):
            line.ask(f"{home}.{number}", f"home{home}")
    assert line.crowded_out == []
    line.ask("modest", "modest")
    assert line.crowded_out == [f"0.{MAX_WAITING_OF_HOME - 1}"], "the newest of a home with most of them"
    line.places.leave("modest", "modest")
    line.now += 1
    assert line.end("running") == ["0.0"]


@pytest.mark.req("ATTACK-129")
def test_places_memory_is_bounded_for_homes_without_number() -> None:
    line = Line(1_000)
    line.ask("greedy", "greedy")
    line.now += 60
    line.end("greedy")
    for number in range(5_000):
        line.ask(f"call{number}", f"home{number}")
        line.now += 0.01
        line.end(f"call{number}")
    assert len(line.places._homes) <= 1_024
    assert "greedy" in line.places._homes, "who has used most is not forgotten for them"


@pytest.mark.req("SHARE-1")
@pytest.mark.parametrize("places", [1, 4])
@pytest.mark.parametrize("greedy_seconds", [1.0, 7.0])
def test_places_shares_of_eight_homes_are_equal(places: int, greedy_seconds: float) -> None:
    """One with eight calls at a time, which last longer; the others have one at a time."""
    line, seconds, served, calls = (
        Line(places),
        {"greedy": greedy_seconds},
        dict[str, float](),
        iter(range(10**6)),
    )
    homes = ["greedy", *(f"home{number}" for number in range(7))]

    def ask(home: str) -> None:
        line.ask(f"{home} {next(calls)}", home)

    for home in homes:
        served[home] = 0.0
        for _ in range(8 if home == "greedy" else 1):
            ask(home)
    end = line.now + 2_000
    while line.now < end:
        call, (home, began) = min(
            line.running.items(), key=lambda item: item[1][1] + seconds.get(item[1][0], 1.0)
        )
        line.now = began + seconds.get(home, 1.0)
        served[home] += line.now - began
        line.end(call)
        ask(home)
    index = jain(list(served.values()))
    assert index >= 0.95, index
