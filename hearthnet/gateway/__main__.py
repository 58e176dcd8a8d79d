"""The gateway's process: `python -m hearthnet.gateway --home DIR`, a child of `hearthnet up`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from hearthnet.gateway.service import GatewayService
from hearthnet.home import Home
from hearthnet.service.run import log_to_stderr, until_signal
from hearthnet.service.status import Status, hold_lifeline


def main(arguments: list[str] | None = None) -> int:
    """Runs the gateway until SIGTERM; the exit status says how it ended."""
    parser = argparse.ArgumentParser(
        prog="python -m hearthnet.gateway", description="Runs the gateway of a node."
    )
    parser.add_argument("--home", type=Path, default=None)
    options = parser.parse_args(arguments)
    log_to_stderr()
    hold_lifeline()
    return asyncio.run(until_signal(GatewayService, Home.resolve(options.home), Status.inherited()))


if __name__ == "__main__":
    sys.exit(main())
