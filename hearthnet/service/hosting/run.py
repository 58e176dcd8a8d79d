"""`hearthnet.run`: a service in the process of its author's program.

See: docs/services.md#a-function.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.service.hosting import main
from hearthnet.service.hosting.loading import is_importing
from hearthnet.service.hosting.service import Service
from hearthnet.service.hosting.status import Status


class _PrintedStatus(Status):
    """The status of a service in a terminal: lines for its author."""

    def __init__(self, name: str) -> None:
        super().__init__(None)
        self._name = name
        self._offers: list[str] | None = None

    def starting(self, stage: str, current: int, total: int) -> None:
        """Print nothing: the start is quick, or its service says more itself."""

    def ready(self, offers: list[str], note: str | None, address: str = "") -> None:
        """Print the offers, if they have changed."""
        if offers != self._offers:
            self._offers = offers
            self._print(f"{self._name} provides {', '.join(offers) or 'nothing'}; Ctrl-C ends it")

    def failed(self, note: str) -> None:
        """Print the reason."""
        self._print(f"cannot run the service {self._name}: {note}")

    def _print(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def run(service: Service, home: Path | None = None) -> None:
    """Serve on the running node of `home` until SIGTERM or Ctrl-C; exit with a status after an error.

    Without `home` it is the folder after `--home` on the command line, else that of HEARTHNET_HOME, else the
    user's own. Returns at once while its module is imported for its service by somebody else.

    Raises:
        SystemExit: The service could not start, or was lost; the reason is on stderr.
    """
    if is_importing():
        return
    if not isinstance(service, Service):
        raise HearthNetError("bad_request", f"run takes a hearthnet.Service, not {type(service).__name__}")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    found = Home.resolve(home or _named_home())
    code = asyncio.run(main.until_signal(lambda: service, found, _PrintedStatus(service.name)))
    if code:
        sys.exit(code)


def _named_home() -> Path | None:
    """Return the folder after `--home` on the command line."""
    arguments = sys.argv[1:]
    for place, argument in enumerate(arguments):
        if argument.startswith("--home="):
            return Path(argument.partition("=")[2])
        if argument == "--home" and place + 1 < len(arguments):
            return Path(arguments[place + 1])
    return None
