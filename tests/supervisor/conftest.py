"""Nodes with doubles for services, as real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import pytest
import pytest_asyncio

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.node_state import NodeState, ServiceState, read_node_state
from hearthnet.supervisor.nats.home_setup import Prepared, make_folders, prepare
from tests.helpers.processes import child_environment, processes_of
from tests.helpers.stopwatch import Stopwatch
from tests.helpers.waiting import wait_for_sync
from tests.supervisor.houses import Callers

SCRIPT = Path(__file__).with_name("node.py")
ROOT = SCRIPT.parents[2]


@dataclass
class Node:
    """A running `hearthnet up` whose services are doubles."""

    home: Home
    process: subprocess.Popen[bytes]
    ready_file: Path
    output: Path

    @classmethod
    def start(cls, home: Home, *services: str, ready_file: str = "ready.json") -> Node:
        """Starts without waiting; each service is `name=behaviour,behaviour` (double.py)."""
        output = home.path.with_name("output")
        path = home.path.parent / ready_file if ready_file != "-" else Path("-")
        with output.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(home.path), str(path), *services],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=child_environment(PYTHONPATH=ROOT, HEARTHNET_HOME=home.path),
            )
        return cls(home, process, path, output)

    def ready(self) -> NodeState:
        """Waits for the ready-file and returns what it says."""
        return wait_for_sync(self._announced, 120, "the ready-file")

    def _announced(self) -> NodeState | None:
        if self.process.poll() is not None:
            raise AssertionError(f"ended with {self.process.returncode}: {self.said()}")
        if not self.ready_file.exists():
            return None
        state = msgspec.json.decode(self.ready_file.read_bytes(), type=NodeState)
        # One that a killed node left behind is there until this one starts.
        return state if state.pid == self.process.pid else None

    def service(self, name: str) -> ServiceState:
        """What the node's state says of one service."""
        return next(service for service in read_node_state(self.home).services if service.name == name)

    def reaches(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until the state of the running node satisfies `condition`."""

        def holds() -> bool:
            try:
                return condition()
            except HearthNetError:
                return False

        wait_for_sync(holds, 60, f"{what}; said {self.said()}")

    def said(self) -> str:
        """What it printed so far."""
        return self.output.read_text("utf-8")

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Sends a signal and waits for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def seconds_to_end(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Sends a signal; the seconds to the end, which is still to be waited for, without other load."""
        watch = Stopwatch(self.process.pid)
        self.process.send_signal(number)
        # Ended and not yet reaped: what it waited for cores can still be read.
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return watch.seconds()

    def family(self) -> list[psutil.Process]:
        """Every process that it has started, directly or not."""
        found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return found


def living(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run."""
    return [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def place(tmp_path: Path) -> Home:
    """A home whose settings ask for any free port; nothing else is in it yet."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    home = Home(path)
    home.config_file.write_text("[server]\nport = 0\n[community]\nport = 0\n")
    return home


@pytest.fixture
def prepared(place: Home) -> Prepared:
    """A complete home in which nothing runs."""
    make_folders(place)
    return prepare(place, lambda line: None)


@pytest_asyncio.fixture
async def callers() -> AsyncIterator[Callers]:
    """Raw clients."""
    found = Callers()
    yield found
    await found.leave()


@pytest.fixture
def start(place: Home) -> Iterator[Callable[..., Node]]:
    """Starts nodes in `place`; the test ends them, or they are killed with all they have."""
    nodes: list[Node] = []

    def start_node(*services: str, home: Home = place, ready_file: str = "ready.json") -> Node:
        nodes.append(Node.start(home, *services, ready_file=ready_file))
        return nodes[-1]

    yield start_node
    for node in nodes:
        node.process.kill()
        node.process.wait(60)
        for left in processes_of(node.home.path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(left.partition(":")[0]), signal.SIGKILL)
