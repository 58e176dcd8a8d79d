"""The gateway's process, a child of `hearthnet up`.

Run it with `python -m hearthnet.gateway --home DIR`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from hearthnet.core.home import Home
from hearthnet.gateway.server import GatewayService
from hearthnet.service.hosting.main import log_to_stderr, until_signal
from hearthnet.service.hosting.status import Status, hold_lifeline


def main(arguments: list[str] | None = None) -> int:
    """Run the gateway until SIGTERM; return the exit status."""
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
