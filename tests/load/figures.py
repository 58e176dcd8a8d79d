"""What a load test measures of one capability."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from hearthnet.protocol.replay import MOST_IDS, WINDOW_MS

REFUSAL: Final = "capacity_exceeded"
_LEAST_GROWTH_KB: Final = 4_096
_SHARE: Final = 0.05
_COURSE: Final = 64
_ID_KB: Final = 0.16
"""What remembering the id of one frame takes (protocol/replay.py)."""
_REMEMBERED_SECONDS: Final = 2 * WINDOW_MS / 1000
_WARM, _END = 0.5, 0.9
"""Where in the run the middle of those fifths is whose medians are compared."""


class Order(msgspec.Struct, frozen=True):
    """What a process of callers is to do: `most` calls each, 0 for as many as `seconds` allow."""

    capability: str
    callers: int
    seconds: float
    most: int
    through: str
    body: msgspec.Raw


class Tally(msgspec.Struct):
    """What the callers of one process met with; times in ms, from the first attempt to the answer."""

    answered: int = 0
    refused: int = 0
    unserved: int = 0
    """Callers that honoured every refusal, and did not get through in the end."""
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    """What was answered otherwise: by code, and refusals that do not say when to come back."""
    said: dict[str, str] = msgspec.field(default_factory=dict)
    """The first message of each code."""
    took_ms: list[float] = msgspec.field(default_factory=list)

    def fail(self, code: str, message: str) -> None:
        """Counts an answer that none should get."""
        self.errors[code] = self.errors.get(code, 0) + 1
        self.said.setdefault(code, message[:300])


class Memory(msgspec.Struct, frozen=True):
    """What one process had written to and held alone, in KB; `growth` is from after the warm-up to the end.

    `course` is what was seen on the way, at equal intervals.
    """

    start: float
    warm: float
    end: float
    course: tuple[float, ...] = ()

    @property
    def growth(self) -> float:
        """KB between the two."""
        return self.end - self.warm

    def flat(self, ids: float) -> bool:
        """Whether that is what any process breathes, and what remembering `ids` more takes."""
        return self.growth <= max(_LEAST_GROWTH_KB, self.warm * _SHARE) + ids * _ID_KB


class Outcome(msgspec.Struct, frozen=True):
    """One capability under load."""

    capability: str
    callers: int
    senders: int
    seconds: float
    answered: int
    refused: int
    unserved: int
    errors: dict[str, int]
    said: dict[str, str]
    p50_ms: float
    p99_ms: float
    longest_ms: float
    memory: dict[str, Memory]

    @property
    def clean(self) -> bool:
        """Whether every caller was answered, and nobody was told anything else than to come back."""
        return not (self.errors or self.unserved) and self.answered > 0

    @property
    def flat(self) -> bool:
        """Whether no process grew, beyond what it has to remember for a while.

        See: docs/protocol/frames.md#replay-window.
        """
        more = self._remembered(_END) - self._remembered(_WARM)
        return all(each.flat(more) for each in self.memory.values())

    def _remembered(self, part: float) -> float:
        """Ids that the offering process remembers after that part of the run: of each sender as many as it
        has room for.
        """
        frames = (self.answered + self.refused) / self.senders * part
        lately = min(1.0, _REMEMBERED_SECONDS / max(self.seconds * part, 1.0))
        return self.senders * min(MOST_IDS, frames * lately)


def memory(samples: Sequence[float]) -> Memory:
    """From what was seen at equal intervals: the first value, medians of the middle and the last fifth."""
    fifth = max(1, len(samples) // 5)
    warm = samples[2 * fifth : 3 * fifth] or samples[-1:]
    course = tuple(samples[:: max(1, len(samples) // _COURSE)])
    return Memory(samples[0], statistics.median(warm), statistics.median(samples[-fifth:]), course)


def outcome(order: Order, seconds: float, tallies: Iterable[Tally], held: dict[str, Memory]) -> Outcome:
    """All processes of callers together, each of them a sender by itself."""
    total, tallies = Tally(), list(tallies)
    for tally in tallies:
        total.answered += tally.answered
        total.refused += tally.refused
        total.unserved += tally.unserved
        total.took_ms += tally.took_ms
        for code, count in tally.errors.items():
            total.errors[code] = total.errors.get(code, 0) + count
        total.said = {**tally.said, **total.said}
    took = sorted(total.took_ms) or [0.0]
    return Outcome(
        capability=order.capability,
        callers=order.callers,
        senders=max(1, len(tallies)),
        seconds=round(seconds, 1),
        answered=total.answered,
        refused=total.refused,
        unserved=total.unserved,
        errors=total.errors,
        said=total.said,
        p50_ms=took[len(took) // 2],
        p99_ms=took[len(took) * 99 // 100],
        longest_ms=took[-1],
        memory=held,
    )


def table(outcomes: Iterable[Outcome]) -> str:
    """One line a capability; of the processes, the one that grew most."""
    lines = [
        "| capability | answered /s | refused /s | other errors | p50 ms | p99 ms | longest ms | grew most |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for each in outcomes:
        worst = max(each.memory.items(), key=lambda item: item[1].growth, default=None)
        grew = f"{worst[0]} {worst[1].growth / 1024:+.1f} MB" if worst else ""
        rate = [f"{count / max(each.seconds, 0.001):.0f}" for count in (each.answered, each.refused)]
        wrong = sum(each.errors.values()) + each.unserved
        lines.append(
            f"| `{each.capability}` | {rate[0]} | {rate[1]} | {wrong} "
            f"| {each.p50_ms:.0f} | {each.p99_ms:.0f} | {each.longest_ms:.0f} | {grew} |"
        )
    return "\n".join(lines)
