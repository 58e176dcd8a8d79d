"""The gateway's process: `python -m hearthnet.gateway --home DIR`, a child of `hearthnet up`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from hearthnet.bus.bus import Bus
from hearthnet.config import load_config
from hearthnet.errors import HearthNetError
from hearthnet.gateway.app import Gateway
from hearthnet.gateway.server import serving
from hearthnet.home import Home
from hearthnet.node_state import read_node_state
from hearthnet.service.status import Status, hold_lifeline

_log = logging.getLogger(__name__)


async def serve(home: Home, status: Status, stop: asyncio.Event) -> None:
    """Runs the gateway of the node in `home` until `stop` is set.

    Raises `partition` where the server refuses the node.
    """
    state = read_node_state(home)
    status.starting("joining the bus", 0, 1)
    async with await Bus.join(home, state.server.url, "gateway", telemetry_to=state.telemetry) as bus:
        async with serving(Gateway.on(bus, home, load_config(home))) as gateway:
            status.ready([], None, gateway.url)
            stopping, lost = asyncio.create_task(stop.wait()), asyncio.create_task(bus.peer.link.closed())
            await asyncio.wait({stopping, lost}, return_when=asyncio.FIRST_COMPLETED)
            refused = lost.done() and not stop.is_set()
            stopping.cancel()
            lost.cancel()
        if refused:
            raise HearthNetError("partition", "the server refuses this node; the gateway starts again")


async def _main(home: Home, status: Status) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await serve(home, status, stop)
    except HearthNetError as error:
        _log.error("%s: %s", error.code, error)
        status.failed(error.message)
        return error.exit_status
    except Exception as error:
        _log.exception("the gateway failed")
        status.failed(f"{type(error).__name__}: {error}")
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Runs the gateway until SIGTERM; the exit status says how it ended."""
    parser = argparse.ArgumentParser(
        prog="python -m hearthnet.gateway", description="Runs the gateway of a node."
    )
    parser.add_argument("--home", type=Path, default=None)
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    hold_lifeline()
    return asyncio.run(_main(Home.resolve(options.home), Status.inherited()))


if __name__ == "__main__":
    sys.exit(main())
