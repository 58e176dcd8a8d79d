"""A home in a place of the network: its node as processes, and calls by a process beside them."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.input.member_lookup import roster_of
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from tests.helpers.processes import processes_of
from tests.helpers.shell import READY_SECONDS, STOP_SECONDS, Shell
from tests.helpers.waiting import wait_for
from tests.homes.network import Place

CALL_SECONDS = 10.0
_ESTABLISHED = "01"
_SETTINGS = """\
[node]
display_name = "{name}"
[community]
host = "0.0.0.0"
[gateway]
enabled = false
[services]
enabled = ["auth", "market"]
"""


class House:
    """A home with its market at `place`; `close` ends whatever runs of it."""

    def __init__(self, place: Place, folder: Path, name: str) -> None:
        self.name = name
        self.address = place.address
        self.shell = Shell(folder / name, before=place.before)
        self.shell.home.mkdir(parents=True, exist_ok=True)
        (self.shell.home / "hearthnet.toml").write_text(_SETTINGS.format(name=name))
        self._ready = self.shell.home.with_suffix(".ready")
        self._log = self.shell.home.with_suffix(".log")
        self._node: subprocess.Popen[bytes] | None = None
        self._caller: asyncio.subprocess.Process | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._number = 0

    def begin(self) -> None:
        """Start `hearthnet up`; `wait_until_ready` waits for it, so that several homes start side by side."""
        self._ready.unlink(missing_ok=True)
        with self._log.open("ab") as output:
            self._node = subprocess.Popen(
                [*self.shell.before, self.shell.program, "up", "--ready-file", self._ready],
                env=self.shell.environ(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    async def wait_until_ready(self) -> None:
        """Wait for the node that `begin` started, and connect to it."""
        node = self._node
        assert node is not None
        await wait_for(
            lambda: self._ready.exists() or node.poll() is not None, READY_SECONDS, f"{self.name} to be ready"
        )
        assert node.poll() is None, self._log.read_text()[-2000:]
        await self._connect()

    @functools.cached_property
    def node_id(self) -> str:
        """The id of its node, which has run."""
        return load_identity(Home(self.shell.home).device_key).node_id

    def is_trusted(self) -> bool:
        """Whether this home's roster says that its node may open a door."""
        return roster_of(Home(self.shell.home)).stands_alone(self.node_id)

    def peers(self) -> set[str]:
        """The addresses to which its computer has connections, its own among them."""
        if self._node is None:
            return set()
        rows = Path(f"/proc/{self._node.pid}/net/tcp").read_text("ascii").splitlines()[1:]
        ends = [row.split()[2:4] for row in rows]
        numbers = [int(end.partition(":")[0], 16) for end, state in ends if state == _ESTABLISHED]
        return {socket.inet_ntoa(number.to_bytes(4, sys.byteorder)) for number in numbers} - {"127.0.0.1"}

    def json(self, *arguments: str) -> Any:
        """What a command that must succeed prints as JSON."""
        return self.shell.json(*arguments, "--json")

    def join(self, other: House) -> None:
        """Redeem an invite of `other`, whose node runs; the own one does not run yet."""
        invite = other.json("invite", "create", "--name", self.name)["invite"]
        done = self.shell.run("invite", "redeem", "--json", stdin=invite)
        assert done.returncode == 0, done.stderr

    async def call(
        self, capability: str, *, node: str = "", seconds: float = CALL_SECONDS, **given: Any
    ) -> dict[str, Any]:
        """The output of a call with that input, of the home `node` if it is given.

        Raises:
            HearthNetError: As the call; `partition` if the process that makes it has ended.
        """
        caller = self._caller
        if caller is None or caller.stdin is None or caller.returncode is not None:
            raise HearthNetError("partition", f"the node of {self.name} was ended")
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        asked = {"number": number, "capability": capability, "given": given, "node": node, "seconds": seconds}
        caller.stdin.write(msgspec.json.encode(asked) + b"\n")
        told = await answer
        if "code" in told:
            raise HearthNetError(told["code"], told["message"])
        output: dict[str, Any] = told["output"]
        return output

    async def run_module(self, module: str, *arguments: str) -> None:
        """Run a Python module at this home's place, with its folder as first argument; it must succeed."""
        command = [*self.shell.before, sys.executable, "-m", module, str(self.shell.home), *arguments]
        process = await asyncio.create_subprocess_exec(*command, env=self.shell.environ())
        assert await process.wait() == 0, command

    def log(self, service: str) -> str:
        """What a service has written to its log."""
        return Home(self.shell.home).log(service).read_text()

    def note(self, service: str) -> str | None:
        """The line beside a service in `hearthnet status`; None where there is none, or no node runs."""
        try:
            state = read_node_state(Home(self.shell.home))
        except HearthNetError:
            return None
        return next((one.note for one in state.services if one.name == service), None)

    @property
    def is_connected(self) -> bool:
        """Whether calls can be made."""
        return self._reading is not None

    async def kill_node(self) -> None:
        """End the node and all of its processes without warning (SIGKILL)."""
        node, self._node = self._node, None
        assert node is not None
        node.kill()
        node.wait()
        await self._disconnect()
        await wait_for(lambda: not processes_of(self.shell.home), what=f"the end of {self.name}'s processes")

    def kill_service(self, service: str) -> None:
        """End one process of the node without warning (SIGKILL); the node starts it again."""
        state = read_node_state(Home(self.shell.home))
        assert state is not None
        pid = next(one.pid for one in state.services if one.name == service)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    async def close(self) -> None:
        """Stop the node in order, where it runs."""
        await self._disconnect()
        if self._node is not None and self._node.poll() is None:
            self._node.terminate()
            try:
                await asyncio.to_thread(self._node.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._node.kill()
                self._node.wait()

    async def _connect(self) -> None:
        command = [*self.shell.before, sys.executable, "-m", "tests.homes.caller", str(self.shell.home)]
        self._caller = await asyncio.create_subprocess_exec(
            *command, env=self.shell.environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=2**24
        )
        assert self._caller.stdout is not None
        assert await self._caller.stdout.readline(), f"no connection to {self.name}"
        self._reading = asyncio.create_task(self._read(self._caller.stdout))

    async def _read(self, lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            told = msgspec.json.decode(line)
            self._answers.pop(told["number"]).set_result(told)
        for number in list(self._answers):
            error = {"code": "partition", "message": f"the caller of {self.name} has ended"}
            self._answers.pop(number).set_result(error)

    async def _disconnect(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            if caller.returncode is None:
                caller.kill()
            await caller.wait()
        if self._reading is not None:
            await self._reading
            self._reading = None
