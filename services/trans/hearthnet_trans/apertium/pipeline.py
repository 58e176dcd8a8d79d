"""One pair's programs, kept running; texts are answered in order, each with a final NUL.

Several texts are under way at once, so that the programs of the pipeline work in parallel. Each text carries
a number that must come back with its answer; a pipeline that returns another number is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from typing import Final

UNDER_WAY: Final = 8
"""Texts in the pipeline at once; others wait."""
HANGS_SECONDS: Final = 10.0
"""Time after which a pipeline without an answer counts as stuck."""
_END_SECONDS: Final = 2.0
_CHUNK: Final = 1 << 16
_LONGEST_ANSWER: Final = 1 << 20
_END: Final = b"\0"


class Broken(Exception):
    """Raised when the pipeline died, hangs or miscounts; the text itself need not be at fault."""


class Pipeline:
    """The running programs of one pair."""

    def __init__(self, process: asyncio.subprocess.Process, hangs_seconds: float) -> None:
        self._process = process
        self._hangs = hangs_seconds
        self._places = asyncio.Semaphore(UNDER_WAY)
        self._writing = asyncio.Lock()
        self._waiting: deque[tuple[bytes, asyncio.Future[str]]] = deque()
        self._count = 0
        self._killed = False
        self._users = 0
        self._reader = asyncio.create_task(self._read(), name="apertium pipeline")
        self.used_at = asyncio.get_running_loop().time()

    @classmethod
    async def start(cls, command: list[str], *, hangs_seconds: float = HANGS_SECONDS) -> Pipeline:
        """Start the programs in a process group of their own.

        Raises:
            Broken: they cannot be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            raise Broken(str(error)) from error
        return cls(process, hangs_seconds)

    @property
    def alive(self) -> bool:
        """True while the pipeline accepts texts."""
        return not self._killed and not self._reader.done()

    @property
    def idle(self) -> bool:
        """True if no text is under way."""
        return self._users == 0

    async def run(self, stream: str) -> str:
        """Return the programs' answer to `stream`, which is in Apertium's stream format.

        Raises:
            Broken: the pipeline failed.
        """
        self._users += 1
        try:
            async with self._places:
                return await self._run(stream)
        finally:
            self._users -= 1
            self.used_at = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """End all programs by closing their input, or kill them."""
        self._pipe.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._kill()
            await self._process.wait()
        # Reading their output to its end closes the pipes.
        await asyncio.wait({self._reader}, timeout=_END_SECONDS)
        self._kill()
        self._reader.cancel()
        await asyncio.wait({self._reader})

    async def _run(self, stream: str) -> str:
        if not self.alive:
            raise Broken("it has ended")
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        async with self._writing:
            self._count += 1
            number = f"[i{self._count}]"
            self._waiting.append((number.encode(), answer))
            try:
                async with asyncio.timeout(self._hangs):
                    self._pipe.write((stream + number).encode() + _END)
                    await self._pipe.drain()
            except (TimeoutError, OSError) as error:
                self._kill()
                raise Broken("it takes nothing any more") from error
        done, _ = await asyncio.wait({answer}, timeout=self._hangs)
        if not done:
            self._kill()
            raise Broken(f"it said nothing for {self._hangs:.0f} s")
        return await answer

    @property
    def _pipe(self) -> asyncio.StreamWriter:
        if self._process.stdin is None:
            raise Broken("it has no input")
        return self._process.stdin

    async def _read(self) -> None:
        """Distribute answers until the programs end, then fail the texts that remain."""
        rest = b""
        try:
            while self._process.stdout is not None and (chunk := await self._process.stdout.read(_CHUNK)):
                *whole, rest = (rest + chunk).split(_END)
                if len(rest) > _LONGEST_ANSWER or not all(map(self._hand_out, whole)):
                    break
        finally:
            self._kill()
            while self._waiting:
                _fail(self._waiting.popleft()[1], "it died")

    def _hand_out(self, output: bytes) -> bool:
        """Give `output` to the oldest text; return False if it is not the answer to that text."""
        if not self._waiting:
            return False
        number, answer = self._waiting.popleft()
        text, found, after = output.rpartition(number)
        if not found or after.strip():
            _fail(answer, "it lost count")
            return False
        if not answer.done():
            answer.set_result(text.decode("utf-8", "replace"))
        return True

    def _kill(self) -> None:
        """Kill the process group, once only: later its number may belong to other processes."""
        if self._killed:
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _fail(answer: asyncio.Future[str], why: str) -> None:
    if not answer.done():
        answer.set_exception(Broken(why))
        answer.exception()  # marked as retrieved, since its caller may have been cancelled
