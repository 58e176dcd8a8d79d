"""The line between a process that may be killed and the harness: JSON, one question at a time.

A process that says where it is stands still until it is answered: what is killed meanwhile is killed there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.helpers.waiting import wait_for

Answer = Callable[["Peer", dict[str, Any]], Awaitable[None]]


class Line:
    """The end in the process itself. It blocks the whole process."""

    def __init__(self, path: str, token: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")
        self.tell(token=token, pid=os.getpid())

    def tell(self, **what: Any) -> None:
        """Says it, and returns when the harness lets this process go on."""
        self._socket.sendall(json.dumps(what).encode() + b"\n")
        if not self._answers.readline():
            os._exit(1)  # nobody is there any more

    def step(self, name: str, **more: Any) -> None:
        """Says that this step is reached."""
        self.tell(step=name, **more)


class Peer:
    """The harness's end: one living process."""

    def __init__(self, role: str, answer: Answer) -> None:
        self.role = role
        self.pid = 0
        self.answer = answer
        self.here = asyncio.Event()
        self.gone = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether it is known to run."""
        return self.here.is_set() and not self.gone.is_set()

    async def kill(self) -> None:
        """Ends it as a power cut would; returns when it is dead."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        await wait_for(self._dead, 30, f"the death of {self.role} {self.pid}")
        self.gone.set()

    def _dead(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        return False


class Exchange:
    """Where the processes of a world report."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._expected: dict[int, Peer] = {}
        self._count = 0
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Takes reports from now on."""
        self._server = await asyncio.start_unix_server(self._begin, self.path)

    def expect(self, peer: Peer) -> int:
        """The token by which `peer` will say who it is."""
        self._count += 1
        self._expected[self._count] = peer
        return self._count

    async def close(self) -> None:
        """Hears nobody any more."""
        if self._server is not None:
            self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(task)
        task.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: Peer | None = None
        try:
            while line := await reader.readline():
                message: dict[str, Any] = json.loads(line)
                if peer is None:
                    peer = self._expected.pop(message["token"])
                    peer.pid = message["pid"]
                    peer.here.set()
                else:
                    await peer.answer(peer, message)
                writer.write(b"\n")
                await writer.drain()
        except (ConnectionError, json.JSONDecodeError):
            pass  # it was killed in the middle
        finally:
            if peer is not None:
                peer.gone.set()
            writer.close()
