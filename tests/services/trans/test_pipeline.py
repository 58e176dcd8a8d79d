"""Programs that are kept running: in order, side by side, and gone when they are to go."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hearthnet_trans.apertium.pipeline import Broken, Pipeline
from tests.helpers.waiting import wait_for
from tests.services.trans.programs import in_group, own_programs

pytestmark = [pytest.mark.asyncio]


@asynccontextmanager
async def running(*command: str, hangs: float = 30) -> AsyncIterator[Pipeline]:
    pipeline = await Pipeline.start(list(command), hangs_seconds=hangs)
    try:
        yield pipeline
    finally:
        await pipeline.close()


@pytest.mark.req("TRANS-7")
async def test_each_gets_its_own_answer_however_many_ask_at_once() -> None:
    async with running("cat") as pipeline:
        texts = [f"number {number} " * (number % 50) for number in range(300)]
        assert await asyncio.gather(*map(pipeline.run, texts)) == texts
        assert pipeline.idle


@pytest.mark.req("TRANS-7")
async def test_who_leaves_takes_no_answer_along() -> None:
    async with running("cat") as pipeline:
        leaving = [asyncio.create_task(pipeline.run(f"left {number}")) for number in range(5)]
        await asyncio.sleep(0)
        for task in leaving:
            task.cancel()
        assert await pipeline.run("stays") == "stays"


@pytest.mark.req("TRANS-7")
async def test_all_programs_end_with_it() -> None:
    async with running("sh", "-c", "cat | cat | cat") as pipeline:
        await pipeline.run("there")
        group = pipeline._process.pid
        assert len(in_group(group)) >= 3
    await wait_for(lambda: in_group(group) == [], 30)


@pytest.mark.req("TRANS-7")
async def test_programs_that_do_not_end_by_themselves_are_killed() -> None:
    async with running("sh", "-c", "cat; sleep 600") as pipeline:
        await pipeline.run("there")
        group = pipeline._process.pid
    await wait_for(lambda: in_group(group) == [], 30)


@pytest.mark.req("TRANS-7")
@pytest.mark.parametrize(
    "command",
    [
        ("true",),
        ("sleep", "600"),
        ("sh", "-c", "exec <&-; sleep 600"),
        ("sed", "-z", "-u", r"s/.*/something else/"),
        ("sed", "-z", "-u", r"s/$/\x00more/"),
        ("head", "-z", "-n", "0"),
    ],
    ids=["dies", "hangs", "closed", "loses-count", "says-too-much", "says-nothing"],
)
async def test_what_breaks_off_is_not_waited_for(command: tuple[str, ...]) -> None:
    async with running(*command, hangs=1) as pipeline:
        said = await asyncio.gather(*(pipeline.run("text") for _ in range(3)), return_exceptions=True)
        assert isinstance(said[-1], Broken)
        await wait_for(lambda: not pipeline.alive, 30)
        with pytest.raises(Broken):
            await pipeline.run("more")
        await wait_for(lambda: in_group(pipeline._process.pid) == [], 30)


@pytest.mark.req("TRANS-7")
async def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(Broken, match="No such file or directory: '/no/such/program'"):
        await Pipeline.start(["/no/such/program"])


_SERVICE = """
import asyncio, sys
from hearthnet_trans.apertium import modes
from hearthnet_trans.apertium.pipeline import Pipeline
from pathlib import Path

async def main():
    pipeline = await Pipeline.start(modes.command(Path(sys.argv[1])))
    await pipeline.run("there")
    print(pipeline._process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.req("TRANS-7")
async def test_none_outlives_a_service_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last one reads nothing any more, so that only the death of the service can end it.
    with own_programs(tmp_path, monkeypatch, eng_spa="cat | sh -c 'cat; exec sleep 600'") as modes:
        service = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _SERVICE, str(modes / "eng-spa.mode"), stdout=asyncio.subprocess.PIPE
        )
        assert service.stdout is not None
        group = int(await service.stdout.readline())
        assert len(in_group(group)) >= 3
        service.kill()
        await service.wait()
    await wait_for(lambda: in_group(group) == [], 30)
