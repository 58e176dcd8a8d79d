"""A process that offers what the probe does and fails as told: `python failing_worker.py HOME URL ROOM`.

With a ROOM that is not 0 it remembers so many ids of each sender, and limits no rate.

What it does stands in the query, or in the question of a chat:

hold        never answers; a stream says one token before
silence     never answers, and says nothing
until go    answers once there is a file `go` in the home
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hearthnet import Call, NodeContext, Stream
from hearthnet.bus.bus import Bus
from hearthnet.core.config import Config, LimitsConfig
from hearthnet.core.home import Home
from hearthnet.protocol.replay import ReplayWindow
from hearthnet.service.hosting.host import Host
from hearthnet.service.hosting.status import Status
from tests.helpers.mesh import Mesh
from tests.helpers.probe import ProbeService
from tests.helpers.processes import child_environment
from tests.helpers.service_processes import START_SECONDS
from tests.helpers.waiting import wait_for

SCRIPT: Final = Path(__file__)
GO: Final = "go"
PLACES: Final = 10_000


@dataclass
class Worker:
    """One of them, as its test sees it."""

    process: asyncio.subprocess.Process
    instance: str

    async def announced(self) -> None:
        """Waits until it has come back to a server and has announced what it offers."""
        assert self.process.stdout is not None
        assert await self.process.stdout.readline() == b"announced\n"

    async def kill(self) -> None:
        """Ends it as a power cut would."""
        self.process.kill()
        await self.process.wait()


@contextlib.asynccontextmanager
async def running(mesh: Mesh, count: int = 1, room: int = 0) -> AsyncIterator[list[Worker]]:
    """The same, killed in the end."""
    workers = await start(mesh, count, room)
    try:
        yield workers
    finally:
        for worker in workers:
            if worker.process.returncode is None:
                await worker.kill()


async def start(mesh: Mesh, count: int = 1, room: int = 0) -> list[Worker]:
    """So many processes of the founder's node, ready; whoever starts them kills them."""

    async def one() -> Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            SCRIPT,
            mesh.home.path,
            mesh.server.url,
            str(room),
            stdout=asyncio.subprocess.PIPE,
            env=child_environment(PYTHONPATH=SCRIPT.parents[2]),
        )
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        return Worker(process, line.decode().strip())

    return await asyncio.gather(*(one() for _ in range(count)))


def _behaviour(home: Home) -> Callable[[str], Awaitable[None]]:
    gone: list[asyncio.Task[Any]] = []

    async def behave(what: str) -> None:
        if what in ("hold", "silence"):
            await asyncio.Event().wait()
        if what == "until go":
            if not gone:
                gone.append(asyncio.create_task(wait_for((home.path / GO).exists, 60, "the word to go")))
            await asyncio.shield(gone[0])

    return behave


async def _main(folder: str, url: str, room: str) -> None:
    home, service = Home.resolve(Path(folder)), ProbeService(PLACES)
    behave = _behaviour(home)

    async def answer(call: Call[Any, Any]) -> None:
        await behave(call.body["input"]["query"])

    async def talk(call: Call[Any, Any], stream: Stream) -> None:
        what = call.body["input"]["messages"][0]["content"]
        if what != "silence":
            await stream.send("token", {"text": "first"})
        await behave(what)

    service.answer, service.talk = answer, talk
    bus = await Bus.join(home, url, service.name)
    config = Config()
    if int(room):
        bus.peer.replay = ReplayWindow(most_ids=int(room))
        config = Config(limits=LimitsConfig(0, 0, 0, 0))
    node = NodeContext(home, config, url, service.name, bus, Status(None))
    await service.start(node)
    await Host(service, node).open()
    # Whoever asked to be told first is told first: the offers are out by then.
    bus.peer.link.on_restored(lambda: _say("announced"))
    await _say(bus.peer.instance)
    await asyncio.Event().wait()


async def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
