"""Processes that are forked from one that has imported the library, instead of being started anew.

See: docs/decisions/0217-services-are-forked.md.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.fork_server import FORKS_VARIABLE, MAX_BYTES, ForkReport, ForkRequest
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.supervisor.os.os_process import Process

_PROGRAM: Final = "hearthnet.service.hosting.fork_server"
_GRACE_SECONDS: Final = 1.0
_ENDED: Final = "the process that forks the services has ended; see: hearthnet logs fork-server"


class _Forked:
    """A forked process; the fork server reports its end."""

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid
        self.ended: Final = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        return int(await asyncio.shield(self.ended))


class _Running:
    """A running fork server and the requests that it has not answered yet."""

    def __init__(self, process: Process, connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._asked: list[asyncio.Future[_Forked]] = []
        self._forked: dict[int, _Forked] = {}
        self.lives = True
        connection.setblocking(False)
        asyncio.get_running_loop().add_reader(connection.fileno(), self._read)

    async def fork(self, request: ForkRequest, descriptors: Sequence[int]) -> _Forked:
        """Return the forked process.

        Raises:
            OSError: There is none, for the reason given.
        """
        socket.send_fds(self._connection, [msgspec.json.encode(request)], descriptors)
        asked: asyncio.Future[_Forked] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        return await asked

    def _read(self) -> None:
        try:
            data = self._connection.recv(MAX_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        report = msgspec.json.decode(data, type=ForkReport)
        if report.code is not None:
            _resolve(self._forked.pop(report.pid).ended, report.code)
            return
        asked = self._asked.pop(0)
        if report.error:
            if not asked.done():
                asked.set_exception(OSError(0, report.error))
            return
        self._forked[report.pid] = forked = _Forked(report.pid)
        if asked.done():  # whoever asked was cancelled
            os.kill(report.pid, signal.SIGKILL)
            return
        asked.set_result(forked)

    def _end(self) -> None:
        """Its processes have died with it."""
        self.lives = False
        asyncio.get_running_loop().remove_reader(self._connection.fileno())
        self._connection.close()
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(OSError(0, _ENDED))
        for forked in self._forked.values():
            _resolve(forked.ended, -signal.SIGKILL)
        self._asked.clear()
        self._forked.clear()

    async def stop(self) -> None:
        """Stop the fork server and its remaining processes."""
        if self.lives:
            self._end()
        await self._process.stop(_GRACE_SECONDS)


class ForkServer:
    """The fork server of a node with `modules` imported: started when needed, and again after its end."""

    def __init__(self, home: Path, modules: Sequence[str], log: LogFile) -> None:
        self._home = home
        self._modules = modules
        self._log = log
        self._running: _Running | None = None
        self._starting = asyncio.Lock()

    async def open(self) -> None:
        """Start it, so that it imports while others work.

        Raises:
            HearthNetError: As `Process.start`.
        """
        await self._present()

    async def start(
        self,
        name: str,
        words: Sequence[str],
        log: LogFile,
        *,
        descriptors: Mapping[str, int],
    ) -> Process:
        """Fork a process that runs the module `words[0]` with the other words as arguments.

        The rest is as for `Process.start`. `name` is shown by `ps`.

        Raises:
            HearthNetError: `capacity_exceeded` if it cannot be forked.
        """
        title, module, arguments = f"hearthnet: {name} --home {self._home}", words[0], tuple(words[1:])
        request = ForkRequest(title, module, arguments, tuple(descriptors))
        running = await self._present()
        log.forget()
        output, child_end = os.pipe()
        try:
            forked = await running.fork(request, [child_end, *descriptors.values()])
        except BaseException as error:
            os.close(output)
            if not isinstance(error, OSError):
                raise
            raise HearthNetError("capacity_exceeded", f"cannot start {name}: {error.strerror}") from error
        finally:
            os.close(child_end)
        return Process(forked, output, log)

    async def close(self) -> None:
        """Stop it."""
        if self._running is not None:
            await self._running.stop()

    async def _present(self) -> _Running:
        async with self._starting:
            if self._running is not None and not self._running.lives:
                await self._running.stop()
                self._running = None
            if self._running is None:
                self._running = await self._started()
            return self._running

    async def _started(self) -> _Running:
        own, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = (sys.executable, "-P", "-m", _PROGRAM, str(self._home), *self._modules)
        # SPT_NOENV: a title takes the place of the arguments alone; the environment stays readable.
        environment = {"PYTHONUNBUFFERED": "1", "SPT_NOENV": "1"}
        try:
            process = await Process.start(
                command, self._log, environment=environment, descriptors={FORKS_VARIABLE: child_end.fileno()}
            )
        except BaseException:
            own.close()
            raise
        finally:
            child_end.close()
        return _Running(process, own)


def _resolve(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
