"""Copies of the runs of a person's other devices, as files that this node alone opens.

One file for each run and device, removed when the run has ended there. So a run continues here
where the other device is away, or gone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hearthnet.agent.devices.run_copy import RunCopy, pack, unpack
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.core.ids import is_ulid, token_form
from hearthnet.trust.keys import Identity

MAX_RUNS: Final = 32
"""The copies that a device may leave at another one."""
_PURPOSE: Final = "run copy"
_log = logging.getLogger(__name__)


class CopyStore:
    """The copies at the node in `home`."""

    def __init__(self, home: Home, identity: Identity) -> None:
        self._folder = home.service("auth") / "runs"
        self._identity = identity

    def put(self, copy: RunCopy) -> None:
        """Keep a copy; an older one of the same device and run is replaced.

        Raises:
            HearthNetError: `payload_too_large` if it is too large; `capacity_exceeded` if its device has
                too many here.
        """
        path = self._path(copy.home, copy.record.run)
        if not path.exists() and len(self._paths(copy.home)) >= MAX_RUNS:
            raise HearthNetError("capacity_exceeded", f"{MAX_RUNS} runs of that device are copied here")
        own = self._identity
        sealed = own.seal_to(own.node_id, _PURPOSE, pack(copy))
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, sealed)

    def keep_only(self, home: str, runs: Iterable[str]) -> None:
        """Remove the copies of the device `home` but those of `runs`."""
        kept = {self._path(home, run) for run in runs}
        for path in self._paths(home):
            if path not in kept:
                path.unlink(missing_ok=True)

    def forget_others(self, homes: Iterable[str]) -> None:
        """Remove the copies of all devices but `homes`."""
        names = {token_form(home) for home in homes}
        for path in self._folder.glob("[!.]*.*"):  # not those that are being written
            if path.name.partition(".")[0] not in names:
                path.unlink(missing_ok=True)

    def find(self, run: str, homes: Iterable[str]) -> RunCopy | None:
        """Return the newest copy of `run` by one of `homes`; None where there is none."""
        homes = homes if is_ulid(run) else ()  # it is part of a path
        found = [copy for home in homes if (copy := self._read(self._path(home, run))) is not None]
        return max(found, key=lambda copy: copy.age, default=None)

    def stamp(self) -> int:
        """Return a number that changes with the copies."""
        try:
            return self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def count(self, home: str) -> int:
        """Return the number of copies of the device `home`."""
        return len(self._paths(home))

    def of(self, home: str) -> list[RunCopy]:
        """Return the copies of the device `home`, newest first."""
        found = [copy for path in self._paths(home) if (copy := self._read(path)) is not None]
        return sorted(found, key=lambda copy: copy.record.saved_at, reverse=True)

    def _read(self, path: Path) -> RunCopy | None:
        own = self._identity
        try:
            return unpack(own.open_from(own.node_id, _PURPOSE, path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, HearthNetError) as error:
            _log.warning("the copy of a run in %s is of no use: %s", path.name, error)
            return None

    def _paths(self, home: str) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(self._folder.glob(f"{token_form(home)}.*"))
        return []

    def _path(self, home: str, run: str) -> Path:
        return self._folder / f"{token_form(home)}.{run}"
