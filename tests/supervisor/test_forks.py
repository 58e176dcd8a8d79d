"""Services that are forked from one process: as themselves, alone, and never longer than the node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest

from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting import fork_server
from hearthnet.supervisor.os.forks import ForkServer
from hearthnet.supervisor.os.log_file import LogFile
from tests.helpers.processes import processes_of
from tests.helpers.shell import Shell
from tests.helpers.waiting import wait_for, wait_for_sync

_BEHAVIOURS = """
import os, signal, sys
from hearthnet.core.ids import new_ulid

DRAWN = new_ulid(0)

def main(arguments):
    what, *rest = arguments
    if what == "tell":
        told = os.fdopen(int(os.environ["TOLD_FD"]), "w")
        print(new_ulid(0), *rest, os.getsid(0) == os.getpid(), sys.stdin.read() == "", file=told, flush=True)
        print("to the log")
        return 7
    if what == "raise":
        raise ValueError("of its own")
    print("waiting", flush=True)
    signal.pause()
"""


@pytest.fixture
def behaviours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that does what it is told, found by every process of the test."""
    (tmp_path / "behaviours.py").write_text(_BEHAVIOURS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "behaviours"


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, module: str) -> AsyncIterator[ForkServer]:
    """A fork server with the module."""
    forks = ForkServer(tmp_path / "home", (module, "setproctitle"), LogFile(tmp_path / "fork-server.log"))
    try:
        yield forks
    finally:
        await forks.close()
    # The kernel ends the processes of a fork server once it is gone.
    await wait_for(lambda: processes_of(tmp_path / "home") == [], what="the forked processes to end")


@pytest.mark.req("UP-71")
@pytest.mark.asyncio
async def test_each_is_a_process_of_its_own(tmp_path: Path, behaviours: str) -> None:
    reading, writing = os.pipe()
    async with serving(tmp_path, behaviours) as forks:
        logs = [LogFile(tmp_path / f"{number}.log") for number in range(2)]
        started = [
            await forks.start("one", (behaviours, "tell", name), log, descriptors={"TOLD_FD": writing})
            for name, log in zip("ab", logs, strict=True)
        ]
        os.close(writing)
        assert [await process.wait() for process in started] == [7, 7]
    with os.fdopen(reading) as told:
        first, second = sorted((line.split() for line in told), key=lambda words: words[1])
    assert first[1:] == ["a", "True", "True"]
    assert second[1:] == ["b", "True", "True"]
    assert first[0] != second[0], "both draw the same ids"
    assert [log.last_line() for log in logs] == ["to the log", "to the log"]


@pytest.mark.req("UP-71")
@pytest.mark.asyncio
async def test_an_error_of_one_is_in_its_own_log(tmp_path: Path, behaviours: str) -> None:
    async with serving(tmp_path, behaviours) as forks:
        log = LogFile(tmp_path / "one.log")
        assert await (await forks.start("one", (behaviours, "raise"), log, descriptors={})).wait() == 1
        assert log.last_line() == "ValueError: of its own"
        assert await (await forks.start("one", ("no_such",), log, descriptors={})).wait() == 1
        assert "No module named 'no_such'" in log.last_line()


async def waiting(forks: ForkServer, module: str, log: LogFile) -> psutil.Process:
    """A forked process that does nothing more."""
    process = await forks.start("one", (module, "wait"), log, descriptors={})
    await wait_for(lambda: log.last_line() == "waiting")
    return psutil.Process(process.pid)


@pytest.mark.req("UP-71")
@pytest.mark.asyncio
async def test_it_is_named_and_can_be_killed(tmp_path: Path, behaviours: str) -> None:
    async with serving(tmp_path, behaviours) as forks:
        log = LogFile(tmp_path / "one.log")
        process = await forks.start("one", (behaviours, "wait"), log, descriptors={})
        await wait_for(lambda: log.last_line() == "waiting")
        shown = " ".join(psutil.Process(process.pid).cmdline())
        assert shown.startswith(f"hearthnet: one --home {tmp_path}")
        process.kill()
        assert await process.wait() == -signal.SIGKILL


@pytest.mark.req("UP-72")
@pytest.mark.asyncio
async def test_all_end_with_the_fork_server_and_the_next_is_forked_by_another(
    tmp_path: Path, behaviours: str
) -> None:
    async with serving(tmp_path, behaviours) as forks:
        log = LogFile(tmp_path / "one.log")
        process = await forks.start("one", (behaviours, "wait"), log, descriptors={})
        await wait_for(lambda: log.last_line() == "waiting")
        server = psutil.Process(process.pid).ppid()
        os.kill(server, signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL
        again = await waiting(forks, behaviours, log)
        assert again.ppid() not in (server, os.getpid())


@pytest.mark.req("UP-72")
@pytest.mark.asyncio
async def test_whoever_gives_up_a_start_leaves_no_process(tmp_path: Path, behaviours: str) -> None:
    async with serving(tmp_path, behaviours) as forks:
        await forks.open()
        given_up = asyncio.create_task(
            forks.start("gone", (behaviours, "wait"), LogFile(tmp_path / "gone.log"), descriptors={})
        )
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait({given_up})
        other = await waiting(forks, behaviours, LogFile(tmp_path / "one.log"))
        await wait_for(lambda: _children(other.ppid()) == {other.pid})


def _children(pid: int) -> set[int]:
    family = psutil.Process(pid).children()
    return {child.pid for child in family if child.status() != psutil.STATUS_ZOMBIE}


@pytest.mark.req("UP-72")
@pytest.mark.asyncio
async def test_a_fork_server_that_cannot_import_is_an_error_in_words(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "fork-server.log")
    forks = ForkServer(tmp_path / "home", ("no_such_module",), log)
    with pytest.raises(HearthNetError, match="cannot start one: the process that forks the services"):
        await forks.start("one", ("x",), LogFile(tmp_path / "one.log"), descriptors={})
    await wait_for(lambda: "No module named 'no_such_module'" in log.last_line())
    await forks.close()


@pytest.mark.req("UP-72")
def test_a_system_without_room_for_a_process_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with own, other:
        assert not fork_server._is_forked(own, [])
        report = msgspec.json.decode(other.recv(1000), type=fork_server.ForkReport)
    assert report == fork_server.ForkReport(0, "Resource temporarily unavailable")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A home with two services."""
    found = Shell(tmp_path / "home")
    found.home.mkdir()
    settings = '[server]\nport = 0\n[gateway]\nenabled = false\n[services]\nenabled = ["mesh", "auth"]\n'
    (found.home / "hearthnet.toml").write_text(settings)
    return found


def _pids(shell: Shell) -> dict[str, int]:
    return {one["name"]: one["pid"] for one in shell.json("status", "--json")["services"]}


@pytest.mark.e2e
@pytest.mark.req("UP-71", "UP-72")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each service is started anew")
def test_services_of_a_node_are_forked_from_one_process_and_come_back_after_its_end(shell: Shell) -> None:
    with shell.node():
        before = _pids(shell)
        (server,) = {psutil.Process(pid).ppid() for pid in before.values()}
        assert psutil.Process(server).num_threads() == 1, "a fork would take the locks of other threads along"
        os.kill(server, signal.SIGKILL)

        def back() -> bool:
            page = shell.json("status", "--json")
            return all(one["state"] == "ready" and one["restarts"] == 1 for one in page["services"])

        wait_for_sync(back, what="the services to be back")
        assert not set(before.values()) & set(_pids(shell).values())
