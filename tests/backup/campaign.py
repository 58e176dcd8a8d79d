"""Backups of a node under load, some of them killed at a random point, each restored and looked at.

One node runs all the time. Two callers post on its market and water its garden, one call after the other; the
garden is a program outside the home, which writes down what it was asked to do. A round:

    a backup is made, and killed (SIGKILL) after a random time in two of three rounds
    --> the newest backup in the folder is restored into a new home, whose node starts
    --> its posts are those of one moment; every call is repeated there with its key
    --> the garden was asked once for each key
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hearthnet.backup import reader
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.session.keyring import create_identity
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.ids import new_ulid
from hearthnet.trust.keys import Identity
from tests.backup.homes import ignore
from tests.helpers.shell import READY_SECONDS, STOP_SECONDS, Shell
from tests.helpers.waiting import wait_for
from tests.services.mcp.houses import Plain, offered, tool

WATER = "experimental.mcp.garden.water"
POST = "market.post"
SETTINGS = """\
[server]
port = 0
[community]
port = 0
[gateway]
enabled = false
[services]
enabled = ["market", "mcp"]
"""


class Totals(msgspec.Struct):
    """The result of a campaign: counts, and one line for each finding."""

    seed: int
    rounds: int = 0
    killed: int = 0
    new_backups: int = 0
    posts: int = 0
    effects: int = 0
    effects_twice: int = 0
    unknown: int = 0
    largest_pause_ms: int = 0
    seconds: float = 0.0
    findings: list[str] = msgspec.field(default_factory=list)


@dataclass
class Load:
    """What two callers have asked for; each key stands in the order in which it was sent."""

    posts: dict[str, bool] = field(default_factory=dict)
    waters: dict[str, bool] = field(default_factory=dict)

    async def post(self, bus: Bus, stop: asyncio.Event) -> None:
        """Posts until `stop` is set; the last one is answered, too."""
        while not stop.is_set():
            await self.send(bus, POST, new_ulid(), self.posts)

    async def water(self, bus: Bus, stop: asyncio.Event) -> None:
        """Waters until `stop` is set; the last call is answered, too."""
        while not stop.is_set():
            await self.send(bus, WATER, new_ulid(), self.waters)

    async def send(self, bus: Bus, capability: str, key: str, book: dict[str, bool]) -> None:
        """Sends one call; the book says whether it was answered."""
        book[key] = False
        await send(bus, capability, key)
        book[key] = True


async def send(bus: Bus, capability: str, key: str) -> ReceivedReply:
    """The answer to the call with this key."""
    words = {"text": key}
    if capability == POST:
        words = {"category": "offer", "title": key, "body": "To lend.", "client_id": key}
    contract = await bus.fetch_contract(capability)
    body = contract.split_arguments(words, None)
    return await bus.call(contract.id, body, idempotency_key=key, timeout_seconds=60)


class RunningNode:
    """`hearthnet up` in a home, killed with its processes at the end."""

    def __init__(self, home: Path) -> None:
        self.shell = Shell(home)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Bus:
        ready, log = self.shell.home.with_suffix(".ready"), self.shell.home.with_suffix(".log")
        command = [str(self.shell.program), "up", "--ready-file", str(ready)]
        with log.open("ab") as output:
            self._process = process = await asyncio.create_subprocess_exec(
                *command,
                env=self.shell.environ(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        await wait_for(
            lambda: ready.exists() or process.returncode is not None, READY_SECONDS, "the ready-file"
        )
        if process.returncode is not None:
            raise RuntimeError(f"the node did not start: {log.read_text()[-2000:]}")
        self._bus = await Bus.connect(Home(self.shell.home), "campaign")
        await offered(self._bus, "water")
        return self._bus

    async def __aexit__(self, *_error: object) -> None:
        if hasattr(self, "_bus"):
            await self._bus.close()
        if self._process is not None:
            self._process.kill()
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)


class Campaign:
    """Rounds in `folder`, drawn by `seed`; `say` takes a line for each of them."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self.totals = Totals(seed)
        self._random = random.Random(seed)
        self._say = say
        self._folder = folder
        self._home = Home(folder / "home")
        self._backups = folder / "backups"
        self._backups.mkdir()
        self._recovery: Identity = create_identity(self._home.recovery_key)
        self._garden = Plain(folder / "garden", "garden")
        self._garden.lists(tool("water"))
        self._garden.answers(water={"result": {"content": [{"type": "text", "text": "Watered."}]}})
        (self._home.path / "hearthnet.toml").write_text(SETTINGS + self._garden.toml())
        self._load = Load()
        self._backup_seconds = 0.0

    async def run(self, rounds: int) -> Totals:
        """Carry out `rounds` rounds, at least one of which makes a backup."""
        began = time.monotonic()
        async with RunningNode(self._home.path) as bus:
            for number in range(rounds):
                try:
                    await self._round(bus, number)
                except Exception as error:
                    self._find(number, "; ".join(_causes(error)))
                self.totals.rounds += 1
        self.totals.posts, self.totals.effects = len(self._load.posts), len(self._load.waters)
        self.totals.seconds = round(time.monotonic() - began, 1)
        return self.totals

    async def _round(self, bus: Bus, number: int) -> None:
        # Kills fall anywhere in what the last complete backup took.
        kill_after = self._random.uniform(0.0, self._backup_seconds) if number and number % 3 else None
        known = {one.id for one in reader.listing(self._backups)}
        answered = [key for key, done in self._load.posts.items() if done]
        async with self._loading(bus):
            await self._backup(kill_after)
        found = reader.choose(self._backups)
        is_new = found.id not in known
        self.totals.new_backups += is_new
        if kill_after is None:
            assert is_new, "a backup that nobody killed was not made"
        reader.verify(found, None, ignore)
        await self._look(number, found, answered if is_new else [])

    @contextlib.asynccontextmanager
    async def _loading(self, bus: Bus) -> AsyncIterator[None]:
        """The two callers work in the block, and finish their last calls after it."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._load.post(bus, stop))
            tasks.create_task(self._load.water(bus, stop))
            try:
                yield
            finally:
                stop.set()

    async def _backup(self, kill_after: float | None) -> None:
        shell = Shell(self._home.path)
        command = [str(shell.program), "backup", "create", str(self._backups), "--keep", "3", "--json"]
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command, env=shell.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output = asyncio.create_task(process.communicate())
        if kill_after is not None:
            await asyncio.wait({output}, timeout=kill_after)
            if not output.done():
                os.kill(process.pid, signal.SIGKILL)
                self.totals.killed += 1
        told, wrong = await output
        if process.returncode == 0:
            self._backup_seconds = time.monotonic() - began
            self.totals.largest_pause_ms = max(self.totals.largest_pause_ms, json.loads(told)["pause_ms"])
        elif process.returncode != -signal.SIGKILL:
            raise AssertionError(f"the backup failed: {wrong.decode()}")

    async def _look(self, number: int, found: reader.BackupEntry, answered: list[str]) -> None:
        place = self._folder / f"restored-{number}"
        await asyncio.to_thread(reader.restore, found, self._recovery, Home(place), ignore)
        try:
            async with RunningNode(place) as bus:
                await self._check_posts(number, bus, answered)
                await self._repeat(number, bus)
            verified = Counter(one["params"]["arguments"]["text"] for one in self._garden.heard("tools/call"))
            for key, count in verified.items():
                if count > 1:
                    self.totals.effects_twice += 1
                    self._find(number, f"{key} was watered {count} times")
        finally:
            shutil.rmtree(place, ignore_errors=True)
            place.with_suffix(".ready").unlink(missing_ok=True)
        self._say(f"round {number}: backup {found.id}, {len(verified)} effects, {self.totals.killed} killed")

    async def _check_posts(self, number: int, bus: Bus, answered: list[str]) -> None:
        """The posts are a beginning of what was sent, and have all that was answered before the backup."""
        reply = await bus.call("market.list@1.0", {"params": {}, "input": {"limit": 500}}, timeout_seconds=60)
        there = {post["title"] for post in reply.output["posts"]}
        sent = list(self._load.posts)
        if not await self._is_beginning(bus, sent, there):
            self._find(number, "the posts are not those of one moment")
        if missing := [key for key in answered if key not in there and key in sent[-500:]]:
            self._find(number, f"{len(missing)} posts that were answered before the backup are missing")

    async def _is_beginning(self, bus: Bus, sent: list[str], there: set[str]) -> bool:
        places = [place for place, key in enumerate(sent) if key in there]
        return not places or places == list(range(places[0], places[-1] + 1))

    async def _repeat(self, number: int, bus: Bus) -> None:
        """Each call for water once more, with its key: its outcome is told, or that it is not known."""
        keys = list(self._load.waters)
        again = {*keys[-40:], *self._random.sample(keys, min(20, len(keys)))}
        await asyncio.gather(*(self._repeat_one(number, bus, key) for key in again))

    async def _repeat_one(self, number: int, bus: Bus, key: str) -> None:
        try:
            reply = await send(bus, WATER, key)
        except HearthNetError as error:
            if error.code != "outcome_unknown":
                raise
            self.totals.unknown += 1
        else:
            if not reply.meta.get("repeated"):
                self._find(number, f"{key} was carried out anew")

    def _find(self, number: int, text: str) -> None:
        self.totals.findings.append(f"round {number}: {text}")
        self._say(self.totals.findings[-1])


def _causes(error: BaseException) -> list[str]:
    """Return the errors of a group, or the one, each with its code and data."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for one in error.exceptions for cause in _causes(one)]
    said = f"{error.code} {error.details}: " if isinstance(error, HearthNetError) else ""
    return [f"{type(error).__name__}: {said}{error}"]
