"""Many schedules in several worlds at once, and what came of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from tests.chaos.ledger import Verdict, judge
from tests.chaos.plan import Plan
from tests.chaos.schedule import Schedule
from tests.chaos.steps import STEPS, STRIKES, VICTIMS
from tests.chaos.world import Nursery, World, worlds

Say = Callable[[str], None]


class Finding(msgspec.Struct, frozen=True):
    """A schedule in which something is wrong."""

    name: str
    verdict: Verdict
    plan: Plan


class Totals(msgspec.Struct):
    """What stands in build/chaos.json: `coverage` counts kills by step and victim, `calls` what is said."""

    seed: int
    schedules: int = 0
    kills: int = 0
    effects: int = 0
    effects_twice: int = 0
    effects_missing: int = 0
    effects_unconfirmed: int = 0
    troubles: int = 0
    seconds: float = 0.0
    calls: dict[str, int] = msgspec.field(default_factory=dict)
    coverage: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    findings: list[Finding] = msgspec.field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing at all was wrong."""
        return not self.findings

    def add(self, done: Schedule, verdict: Verdict) -> None:
        """Counts one schedule."""
        self.schedules += 1
        self.kills += len(done.struck)
        self.effects += len(done.ledger.posts)
        self.effects_twice += len(verdict.twice)
        self.effects_missing += len(verdict.missing)
        self.effects_unconfirmed += len(verdict.unconfirmed)
        self.troubles += len(verdict.troubles)
        for kill in done.struck:
            row = self.coverage.setdefault(kill.step, {})
            row[kill.victim] = row.get(kill.victim, 0) + 1
        for call in done.plan.calls.values():
            kind = f"{call.word}, {call.how}, {call.voices}" if call.word else "only reads"
            self.calls[kind] = self.calls.get(kind, 0) + 1
        if not verdict.clean:
            self.findings.append(Finding(done.plan.name, verdict, done.plan))


def table(totals: Totals) -> str:
    """Kills by step and victim."""
    lines = ["| step | " + " | ".join(VICTIMS) + " |", "|---|" + "---:|" * len(VICTIMS)]
    for step in STEPS:
        row = totals.coverage.get(step, {})
        lines.append(f"| {step} | " + " | ".join(str(row.get(victim, 0)) for victim in VICTIMS) + " |")
    struck = sum(len(row) for row in totals.coverage.values())
    lines.append(f"\n{struck} of {len(STRIKES)} combinations of step and victim")
    return "\n".join(lines)


def summary(totals: Totals) -> str:
    """One line of counts."""
    return (
        f"{totals.schedules} schedules, {totals.kills} kills, {totals.effects} effects: "
        f"{totals.effects_twice} twice, {totals.effects_missing} missing, "
        f"{totals.effects_unconfirmed} unconfirmed; {totals.troubles} other troubles"
    )


class Campaign:
    """Carries out `plans`, in several worlds; `say` gets a line for each finding, and now and then."""

    def __init__(self, seed: int, plans: Iterable[Plan], say: Say, *, patience: float = 60.0) -> None:
        self.totals = Totals(seed)
        self._plans = iter(plans)
        self._say = say
        self._patience = patience
        self._done: list[Schedule] = []

    async def run(self, nursery: Nursery, count: int, sabotage: str = "") -> Totals:
        """All of them in `count` worlds. What comes late into a log is counted, too: each is read again."""
        began = time.monotonic()
        async with worlds(nursery, count, sabotage) as places:
            await asyncio.gather(*(self._in(world) for world in places))
        self.totals.seconds = round(time.monotonic() - began, 1)
        for done in self._done:
            self.totals.add(done, judge(done.plan, done.ledger))
        return self.totals

    async def _in(self, world: World) -> None:
        mine: list[Schedule] = []
        for plan in self._plans:
            schedule = Schedule(plan, world, patience=self._patience)
            mine.append(schedule)
            self._done.append(schedule)
            try:
                await schedule.carry_out()
            except Exception as error:
                schedule.ledger.troubles.append(f"{type(error).__name__}: {error}")
            self._report(schedule)
        posts = Counter(await world.posts(0))
        for schedule in mine:
            own = f"{schedule.plan.name}."
            schedule.ledger.posts = [title for title in posts.elements() if title.startswith(own)]

    def _report(self, schedule: Schedule) -> None:
        verdict = judge(schedule.plan, schedule.ledger)
        if not verdict.clean:
            self._say(f"{schedule.plan.name}: {verdict}\n    {schedule.plan}\n    {schedule.ledger}")
        if len(self._done) % 25 == 0:
            found = sum(not judge(one.plan, one.ledger).clean for one in self._done if one.over)
            self._say(f"{len(self._done)} schedules begun, up to {schedule.plan.name}; findings: {found}")
