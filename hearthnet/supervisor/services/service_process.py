"""One service of the node: started, monitored, restarted after a crash, stopped in order.

starting --ready line--> ready starting | ready --the process ends--> waiting --back-off--> starting

It reports its status in lines of JSON on the descriptor in HEARTHNET_STATUS_FD.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.core.node_state import ServiceState
from hearthnet.core.times import now_ms
from hearthnet.service.hosting.status import LIFELINE_VARIABLE, STATUS_VARIABLE
from hearthnet.supervisor.os.forks import ForkServer
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.supervisor.os.os_process import LINE_BYTES, Backoff, Process, exit_text, reading
from hearthnet.supervisor.services.specs import ChildSpec

_DRAIN_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)
STALLED_SECONDS: Final = 30.0
"""The time without news after which a starting service is no longer waited for."""
HOPELESS_STARTS: Final = 2
"""The number of failed starts in a row after which the node is ready without the service."""
_NEWS = Callable[["ServiceProcess"], None]


class StatusReport(msgspec.Struct, frozen=True):
    """One line.

    `starting` has the stage and its progress (`current` of `total`); `ready` has the offers, again when they
    change, and the address of the gateway; `failed` has the reason, just before the process ends.
    """

    state: Literal["starting", "ready", "failed"]
    stage: str = ""
    current: float | None = None
    total: float | None = None
    offers: tuple[str, ...] = ()
    note: str | None = None
    address: str = ""

    @property
    def progress(self) -> str:
        """The stage in words, such as `loading model 1/2`."""
        if self.current is None:
            return self.stage
        return f"{self.stage} {self.current:g}" + (f"/{self.total:g}" if self.total is not None else "")


class StatusPipe:
    """Both ends of the pipe: a service inherits `child_end`, its reports go to `on_status`."""

    def __init__(self, name: str, on_status: Callable[[StatusReport], None]) -> None:
        self._name = name
        self._on_status = on_status
        self._own_end, self.child_end = os.pipe()
        self._reading: asyncio.Task[None] | None = None

    def started(self) -> None:
        """Close the inherited end and start reading, once the service has started.

        The end of the service is then the end of the pipe.
        """
        os.close(self.child_end)
        self._reading = asyncio.create_task(self._read())

    def abandon(self) -> None:
        """Close both ends after a failed start."""
        os.close(self.child_end)
        os.close(self._own_end)

    async def drained(self) -> None:
        """Wait until all reports of an ended service are read."""
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=_DRAIN_SECONDS)
            self._reading.cancel()

    async def _read(self) -> None:
        async with reading(self._own_end) as reader:
            try:
                while line := await reader.readline():
                    self._read_status(line)
            except ValueError:
                _log.warning(
                    "%s: a status line of more than %d bytes; heard no further", self._name, LINE_BYTES
                )

    def _read_status(self, line: bytes) -> None:
        try:
            status = msgspec.json.decode(line, type=StatusReport)
        except msgspec.DecodeError as error:
            _log.warning("%s: sent a status line that is none: %s", self._name, error)
        else:
            self._on_status(status)


class ServiceProcess:
    """A supervised service; `news` is called after each change of `state` or `progress`."""

    def __init__(
        self, spec: ChildSpec, log: LogFile, lifeline: int, news: _NEWS, forks: ForkServer | None = None
    ) -> None:
        """`lifeline` is the end of a pipe of which this process holds the other; `forks` may be shared."""
        self.spec: Final = spec
        self._log_file = log
        self._lifeline = lifeline
        self._news = news
        self._forks = forks
        self._process: Process | None = None
        self._failed_starts = 0
        self._reason: str | None = None
        self._changed = asyncio.Event()
        self.stage = self.progress = ""
        self.state = ServiceState(spec.name, None, "starting", 0, None, (), now_ms())

    async def supervise(self) -> None:
        """Keep the service running until cancelled; `stop` ends the process that then runs."""
        backoff = Backoff(random.random)
        while True:
            began = time.monotonic()
            end = await self._run_once()
            delay = backoff.wait(time.monotonic() - began)
            self._crashed(end, delay)
            await asyncio.sleep(delay)
            self._become("starting", restarts=self.state.restarts + 1)

    async def settled(self) -> None:
        """Wait until the service is ready, or is known not to be ready soon."""
        while self.state.state != "ready" and self._failed_starts < HOPELESS_STARTS:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), STALLED_SECONDS)
            except TimeoutError:
                self._become(self.state.state, note=f"not ready yet; hearthnet logs {self.spec.name}")
                return

    async def stop(self, grace: float) -> None:
        """Stop the service, by force after `grace` seconds."""
        if self._process is not None:
            await self._process.stop(grace)
        self._become("stopped", pid=None, address="")

    def kill(self) -> None:
        """Kill the service at once."""
        if self._process is not None:
            self._process.kill()

    async def _run_once(self) -> str:
        """Start the service and wait for its end; return a description of the end."""
        pipe = StatusPipe(self.spec.name, self._on_status)
        try:
            process = await self._start({STATUS_VARIABLE: pipe.child_end, LIFELINE_VARIABLE: self._lifeline})
        except HearthNetError as error:
            pipe.abandon()
            return error.message
        self._process = process
        pipe.started()
        self._become("starting", pid=process.pid)
        # Process and pipe outlive a cancellation here, until `stop`: a stopping service may still report.
        code = await process.wait()
        self._process = None
        await pipe.drained()
        reason, self._reason = self._reason, None
        return exit_text(code, reason or self._log_file.last_line())

    async def _start(self, descriptors: Mapping[str, int]) -> Process:
        """Fork the service where that is possible; else start its command."""
        if self._forks is not None and self.spec.module:
            return await self._forks.start(
                self.spec.name, self.spec.module, self._log_file, descriptors=descriptors
            )
        return await Process.start(
            self.spec.command, self._log_file, environment={"PYTHONUNBUFFERED": "1"}, descriptors=descriptors
        )

    def _on_status(self, status: StatusReport) -> None:
        if status.state == "failed":
            self._reason = status.note
        elif status.state == "ready":
            self._failed_starts = 0
            self.stage = self.progress = ""
            self._become("ready", offers=status.offers, note=status.note, address=status.address)
        else:
            self.stage, self.progress = status.stage, status.progress
            self._publish()

    def _crashed(self, end: str, delay: float) -> None:
        if self.state.state != "ready":
            self._failed_starts += 1
        _log.warning("%s %s; next start in %.1f s", self.spec.name, end, delay)
        self.stage = self.progress = ""
        self._become("waiting", pid=None, offers=(), note=end, address="")

    def _become(self, state: Literal["starting", "ready", "waiting", "stopped"], **fields: object) -> None:
        since = self.state.since if state == self.state.state else now_ms()
        self.state = msgspec.structs.replace(self.state, state=state, since=since, **fields)
        self._publish()

    def _publish(self) -> None:
        self._changed.set()
        self._news(self)
