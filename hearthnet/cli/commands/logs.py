"""`hearthnet logs`: the output of the node's processes, without control characters."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

import click

from hearthnet.cli.input.options import home_option
from hearthnet.cli.output import terminal
from hearthnet.cli.output.suggest import unknown
from hearthnet.cli.output.text import many_lines
from hearthnet.core.home import Home

_POLL_SECONDS: Final = 0.2
_ROTATED: Final = (".2", ".1", "")


@click.command("logs")
@click.argument("service", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on printing what is added, until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), default=50, help="How many lines of each log (50)."
)
@home_option
def command(service: str | None, follow: bool, lines: int, home: Home) -> None:
    """Print the newest lines of the logs of the node's services.

    SERVICE is a service, `nats-server` for the server, `up` for the supervisor, `fork-server` for the process
    that services are forked from. Without it: all of them.
    """
    with contextlib.ExitStack() as opened:
        tails = [opened.enter_context(Tail(path, path.stem)) for path in _chosen(home.logs, service)]
        for tail in tails:
            _print(tail.newest(lines), tail.name, prefixed=service is None)
        while follow:
            for tail in tails:
                _print(tail.added(), tail.name, prefixed=service is None)
            time.sleep(_POLL_SECONDS)


class Tail:
    """One open log file: its newest lines, then new ones; follows a rotation."""

    def __init__(self, path: Path, name: str) -> None:
        self.name: Final = name
        self._path = path
        self._file = path.open("rb")
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def newest(self, count: int) -> list[str]:
        """Return the newest `count` lines, also of rotated files; `added` continues after them."""
        found: deque[bytes] = deque(maxlen=count)
        for suffix in _ROTATED[:-1]:
            older = Path(f"{self._path}{suffix}")
            if older.exists():
                found.extend(older.read_bytes().splitlines())
        found.extend(self._file.read().splitlines())
        return [line.decode("utf-8", "replace") for line in found]

    def added(self) -> Iterator[str]:
        """Yield the complete lines written since the last call."""
        yield from self._read()
        if self._replaced():
            self._file.close()
            self._file = self._path.open("rb")
            yield from self._read()

    def _read(self) -> Iterator[str]:
        *complete, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in complete:
            yield line.decode("utf-8", "replace")

    def _replaced(self) -> bool:
        try:
            return self._path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except OSError:
            return False


def _chosen(folder: Path, service: str | None) -> list[Path]:
    logs = {path.stem: path for path in sorted(folder.glob("*.log"))} if folder.is_dir() else {}
    if service is None:
        return list(logs.values())
    if service not in logs:
        raise unknown(
            "log", service, logs, f"nothing was ever logged in {folder}; start the node with: hearthnet up"
        )
    return [logs[service]]


def _print(lines: Iterable[str], name: str, *, prefixed: bool) -> None:
    head = terminal.styled(f"{name}: ", "dim") if prefixed else ""
    for line in lines:
        terminal.write(f"{head}{many_lines(line)}\n")
