"""Schedules, drawn from a seed: what a model wants, what people say to it, what is killed when.

Pure: the same seed gives the same schedules, on any machine. The first kill of each goes through all
combinations of step and victim in turn; no two schedules of a campaign kill the same at the same steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from tests.chaos import steps
from tests.chaos.steps import STRIKES, Victim

Word = Literal["yes", "edit", "no", "silence"]
How = Literal["here", "meanwhile", "later"]
Voices = Literal["once", "twice", "two clients", "against each other"]
READS: Final = ("list_marketplace", "search_marketplace")
_MOST_CALLS: Final = 6
_DELAYS: Final = (0.0, 0.0, 0.05, 0.2)


class Kill(msgspec.Struct, frozen=True):
    """`victim` is killed when `step` is reached for the `nth` time; it is back `delay` seconds later."""

    step: str
    victim: Victim
    nth: int = 1
    delay: float = 0.0


class Call(msgspec.Struct, frozen=True):
    """One call of the model. Without a `word` it only reads.

    `how` says where the person is: at the executor, at a client while it runs, or at one after it ended.
    `voices` says how the word is given: once, twice by one client, by two at once, or by two of which the
    other says no.
    """

    key: str
    tool: str
    word: Word | None = None
    how: How = "here"
    voices: Voices = "once"

    @property
    def title(self) -> str:
        """The title of the post that this word allows; empty where it allows none."""
        return {"yes": self.key, "edit": f"{self.key}, edited"}.get(self.word or "", "")


class Plan(msgspec.Struct, frozen=True):
    """One schedule. `late`: each word comes after its question expired. `resumers` take a run up at once."""

    seed: int
    number: int
    turns: tuple[tuple[Call, ...], ...]
    kills: tuple[Kill, ...]
    late: bool = False
    resumers: int = 1

    @property
    def calls(self) -> dict[str, Call]:
        """All calls, by key."""
        return {call.key: call for turn in self.turns for call in turn}

    @property
    def name(self) -> str:
        """How it is named in what is printed, and in the posts it makes."""
        return f"{self.seed}-{self.number}"


def draw(seed: int, number: int, strike: tuple[str, Victim] | None = None) -> Plan:
    """Schedule `number` of the campaign `seed`; its first kill is `strike`."""
    rng = random.Random(f"{seed}/{number}")
    first = strike or STRIKES[number % len(STRIKES)]
    calls = _needed(rng, first[0], f"{seed}-{number}")
    count = rng.randint(len(calls), _MOST_CALLS)
    calls += [_any_call(rng, f"{seed}-{number}.{place}") for place in range(len(calls), count)]
    kills = [Kill(*first, nth=_nth(rng, first[0]), delay=rng.choice(_DELAYS))]
    for _ in range(rng.choice((0, 0, 1, 2))):
        step, victim = rng.choice(STRIKES)
        kills.append(Kill(step, victim, nth=rng.randint(1, 2), delay=rng.choice(_DELAYS)))
    return Plan(
        seed=seed,
        number=number,
        turns=tuple(_turns(rng, calls)),
        kills=tuple(kills),
        late=first[0] not in _OF_EFFECTS and rng.random() < 0.08,
        resumers=2 if rng.random() < 0.15 else 1,
    )


def plans(seed: int, count: int) -> Iterator[Plan]:
    """`count` schedules that all kill something else, or somewhere else, or at another time."""
    seen: set[tuple[tuple[str, str, int], ...]] = set()
    number = 0
    order = list(STRIKES)
    random.Random(seed).shuffle(order)
    for turn in range(count):
        while True:
            plan = draw(seed, number, order[turn % len(order)])
            number += 1
            kills = tuple((kill.step, kill.victim, kill.nth) for kill in plan.kills)
            if kills not in seen or number > 20 * count:
                break
        seen.add(kills)
        yield plan


_OF_EFFECTS: Final = {
    *steps.PROVIDER,
    steps.SENDING,
    steps.ANSWERED,
    steps.SAYING,
    steps.SAID,
    steps.saving("a claim"),
    steps.saved("a claim"),
    steps.saving("an outcome"),
    steps.saved("an outcome"),
}
"""Steps that a run whose words all come too late never reaches."""


def _needed(rng: random.Random, step: str, name: str) -> list[Call]:
    """The call without which `step` would not be reached."""
    how: How = rng.choice(("here", "meanwhile", "later"))
    if step in (steps.SAYING, steps.SAID):
        how = "here"
    elif step in steps.CLIENT:
        how = "meanwhile"
    elif step in (steps.saving("a suspension"), steps.saved("a suspension")):
        how = "later"
    word: Word = "yes" if step in _OF_EFFECTS else rng.choice(("yes", "yes", "edit"))
    return [Call(f"{name}.0", "market_post", word, how, _voices(rng, how))]


def _any_call(rng: random.Random, key: str) -> Call:
    if rng.random() < 0.3:
        return Call(key, rng.choice(READS))
    word: Word = rng.choice(("yes", "yes", "yes", "edit", "no", "silence"))
    how: How = rng.choice(("here", "meanwhile", "later"))
    return Call(key, "market_post", word, how, _voices(rng, how))


def _voices(rng: random.Random, how: How) -> Voices:
    if how == "here":
        return "once"
    return rng.choice(("once", "once", "twice", "two clients", "against each other"))


def _nth(rng: random.Random, step: str) -> int:
    """A step that each run passes once is struck then; others also later."""
    once = step in (steps.saving("the end"), steps.saved("the end"), *steps.CLIENT, steps.SAYING, steps.SAID)
    return 1 if once else rng.choice((1, 1, 1, 2))


def _turns(rng: random.Random, calls: list[Call]) -> Iterator[tuple[Call, ...]]:
    while calls:
        size = rng.randint(1, len(calls))
        yield tuple(calls[:size])
        calls = calls[size:]
