"""Five homes with one market under random cuts and kills; healed, each shows the same, and nothing else.

Each home's person posts, changes, ends, deletes, reserves and lends on the own node, one act after the other.
For the second half of the rounds there are two doors. A round:

    homes are cut off, one way or both, or nothing happens; or a door is killed or cut off for rounds
    --> acts at drawn homes; in some rounds a market, or a whole node, is killed (SIGKILL) meanwhile
    --> acts whose answer was lost are repeated with their keys

After every `CHECK` rounds all cuts are healed. Then every home must list the same posts, equal
in each byte but their number at that home, within `LEVEL_SECONDS`: what was acknowledged is there as its
author left it, once, and what has ended stays so. So are the reservations; nothing was promised twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.ids import new_ulid
from tests.helpers.waiting import wait_for
from tests.homes.house import House
from tests.homes.loans import Loans, draw_step, shown_states
from tests.homes.town import Town, town

HOMES: Final = 5
DOORS: Final = (0, 1)
CHECK: Final = 5
LEVEL_SECONDS: Final = 30.0
"""Maximum time until all homes are level, on a busy machine; the slowest is among the totals."""
REPEAT_SECONDS: Final = 60.0
ACTS_A_ROUND: Final = 6
_LENDING: Final = frozenset({"reserve", "lend"})
_VERBS: Final = (*["post"] * 3, "update", "expire", "delete", *["loan"] * 4)
Shown = tuple[str, dict[str, str]]
"""A post: its title, and the states of its reservations by their ids."""
_LOST: Final = frozenset({"partition", "timeout", "not_found", "internal_error"})
"""Codes of an act whose node was killed, or has not started its market again."""


class Totals(msgspec.Struct):
    """The result of a campaign: counts, and one line for each finding."""

    seed: int
    rounds: int = 0
    acts: int = 0
    repeated: int = 0
    steps: int = 0
    refused_steps: int = 0
    contested: int = 0
    cuts: int = 0
    killed_nodes: int = 0
    killed_markets: int = 0
    lost_doors: int = 0
    checks: int = 0
    slowest_level_seconds: float = 0.0
    seconds: float = 0.0
    findings: list[str] = msgspec.field(default_factory=list)


class Act(msgspec.Struct):
    """One act of a person: its capability and input, the client id among it."""

    verb: str
    given: dict[str, Any]


class Lost(msgspec.Struct):
    """A door that stays killed, or cut off, for `rounds` more rounds."""

    door: int
    rounds: int
    is_killed: bool


class Campaign:
    """Rounds in `folder`, drawn by `seed`; `say` takes a line for each of them."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self.totals = Totals(seed)
        self._random = random.Random(seed)
        self._acting = random.Random(seed)
        """Draws acts, which depend on what homes list just then; cuts and kills depend on the seed alone."""
        self._say = say
        self._folder = folder
        self._town: Town
        self._posts: list[dict[str, str]] = [{} for _ in range(HOMES)]
        """The titles of each home's open posts by their ids, as their author left them."""
        self._loans = Loans()
        self._doors: tuple[int, ...] = ()
        self._lost: Lost | None = None

    async def run(self, rounds: int) -> Totals:
        """Carry out `rounds` rounds, with a check after the last."""
        began = time.monotonic()
        async with town(self._folder, HOMES) as self._town:
            for number in range(1, rounds + 1):
                await self._round()
                self.totals.rounds += 1
                if number % CHECK == 0 or number == rounds:
                    await self._restore()
                    await self._check(number)
                if number == rounds // 2:
                    await self._restore()
                    await self._town.open_doors(*DOORS)
                    self._doors = DOORS
        self.totals.contested = self._loans.contested
        self.totals.seconds = round(time.monotonic() - began, 1)
        return self.totals

    async def _round(self) -> None:
        await self._disturb()
        absent = self._lost.door if self._lost is not None and self._lost.is_killed else None
        present = [number for number in range(HOMES) if number != absent]
        victim = self._random.choice(present) if self._random.random() < 0.25 else None
        whole = victim is not None and self._random.random() < 0.4
        at = self._random.choices(present, k=ACTS_A_ROUND)
        acts = asyncio.gather(*(self._acts(house, at.count(house)) for house in set(at)))
        if victim is not None:
            await self._kill(self._town.houses[victim], whole=whole)
        lost = [pair for pairs in await acts for pair in pairs]
        if whole and victim is not None:
            self._town.houses[victim].begin()
            await self._town.houses[victim].wait_until_ready()
        for number, act in lost:
            self.totals.repeated += 1
            await self._repeat(number, act)

    async def _disturb(self) -> None:
        if self._lost is not None:
            self._lost.rounds -= 1
            if self._lost.rounds:
                return
            await self._restore()
        network = self._town.network
        kinds = ("off", "long", "pairs", "one way", "nothing")
        kind = self._random.choice(kinds + ("door", "door") * bool(self._doors))
        self.totals.cuts += kind != "nothing"
        homes = range(HOMES)
        if kind == "off":
            network.cut_off(*self._random.sample(homes, self._random.choice((1, 2))))
        elif kind == "long":
            network.heal()
            await self._town.cut_off(self._random.randrange(HOMES))
        elif kind == "door":
            network.heal()
            await self._lose_door()
        elif kind == "nothing":
            network.heal()
        else:
            pairs = [(a, b) for a, b in (self._random.sample(homes, 2) for _ in range(4))]
            network.cut(*pairs, *((b, a) for a, b in pairs if kind == "pairs"))

    async def _lose_door(self) -> None:
        self.totals.lost_doors += 1
        lost = Lost(self._random.choice(self._doors), self._random.randint(1, 3), self._random.random() < 0.5)
        if lost.is_killed:
            await self._town.houses[lost.door].kill_node()
        else:
            self._town.network.cut_off(lost.door)
        self._lost = lost

    async def _restore(self) -> None:
        """Heal all cuts, and start the home of a killed door again."""
        lost, self._lost = self._lost, None
        self._town.network.heal()
        if lost is not None and lost.is_killed:
            self._town.houses[lost.door].begin()
            await self._town.houses[lost.door].wait_until_ready()

    async def _kill(self, house: House, *, whole: bool) -> None:
        if whole:
            self.totals.killed_nodes += 1
            await house.kill_node()
        else:
            self.totals.killed_markets += 1
            house.kill_service("market")

    async def _acts(self, number: int, count: int) -> list[tuple[int, Act]]:
        """Carry out acts at a home, one after the other; return those whose answer was lost."""
        lost: list[tuple[int, Act]] = []
        for _ in range(count):
            act = await self._draw(number)
            self.totals.acts += 1
            try:
                await self._carry_out(number, act)
            except HearthNetError as error:
                if self._is_refused(act, error):
                    continue
                if error.code not in _LOST:
                    raise
                lost.append((number, act))
                break
        return lost

    async def _repeat(self, number: int, act: Act) -> None:
        """Carry out an act whose answer was lost with its key again, until it is answered."""

        async def is_answered() -> bool:
            try:
                await self._carry_out(number, act)
            except HearthNetError as error:
                if self._is_refused(act, error):
                    return True
                if error.code not in _LOST:
                    raise
                return False
            return True

        await wait_for(is_answered, REPEAT_SECONDS, f"{act.verb} to be answered")

    def _is_refused(self, act: Act, error: HearthNetError) -> bool:
        """Whether a step of lending was refused: its post has ended, or another one has the thing."""
        codes = {"bad_request", "unauthorized"}
        is_refused = act.verb in _LENDING and (error.code in codes or act.given["event_id"] in error.message)
        self.totals.refused_steps += is_refused
        return is_refused

    async def _draw(self, number: int) -> Act:
        verb = self._acting.choice(_VERBS)
        if verb == "loan":
            with contextlib.suppress(HearthNetError):
                step = draw_step(
                    await self._town.posts(number), self._town.houses[number].node_id, self._acting
                )
                if step is not None:
                    return Act(step[0], {"client_id": new_ulid(), **step[1]})
            verb = "post"
        mine = self._posts[number]
        key, house = new_ulid(), self._town.houses[number]
        title = f"{house.name} {key}"
        if verb == "post" or not mine:
            return Act("post", {"client_id": key, "category": "offer", "title": title, "body": "To lend."})
        given: dict[str, Any] = {"client_id": key, "event_id": self._acting.choice(sorted(mine))}
        more: dict[str, dict[str, Any]] = {
            "update": {"fields": {"title": title}},
            "expire": {"reason": "withdrawn"},
        }
        return Act(verb, given | more.get(verb, {}))

    async def _carry_out(self, number: int, act: Act) -> None:
        """Carry out an act, and write down what its author left."""
        if act.verb in _LENDING:
            self._loans.begin(act.verb, act.given)
        made = await self._call(number, f"market.{act.verb}@1.0", **act.given)
        mine = self._posts[number]
        if act.verb in _LENDING:
            self.totals.steps += 1
            if fault := self._loans.taken(act.verb, act.given, made["event_id"]):
                self.totals.findings.append(fault)
        elif act.verb == "post":
            mine[made["event_id"]] = act.given["title"]
        elif act.verb == "update":
            mine[act.given["event_id"]] = act.given["fields"]["title"]
        else:
            del mine[act.given["event_id"]]

    async def _check(self, number: int) -> None:
        """Wait until every home lists what the authors left, in the same bytes."""
        began = time.monotonic()
        expected = {
            key: (title, self._loans.states(key)) for posts in self._posts for key, title in posts.items()
        }
        pages: list[dict[str, dict[str, Any]]] = []

        async def are_level() -> bool:
            pages[:] = await asyncio.gather(*map(self._town.posts, range(HOMES)))
            same = {canonical_json(page) for page in pages}
            return len(same) == 1 and _shown(pages[0]) == expected

        try:
            await wait_for(are_level, LEVEL_SECONDS, "all homes to be level")
        except TimeoutError:
            self._find(number, pages, expected)
        seconds = time.monotonic() - began
        self.totals.checks += 1
        self.totals.slowest_level_seconds = max(self.totals.slowest_level_seconds, round(seconds, 2))
        self._say(f"round {number}: {len(expected)} posts, level after {seconds:.1f} s")

    async def _call(self, number: int, capability: str, **given: Any) -> dict[str, Any]:
        return await self._town.houses[number].call(capability, **given)

    def _find(self, number: int, pages: list[dict[str, dict[str, Any]]], expected: dict[str, Shown]) -> None:
        for house, page in zip(self._town.houses, pages, strict=True):
            shown = _shown(page)
            missing, more = expected.keys() - shown.keys(), shown.keys() - expected.keys()
            both = expected.keys() & shown.keys()
            other = {key: (shown[key], expected[key]) for key in both if expected[key] != shown[key]}
            line = f"round {number}: {house.name}: missing {missing}, too many {more}, others {other}"
            self.totals.findings.append(line)
            self._say(line)


def _shown(page: dict[str, dict[str, Any]]) -> dict[str, Shown]:
    return {key: (post["title"], shown_states(post)) for key, post in page.items()}
