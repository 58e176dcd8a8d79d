"""The function behind the command `hearthnet up`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from hearthnet import telemetry
from hearthnet.core.home import Home
from hearthnet.supervisor.console import NodeConsole
from hearthnet.supervisor.nats.home_setup import make_folders, make_person, prepare
from hearthnet.supervisor.os.lock import home_lock
from hearthnet.supervisor.os.log_file import LogFile, LogHandler
from hearthnet.supervisor.ready_file import ReadyFile
from hearthnet.supervisor.services.packages import check_packages
from hearthnet.supervisor.services.specs import ChildSpec, choose, installed
from hearthnet.supervisor.supervisor import Supervisor


def run(
    home: Home,
    ready_file: Path | None = None,
    *,
    stream: TextIO | None = None,
    specs: Sequence[ChildSpec] | None = None,
) -> int:
    """Run the node in `home` until SIGINT or SIGTERM; return the exit code.

    The first run makes the home. Messages for a person go to `stream` (standard output). `ready_file` exists
    from the time when every service is ready, or known not to be ready soon, to the end. `specs` replaces the
    installed services.

    Raises:
        HearthNetError: The node cannot run: the folder, the disk, a damaged file, a node that runs there
            already, or a server that does not start. The message names the remedy.
    """
    screen = NodeConsole(stream or sys.stdout)
    ready = ReadyFile(ready_file) if ready_file is not None else None
    make_folders(home)
    with home_lock(home), _logging_to(LogFile(home.log("up"))):
        if ready is not None:
            ready.clear()
        prepared = prepare(home, screen.line)
        make_person(prepared, screen.line)
        telemetry.check(prepared.config.telemetry.endpoint)
        errors = check_packages(home)
        for text in errors:
            screen.line(text)
        if specs is None:
            chosen = choose(home, prepared.config, installed())
            specs = chosen.specs
            for name in chosen.missing:
                screen.line(
                    f"{name} is enabled in {home.config_file} but not installed: pip install hearthnet-{name}"
                )

        async def supervise() -> int:
            return await Supervisor(prepared, specs, screen, ready, errors).run()

        return asyncio.run(supervise())


@contextlib.contextmanager
def _logging_to(file: LogFile) -> Iterator[None]:
    """Send the log of this process to `file` during the block."""
    handler, root = LogHandler(file), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
