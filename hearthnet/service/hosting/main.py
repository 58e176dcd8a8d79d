"""The process of one service: `python -m hearthnet.service.hosting.main NAME --home DIR`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hearthnet.bus.bus import Bus
from hearthnet.contracts.packages import packaged_contracts, read_seen
from hearthnet.core.config_loader import load_config
from hearthnet.core.entry_points import scan_entry_points
from hearthnet.core.errors import HearthNetError, Unavailable, first_of
from hearthnet.core.home import Home
from hearthnet.core.node_state import read_node_state
from hearthnet.core.times import CLOCK
from hearthnet.service.authoring.frozen import check_frozen
from hearthnet.service.hosting.context import NodeContext
from hearthnet.service.hosting.host import Host
from hearthnet.service.hosting.loading import importing
from hearthnet.service.hosting.service import GROUP, Service
from hearthnet.service.hosting.status import Status, hold_lifeline

DRAIN_SECONDS: Final = 2.5
_CLOCK_SECONDS: Final = 10.0
_log = logging.getLogger(__name__)


def load(name: str) -> Service:
    """Return the installed service with this name.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` if two packages have one; `internal_error`
            naming the package if its code raises.
    """
    entries = [entry for entry in scan_entry_points().of(GROUP) if entry.point.name == name]
    if not entries:
        raise HearthNetError("not_found", f"no service {name!r} is installed; install hearthnet-{name}")
    packages = " and ".join(entry.package for entry in entries)
    if len(entries) > 1:
        raise HearthNetError(
            "bad_request", f"cannot start the service {name}: {packages} both have one; uninstall one of them"
        )
    try:
        with importing():
            found = entries[0].point.load()
        service = found if isinstance(found, Service) else found()
        if not isinstance(service, Service):
            raise TypeError(f"it is no Service but of the type {type(service).__name__}")
    except Exception as error:
        _log.exception("%s cannot be loaded", packages)
        if isinstance(error, HearthNetError):
            raise
        raise HearthNetError(
            "internal_error",
            f"cannot load {entries[0].point.value} of {packages}: {type(error).__name__}: {error}; "
            "mend or uninstall the package",
        ) from error
    return service


async def serve(service: Service, home: Home, status: Status, stop: asyncio.Event) -> None:
    """Run `service` on the node of `home` until `stop` is set.

    Raises:
        HearthNetError: `schema_mismatch` for a contract that is not the frozen one; `partition` if no node
            runs, or its server refuses this process; the errors of the service's start.
    """
    packaged_contracts().refuse_changed(read_seen(home.seen_contracts), home.seen_contracts)
    for capability in service.functions():
        check_frozen(capability)
    state = read_node_state(home)
    url = state.server.url
    status.starting("joining the bus", 0, 1)
    bus = await Bus.join(home, url, service.name, telemetry_to=state.telemetry, is_split=True)
    node = NodeContext(home, load_config(home), url, service.name, bus, status)
    try:
        if await _started(service, node, stop):
            await _host(service, Host(service, node), status, stop)
    finally:
        try:
            await service.stop()
        finally:
            await node.close()


async def _started(service: Service, node: NodeContext, stop: asyncio.Event) -> bool:
    """Start the service; return False if `stop` is set first, as loading may take minutes."""
    starting, stopping = asyncio.create_task(service.start(node)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
        return starting.done()
    finally:
        stopping.cancel()
        starting.cancel()
        await asyncio.wait({starting, stopping})


async def _host(service: Service, host: Host, status: Status, stop: asyncio.Event) -> None:
    changed = asyncio.Event()
    service.on_offers_changed(changed.set)
    await host.open()
    status.ready(host.offers, service.note, service.address)
    stopping, lost = asyncio.create_task(stop.wait()), asyncio.create_task(host.peer.link.closed())
    before = CLOCK.set_back()
    try:
        while not (stopping.done() or lost.done()) and CLOCK.set_back() == before:
            changing = asyncio.create_task(changed.wait())
            await asyncio.wait(
                {changing, stopping, lost}, timeout=_CLOCK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            changing.cancel()
            if changed.is_set():
                changed.clear()
                await _refresh(service, host, status)
        if lost.done():
            raise Unavailable("the server refuses this node; the service starts again", rule="server_refuses")
        # Ids of frames were forgotten whose time now comes once more; none of them is for a new instance.
        if not stopping.done():
            raise Unavailable("the home's time was set back; the service starts again", rule="clock_set_back")
    finally:
        stopping.cancel()
        lost.cancel()
        await host.close(DRAIN_SECONDS)


async def _refresh(service: Service, host: Host, status: Status) -> None:
    """Offer the service's present offers; after an error, which is logged, keep the former."""
    try:
        await host.refresh()
    except HearthNetError as error:
        _log.error("the offers stay as they were: %s", error)
    status.ready(host.offers, service.note, service.address)


async def until_signal(make: Callable[[], Service], home: Home, status: Status) -> int:
    """Run the service that `make` returns until SIGTERM, and return the exit status.

    A failure is reported to `status` and logged.
    """
    CLOCK.follow(home)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await serve(make(), home, status, stop)
    except HearthNetError as error:
        status.failed(error.message)
        return error.exit_status
    except Exception as error:
        _log.exception("the service failed")
        single = first_of(error)
        status.failed(f"{type(single).__name__}: {single}")
        return 1
    return 0


def log_to_stderr() -> None:
    """Log to stderr, which the supervisor of the node's processes stores."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one service until SIGTERM, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m hearthnet.service.hosting.main", description="Runs one service of a node."
    )
    parser.add_argument("name")
    parser.add_argument("--home", type=Path, default=None)
    options = parser.parse_args(arguments)
    log_to_stderr()
    hold_lifeline()
    home = Home.resolve(options.home)
    return asyncio.run(until_signal(lambda: load(options.name), home, Status.inherited()))


if __name__ == "__main__":
    sys.exit(main())
