"""What a sentence costs from English into Spanish: through the bus, through the pipeline alone, and by the
`apertium` command, a process each. Nothing is measured where the pair is not installed.

See: docs/trans.md#what-translates.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from hearthnet.bus.bus import Bus
from hearthnet.text import detect
from hearthnet_trans import TransService
from hearthnet_trans.apertium.backend import Apertium
from hearthnet_trans.backend import TranslationWork
from tests.bench.figures import Figure
from tests.helpers.mesh import start_mesh
from tests.services.trans.programs import by_command
from tests.services.trans.sentences import ENGLISH

PAIR: Final = ("en", "es")
_ROUNDS: Final = 5
_PROCESSES: Final = 10
_AT_ONCE: Final = 200


def figures() -> list[Figure]:
    """Medians over the fifty sentences of the tests, each with a number, so that none is kept from before."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    apertium = Apertium()
    await apertium.open(lambda: None)
    try:
        if PAIR not in apertium.pairs:
            return []
        alone = await _alone(apertium)
        together = await _together(apertium)
    finally:
        await apertium.close()
    with tempfile.TemporaryDirectory() as folder:
        bus, cached, detected = await _by_bus(Path(folder))
    command = await asyncio.to_thread(_by_command)
    return [
        Figure("trans.bus_ms", bus, "ms", "< 25", "a sentence through the bus, one after another"),
        Figure("trans.cached_ms", cached, "ms", "", "the same sentence again: remembered"),
        Figure("trans.auto_ms", detected, "ms", "", "one whose language is found out"),
        Figure("trans.service_ms", alone, "ms", "", "a sentence through the pipeline, one after another"),
        Figure("trans.together_ms", together, "ms", "", f"a sentence, {_AT_ONCE} asked for at once"),
        Figure("trans.command_ms", command, "ms", "", "a sentence by the apertium command, a process each"),
    ]


def _texts(round_: int) -> list[str]:
    return [f"{sentence} {round_}" for sentence in ENGLISH.splitlines()]


async def _each(work: Callable[[str], Awaitable[Any]], texts: list[str]) -> float:
    """The median of milliseconds, after one that warms up."""
    await work("The first one.")
    costs = []
    for text in texts:
        began = time.perf_counter()
        await work(text)
        costs.append((time.perf_counter() - began) * 1000)
    return statistics.median(costs)


async def _alone(apertium: Apertium) -> float:
    texts = [text for round_ in range(_ROUNDS) for text in _texts(round_)]
    return await _each(lambda text: apertium.translate(TranslationWork(text, *PAIR)), texts)


async def _together(apertium: Apertium) -> float:
    costs = []
    for round_ in range(_ROUNDS):
        texts = (_texts(round_) * _AT_ONCE)[:_AT_ONCE]
        began = time.perf_counter()
        await asyncio.gather(*(apertium.translate(TranslationWork(text, *PAIR)) for text in texts))
        costs.append((time.perf_counter() - began) * 1000 / _AT_ONCE)
    return statistics.median(costs)


async def _by_bus(folder: Path) -> tuple[float, float, float]:
    mesh = await start_mesh(folder)
    try:
        async with mesh.hosting(TransService([Apertium()])), await mesh.bus() as bus:
            texts = [text for round_ in range(_ROUNDS) for text in _texts(round_)]
            await asyncio.to_thread(detect.detect, "Load what it takes to know a language.")
            return (
                await _each(lambda text: _ask(bus, text, "en"), texts),
                await _each(lambda text: _ask(bus, text, "en"), texts),
                await _each(lambda text: _ask(bus, f"The water is cold. {text}", "auto"), texts[:50]),
            )
    finally:
        mesh.server.stop()


async def _ask(bus: Bus, text: str, source: str) -> None:
    await bus.call("trans.text@1.0", {"params": {}, "input": {"text": text, "from": source, "to": "es"}})


def _by_command() -> float:
    costs = []
    for text in ENGLISH.splitlines()[:_PROCESSES]:
        began = time.perf_counter()
        by_command(PAIR, text)
        costs.append((time.perf_counter() - began) * 1000)
    return statistics.median(costs)
