"""How the benchmark measures: side by side in one run, in turns, medians of rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

ROUNDS: Final = 5
_BATCHES: Final = 20


class Figure(NamedTuple):
    """One measured value; `goal` is what it has to be (`< 12`), empty where it is only shown."""

    name: str
    value: float
    unit: str
    goal: str
    what: str

    @property
    def met(self) -> bool:
        """Whether the goal is met; True where there is none."""
        if not self.goal:
            return True
        sign, limit = self.goal.split()
        return self.value < float(limit) if sign == "<" else self.value >= float(limit)


def microseconds(work: Mapping[str, Callable[[], object]], *, number: int) -> dict[str, float]:
    """The cost of each piece of work in us: the median over the rounds of each round's quickest batch.

    The pieces take turns, `number` runs a batch, so that what else the machine does meets all alike; the
    quickest batch of a round is the one that it met least.
    """
    rounds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        batches: dict[str, list[float]] = {name: [] for name in work}
        for _ in range(_BATCHES):
            for name, function in work.items():
                batches[name].append(_seconds(function, number) / number * 1e6)
        for name, costs in batches.items():
            rounds[name].append(min(costs))
    return {name: statistics.median(costs) for name, costs in rounds.items()}


def _seconds(function: Callable[[], object], number: int) -> float:
    began = time.perf_counter()
    for _ in range(number):
        function()
    return time.perf_counter() - began
