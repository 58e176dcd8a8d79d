"""How the benchmark measures: side by side in one run, alternating, medians."""

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
    """The median cost of each piece of work in us.

    The pieces take turns, `number` runs at a time, so that what else the machine does meets all alike.
    """
    samples: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS * _BATCHES):
        for name, function in work.items():
            began = time.perf_counter()
            for _ in range(number):
                function()
            samples[name].append((time.perf_counter() - began) / number * 1e6)
    return {name: statistics.median(values) for name, values in samples.items()}
