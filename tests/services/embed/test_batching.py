"""Texts of many callers in common batches: what goes together, what goes first, and who is sent away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import pytest_asyncio

from hearthnet.core.errors import HearthNetError
from hearthnet_embed.batching import BATCH_TOKENS, Batching

pytestmark = [pytest.mark.asyncio, pytest.mark.req("EMBED-7")]


class Engine:
    """Gives each text its own first token as its vector; holds a batch back until `go` is set."""

    def __init__(self) -> None:
        self.batches: list[list[Sequence[int]]] = []
        self.begun = threading.Event()
        self.go = threading.Event()
        self.fails = False

    def run(self, texts: list[Sequence[int]]) -> list[int]:
        self.batches.append(texts)
        self.begun.set()
        self.go.wait(120)
        if self.fails:
            raise ValueError("no memory")
        return [text[0] for text in texts]


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    found = Engine()
    yield found
    found.go.set()


@pytest_asyncio.fixture
async def batching(engine: Engine) -> AsyncIterator[Batching]:
    with ThreadPoolExecutor(1) as pool:
        made = Batching(engine.run, pool, most_waiting=10_000)
        yield made
        engine.go.set()
        await made.close()


async def _busy(batching: Batching, engine: Engine) -> asyncio.Task[list[int]]:
    """Has the engine work on a text until it may go on."""
    first = asyncio.create_task(batching.vectors([[1] * 4]))
    assert await asyncio.to_thread(engine.begun.wait, 120)
    return first


def _asked(batching: Batching, texts: list[list[int]]) -> asyncio.Task[list[int]]:
    return asyncio.create_task(batching.vectors(texts))


async def test_calls_that_come_at_once_share_a_batch(batching: Batching, engine: Engine) -> None:
    engine.go.set()
    got = await asyncio.gather(*(batching.vectors([[one] * 4, [one + 100] * 2]) for one in range(10)))
    assert got == [[one, one + 100] for one in range(10)]
    assert len(engine.batches) == 1
    assert batching.waiting == 0


async def test_a_question_overtakes_a_corpus(batching: Batching, engine: Engine) -> None:
    first = await _busy(batching, engine)
    corpus = _asked(batching, [[2] * 250 for _ in range(8)])
    await asyncio.sleep(0)
    question = asyncio.create_task(batching.vectors([[3] * 10]))
    await asyncio.sleep(0)
    engine.go.set()
    assert await first == [1]
    assert await question == [3]
    assert await corpus == [2] * 8
    assert engine.batches[1][0] == [3] * 10
    assert all(max(map(len, batch)) * len(batch) <= BATCH_TOKENS for batch in engine.batches)


async def test_where_too_much_waits_a_caller_is_told_when_to_come_back(
    batching: Batching, engine: Engine
) -> None:
    first = await _busy(batching, engine)
    large = _asked(batching, [[2] * 256 for _ in range(38)])
    await asyncio.sleep(0)
    with pytest.raises(HearthNetError) as full:
        await batching.vectors([[3] * 256 for _ in range(2)])
    assert full.value.code == "capacity_exceeded"
    assert full.value.retry_after_ms == round((4 + 38 * 256) / 4), (
        "at 4000 tokens a second, as assumed at first"
    )
    engine.go.set()
    assert (await first, await large) == ([1], [2] * 38)


async def test_nobody_is_worked_for_who_has_gone(batching: Batching, engine: Engine) -> None:
    first = await _busy(batching, engine)
    gone = asyncio.create_task(batching.vectors([[2] * 9]))
    stays = asyncio.create_task(batching.vectors([[3] * 9]))
    await asyncio.sleep(0)
    gone.cancel()
    engine.go.set()
    assert (await first, await stays) == ([1], [3])
    assert engine.batches[1:] == [[[3] * 9]]
    assert batching.waiting == 0


async def test_a_batch_that_fails_is_said_and_the_next_one_goes_on(
    batching: Batching, engine: Engine
) -> None:
    engine.fails = True
    engine.go.set()
    with pytest.raises(HearthNetError, match="no memory") as failed:
        await batching.vectors([[1], [2]])
    assert failed.value.code == "internal_error"
    engine.fails = False
    assert await batching.vectors([[5]]) == [5]


async def test_who_waits_while_it_is_let_go_is_told(batching: Batching, engine: Engine) -> None:
    first = await _busy(batching, engine)
    second = asyncio.create_task(batching.vectors([[2]]))
    await asyncio.sleep(0)
    engine.go.set()
    await batching.close()
    for waiting in (first, second):
        with pytest.raises(HearthNetError, match="unloaded"):
            await waiting
