"""The status reports of services: lines of JSON on the descriptor in HEARTHNET_STATUS_FD."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from hearthnet.supervisor.os.pipes import LINE_BYTES, reading

_DRAIN_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class Status(msgspec.Struct, frozen=True):
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
    """Both ends of the pipe: a service inherits `child_end`, its reports go to `heard`."""

    def __init__(self, name: str, heard: Callable[[Status], None]) -> None:
        self._name = name
        self._heard = heard
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
                    self._take(line)
            except ValueError:
                _log.warning(
                    "%s: a status line of more than %d bytes; heard no further", self._name, LINE_BYTES
                )

    def _take(self, line: bytes) -> None:
        try:
            status = msgspec.json.decode(line, type=Status)
        except msgspec.DecodeError as error:
            _log.warning("%s: sent a status line that is none: %s", self._name, error)
        else:
            self._heard(status)
