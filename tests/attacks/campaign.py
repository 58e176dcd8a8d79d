"""A campaign of random attacks against one running node, and what has to hold between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.bus.session.keyring import load_identity
from hearthnet.contracts.namespaces import is_provider_defined
from tests.attacks.attacker import LIST, LIST_BODY
from tests.attacks.conftest import Victim
from tests.attacks.random_attacks import FAMILIES, Target
from tests.helpers.full_house import FullHouse, full_house, memory_kb
from tests.helpers.shell import Shell

AT_ONCE: Final = 4
BETWEEN_CHECKS: Final = 40
PROGRESS_SECONDS: Final = 10.0
OWN_CALL_SECONDS: Final = 10.0
GROWTH_KB: Final = 150_000
"""How much more memory a process may hold after the attacks than after the first of them."""


class Totals(msgspec.Struct, kw_only=True):
    """What came of a campaign: how many attacks of each family, and what was wrong."""

    seed: int
    seconds: float = 0.0
    attacks: Counter[str] = msgspec.field(default_factory=Counter)
    wrong: list[str] = msgspec.field(default_factory=list)
    growth_kb: dict[str, float] = msgspec.field(default_factory=dict)


@contextlib.asynccontextmanager
async def _attacker(house: FullHouse) -> AsyncIterator[Target]:
    victim = Victim(house.home, house.url, load_identity(house.home.device_key), house.neighbourhood)
    mallory = await victim.attacker()
    try:
        market = await mallory.target(LIST, victim.node)
        everything = await house.offers(mallory.bus)
        offers = tuple(one for one in everything if not is_provider_defined(one.capability.name))
        status = await asyncio.to_thread(Shell(house.home.path).json, "status", "--json")
        gateway = next(one["address"] for one in status["services"] if one["name"] == "gateway")
        yield Target(house, victim, mallory, market, offers, gateway)
    finally:
        await mallory.bus.close()


def campaign(folder: Path, seed: int, seconds: float, say: Callable[[str], None]) -> Totals:
    """Start a node with every service and its gateway in `folder`, and attack it for `seconds`.

    Attack number n of a seed is the same each time.
    """

    async def attacked() -> Totals:
        async with _attacker(house) as at:
            return await _attack(at, seed, seconds, say)

    with full_house(folder, "mallory", "carol", gateway=True) as house:
        return asyncio.run(attacked())


async def _attack(at: Target, seed: int, seconds: float, say: Callable[[str], None]) -> Totals:
    totals, number = Totals(seed=seed), 0
    began = said = monotonic()
    processes, memory = at.house.processes, dict[str, float]()
    async with await Bus.join(at.house.home, at.house.url, "owner") as owner:
        while monotonic() - began < seconds and len(totals.wrong) < 20:
            for _ in range(0, BETWEEN_CHECKS, AT_ONCE):
                numbers = range(number, number + AT_ONCE)
                found = await asyncio.gather(*(_strike(at, totals, seed, one) for one in numbers))
                number += AT_ONCE
                for line in filter(None, found):
                    totals.wrong.append(line)
                    say(f"  WRONG: {line}")
            memory = memory or _memory(processes)
            wrong = await _unharmed(at, owner, processes)
            totals.wrong += wrong
            for line in wrong:
                say(f"  WRONG after attack {number}: {line}")
            if (now := monotonic()) - said >= PROGRESS_SECONDS:
                said = now
                say(f"{now - began:4.0f} s  {number:5} attacks, {len(totals.wrong)} wrong")
    totals.growth_kb = {name: held - memory[name] for name, held in _memory(processes).items()}
    totals.wrong += [f"{name} grew by {kb:.0f} KB" for name, kb in totals.growth_kb.items() if kb > GROWTH_KB]
    totals.seconds = round(monotonic() - began, 1)
    return totals


async def _strike(at: Target, totals: Totals, seed: int, number: int) -> str:
    random = Random(f"{seed} {number}")
    name = random.choice(sorted(FAMILIES))
    totals.attacks[name] += 1
    try:
        wrong = await FAMILIES[name](at, random)
    except Exception as error:  # whatever an attack meets, the campaign says which one and goes on
        wrong = f"{type(error).__name__}: {error}"
    return wrong and f"attack {number}, {name}: {wrong}"


async def _unharmed(at: Target, owner: Bus, processes: dict[str, int]) -> list[str]:
    """What is not as it was: processes that ended, calls of the node itself that are not answered."""
    began = monotonic()
    await owner.call(LIST, LIST_BODY, node=at.victim.node)
    took, now = monotonic() - began, at.house.processes
    wrong = [
        f"{name} was {pid}, is {now.get(name)}" for name, pid in processes.items() if now.get(name) != pid
    ]
    return wrong + ([f"the node's own call took {took:.1f} s"] if took > OWN_CALL_SECONDS else [])


def _memory(processes: dict[str, int]) -> dict[str, float]:
    return {name: memory_kb(pid) for name, pid in processes.items()}
