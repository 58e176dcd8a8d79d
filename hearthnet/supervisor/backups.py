"""Backups of the running node: the files of one moment, on request, and a schedule.

    request --> changed files are copied --> all processes stand still --> the rest is copied --> they run on
    schedule --> `hearthnet backup create`, as a process of its own, which makes a request

The supervisor holds the processes, because it cannot leave them so: when it dies, they die.

See: docs/protocol/backup.md#one-moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import shutil
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from hearthnet.backup import requests
from hearthnet.backup.history import read_last
from hearthnet.backup.home_files import HomeCopy, Staging, TooMuchToCopy
from hearthnet.core.config import BackupConfig
from hearthnet.core.config_follower import ConfigFollower
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import FULL_BYTES, Home
from hearthnet.core.times import now_ms
from hearthnet.supervisor.os.cancellation import heed_cancelling
from hearthnet.supervisor.os.disk import make_folder
from hearthnet.supervisor.os.freeze import frozen
from hearthnet.supervisor.os.log_file import LogFile
from hearthnet.supervisor.os.os_process import Process

MAX_PAUSE_SECONDS: Final = 1.0
"""Maximum time for which files are copied while the node stands still."""
LOOK_SECONDS: Final = 0.2
SCHEDULE_SECONDS: Final = 10.0
_SMALL_BYTES: Final = 4 * 1024 * 1024
"""What is copied well within the pause."""
_PASSES: Final = 4
_ATTEMPTS: Final = 5
_RETRY_MS: Final = 15 * 60 * 1000
"""Pause after a backup on the schedule that failed, as when the disk is not connected."""
_HOUR_MS: Final = 60 * 60 * 1000
_GRACE_SECONDS: Final = 1.0
_NAME: Final = "backup"
_log = logging.getLogger(__name__)


class Backups:
    """The backups of the node in `home`, whose processes lead the process groups `groups`."""

    def __init__(
        self,
        home: Home,
        settings: BackupConfig,
        groups: Callable[[], tuple[int, ...]],
        news: Callable[[str], None],
    ) -> None:
        self._home = home
        self._settings = settings
        self._groups = groups
        self._news = news
        self._process: Process | None = None
        requests.forget_all(home)

    async def follow(self) -> None:
        """Answer requests until cancelled."""
        while True:
            heed_cancelling()
            requests.forget_dead(self._home)
            for request in requests.waiting(self._home):
                reply = await asyncio.to_thread(self._answer, request)
                with contextlib.suppress(OSError):
                    requests.reply(self._home, request, reply)
            await asyncio.sleep(LOOK_SECONDS)

    async def schedule(self) -> None:
        """Make a backup whenever the settings want one; until cancelled."""
        follower = ConfigFollower(self._home, "the backups", lambda config: config.backup)
        changes = follower.changes()
        change = asyncio.ensure_future(anext(changes))
        try:
            while True:
                heed_cancelling()
                if is_due(self._home, self._settings, now_ms()):
                    await self._make()
                await asyncio.wait({change}, timeout=SCHEDULE_SECONDS)
                if change.done():
                    self._settings = change.result() or self._settings
                    change = asyncio.ensure_future(anext(changes))
        finally:
            change.cancel()

    async def stop(self) -> None:
        """Stop the backup that is being made; the earlier ones stay as they are."""
        if self._process is not None:
            await self._process.stop(_GRACE_SECONDS)

    async def _make(self) -> None:
        settings = self._settings
        options = ("--keep", str(settings.keep), "--home", str(self._home.path))
        command = (sys.executable, "-P", "-c", _RUN, "backup", "create", settings.folder, *options)
        before = read_last(self._home).error
        try:
            self._process = await Process.start(command, LogFile(self._home.log(_NAME)))
            await self._process.wait()
        except HearthNetError as error:
            _log.error("%s", error.message)
        self._process = None  # not when cancelled: `stop` ends it then
        now = read_last(self._home).error
        if now and now != before:
            self._news(f"no backup was made: {now}")

    def _answer(self, request: str) -> requests.Reply:
        try:
            wanted = requests.read(self._home, request)
            return requests.Reply(take_moment(self._home, request, wanted, self._groups))
        except HearthNetError as error:
            return requests.Reply(None, error.code, error.message)
        except (OSError, msgspec.DecodeError) as error:
            _log.error("no copy for the backup %s: %s", request, error)
            requests.forget(self._home, request)
            full = isinstance(error, OSError) and error.errno == errno.ENOSPC
            code = "capacity_exceeded" if full else "internal_error"
            return requests.Reply(None, code, f"the files could not be copied for the backup: {error}")


_RUN: Final = "import sys; from hearthnet.cli import main; sys.exit(main())"


def is_due(home: Home, settings: BackupConfig, now: int) -> bool:
    """Return whether the settings want a backup now."""
    if not settings.folder or not settings.every_hours:
        return False
    last = read_last(home)
    if last.error and last.tried_at <= now < last.tried_at + _RETRY_MS:
        return False
    # A clock that was put back makes the last one lie ahead.
    return not last.time <= now < last.time + settings.every_hours * _HOUR_MS


def take_moment(
    home: Home, request: str, wanted: requests.Request, groups: Callable[[], tuple[int, ...]]
) -> HomeCopy:
    """Copy the files of a running home as they are at one moment, to the folder of the request.

    Raises:
        HearthNetError: `capacity_exceeded` if there is no room for the copies, or if the files change faster
            than they are copied; `partition` if the processes do not stop.
        OSError: A file cannot be copied.
    """
    make_folder(requests.staging(home, request))
    staging = Staging(home, requests.staging(home, request), wanted.known)
    _check_room(home, staging.size_needed())
    for _ in range(_PASSES):
        before = staging.copied_bytes
        staging.copy_changed()
        if staging.copied_bytes - before < _SMALL_BYTES:
            break
    for _ in range(_ATTEMPTS):
        before, began = staging.copied_bytes, time.monotonic()
        try:
            with frozen(groups()):
                moment_ms = now_ms()
                files = staging.copy_changed(time.monotonic() + MAX_PAUSE_SECONDS)
        except TooMuchToCopy:
            staging.copy_changed()
            continue
        pause_ms = round((time.monotonic() - began) * 1000)
        _log.info("backup %s: the node stood still for %d ms", request, pause_ms)
        return staging.moment(files, moment_ms, pause_ms, staging.copied_bytes - before)
    raise HearthNetError(
        "capacity_exceeded", "files change faster than a backup can copy them; try again later"
    )


def _check_room(home: Home, needed: int) -> None:
    free = shutil.disk_usage(home.path).free
    if free < needed + 2 * FULL_BYTES:
        raise HearthNetError(
            "capacity_exceeded",
            f"a backup of the running node takes {needed // 1_000_000 + 8} MB beside it for a while, and "
            f"{free // 1_000_000} MB are free; make room, or end the node for the backup",
        )
