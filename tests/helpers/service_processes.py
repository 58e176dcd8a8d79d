"""Installed services as processes of their own, on a mesh that is published as a running node."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session import keyring
from hearthnet.core import process_lock
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.home import Home
from tests.helpers.processes import child_environment
from tests.helpers.waiting import wait_for

START_SECONDS = 60.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Running:
    """Processes of one service, and the offers by which a call reaches each of them."""

    processes: list[Process]
    views: list[OfferView]


async def call_at(
    bus: Bus, view: OfferView, capability: str, body: dict[str, Any], **given: Any
) -> ReceivedReply:
    """The reply of the process in `view`."""
    return await bus.call(capability, body, node=view.node, instance=view.offer.instance, **given)


@contextlib.asynccontextmanager
async def processes_of_service(
    bus: Bus, home: Home, capability: str, count: int = 1, command: tuple[str, ...] = ()
) -> AsyncIterator[Running]:
    """Start `count` processes at once and wait until `bus` finds what each offers; end them afterwards.

    `command` are the arguments of the Python interpreter, by default those that the supervisor uses for the
    service that `capability` is named after. The home must be published (`Mesh.published`).
    """
    # From the disk: a list of offers may lack a process that is busy, which would count as a new one later.
    known = {path.name for path in process_lock.everybody(home)}
    node = keyring.load_identity(home.device_key).node_id
    service = parse_capability(capability).name.partition(".")[0]
    command = command or ("-m", "hearthnet.service.hosting.main", service, "--home", str(home.path))
    log = (home.path / f"{service}.processes.log").open("ab")
    processes: list[Process] = []

    async def found() -> list[OfferView] | None:
        gone = [process.returncode for process in processes if process.returncode is not None]
        assert not gone, f"ended with {gone}: {(home.path / log.name).read_text()}"
        there = [view for view in await bus.offers(capability) if view.node == node]
        views = [view for view in there if view.offer.instance not in known]
        return views if len(views) == count else None

    with log:
        try:
            for _ in range(count):
                process = await asyncio.create_subprocess_exec(
                    sys.executable, *command, env=child_environment(), stdout=log, stderr=log
                )
                processes.append(process)
            yield Running(processes, await wait_for(found, START_SECONDS, f"{count} processes"))
        finally:
            for process in processes:
                if process.returncode is None:
                    process.terminate()
            for process in processes:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
