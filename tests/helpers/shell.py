"""A node as a person runs it: `hearthnet up` as a process, commands against it, a terminal to type into."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.helpers.processes import child_environment, processes_of
from tests.helpers.waiting import wait_for_sync

HEARTHNET = Path(sys.executable).with_name("hearthnet")
READY_SECONDS = 180.0
STOP_SECONDS = 60.0
COMMAND_SECONDS = 180.0


@dataclass
class Shell:
    """Commands with one home. `program` is the script `hearthnet` of some environment, run by `before`."""

    home: Path
    program: Path = HEARTHNET
    before: tuple[str, ...] = ()

    def environ(self) -> dict[str, str]:
        """As in a plain shell with HEARTHNET_HOME set."""
        return child_environment(HEARTHNET_HOME=self.home, COLUMNS="100")

    def run(self, *arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end; it has no terminal, and without `stdin` an empty one."""
        return subprocess.run(
            [*self.before, self.program, *arguments],
            env=self.environ(),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def json(self, *arguments: str | Path) -> Any:
        """What a command that must succeed prints as JSON."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments} ended with {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    @contextlib.contextmanager
    def start(self, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
        """A command that runs; at the end it is told to stop as by Ctrl-C, and is gone."""
        with subprocess.Popen(
            [*self.before, self.program, *arguments],
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()

    def terminal(self, *arguments: str | Path) -> Terminal:
        """Starts a command with a terminal in front of it."""
        return Terminal([*self.before, str(self.program), *map(str, arguments)], self.environ())

    @contextlib.contextmanager
    def node(self, *arguments: str | Path) -> Iterator[dict[str, Any]]:
        """`hearthnet up`, ready, as the ready-file describes it; ended in order, with nothing left behind."""
        self.home.mkdir(parents=True, exist_ok=True)
        ready, log = self.home.with_suffix(".ready"), self.home.with_suffix(".log")
        with log.open("w") as output:
            process = subprocess.Popen(
                [*self.before, self.program, "up", "--ready-file", ready, *arguments],
                env=self.environ(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for_sync(
                lambda: ready.exists() or process.poll() is not None, READY_SECONDS, "the ready-file"
            )
            assert process.poll() is None, log.read_text()
            yield json.loads(ready.read_text())
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        wait_for_sync(lambda: not processes_of(self.home), what=f"the end of {processes_of(self.home)}")


class Terminal:
    """A command on a pseudo-terminal: read what it shows, type, press Ctrl-C. A context manager."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self.shown = ""
        self._read_up_to = 0
        self._pid, self._descriptor = pty.fork()
        if self._pid == 0:
            try:
                os.execvpe(command[0], command, {**environ, "TERM": "xterm"})
            finally:
                os._exit(127)  # there is no such program: this copy of the tests must not go on
        self._code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._descriptor)

    def expect(self, text: str, deadline_seconds: float = COMMAND_SECONDS) -> str:
        """Waits until `text` is shown, after what was expected before; returns what stood before it."""
        end = time.monotonic() + deadline_seconds
        while (place := self.shown.find(text, self._read_up_to)) < 0:
            if time.monotonic() > end or not self._read(0.1):
                raise AssertionError(f"waited for {text!r}; shown: {self.shown[self._read_up_to :]!r}")
        before = self.shown[self._read_up_to : place]
        self._read_up_to = place + len(text)
        return before

    def type(self, text: str) -> None:
        """Types `text` as it is; a line ends with `\\n`, Ctrl-C is `\\x03`, Ctrl-D is `\\x04`."""
        os.write(self._descriptor, text.encode())

    def end(self, deadline_seconds: float = COMMAND_SECONDS) -> int:
        """Reads to the end and returns the exit code, that of a shell for a signal."""
        end = time.monotonic() + deadline_seconds
        while self._read(0.1):
            assert time.monotonic() < end, f"still running; shown: {self.shown!r}"
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._code = code if code >= 0 else 128 - code
        return self._code

    def _read(self, seconds: float) -> bool:
        """Takes in what is shown within `seconds`; False when the command has ended."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            return False
        self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)
