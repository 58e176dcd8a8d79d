"""Making backups from the command line, of a home whose node runs or does not.

A running node is asked for the files of one moment (`hearthnet.backup.requests`). Of a stopped one the lock
is held, so that it does not start, and its files are read in place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from hearthnet.backup import backup_key, home_files, requests, writer
from hearthnet.backup.folder import BackupFolder, writing
from hearthnet.backup.history import LastBackup, read_last, write_last
from hearthnet.backup.home_files import HomeCopy
from hearthnet.backup.reader import BackupEntry
from hearthnet.backup.writer import BackupWriter, Made
from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import size
from hearthnet.core.errors import (
    HearthNetError,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from hearthnet.core.home import Home
from hearthnet.core.node_state import running_pid
from hearthnet.core.times import now_ms

ANSWER_SECONDS: Final = 600.0
"""How long a running node may take to copy what has changed; it copies before it stands still."""
_TAKEN_SECONDS: Final = 10.0
"""How long it may take to look for requests at all."""
_PAUSE_SECONDS: Final = 0.02
Progress = Callable[[int, int], None]


def create(home: Home, path: Path, keep: int, progress: Progress) -> tuple[Made, str]:
    """Make a backup of `home` in the folder `path`; return it, and why old ones were not removed, if so.

    Raises:
        HearthNetError: There is no key for it, the folder cannot be written or is full, or the running node
            cannot copy its files. Earlier backups stay as they are.
    """
    before = read_last(home)
    try:
        made, note = _create(home, path, keep, progress)
    except HearthNetError as error:
        if home.keys.exists():
            failed = LastBackup(before.id, before.folder, before.time, now_ms(), error.message)
            write_last(home, failed)
        raise
    write_last(home, LastBackup(made.id, str(path), made.time, now_ms()))
    return made, note


def _create(home: Home, path: Path, keep: int, progress: Progress) -> tuple[Made, str]:
    from hearthnet.core.config_loader import load_config

    identity = load_identity(home.device_key)
    key = backup_key.load(home, identity.node_id)
    if not path.is_dir():
        raise NotFound(f"there is no folder {path}; connect the disk, or make it: mkdir -p {path}")
    check_elsewhere(home, path)
    folder = BackupFolder(path.resolve(), identity.node_id)
    with _one_at_a_time(home), folder.lock():
        maker = BackupWriter(home, folder, key, identity)
        with _moment(home, maker) as (moment, copies):
            made = maker.write(moment, copies, load_config(home).display_name, progress)
        removed, note = writer.keep_newest(folder, keep)
    import msgspec

    return msgspec.structs.replace(made, removed=removed), note


def check_elsewhere(home: Home, path: Path) -> None:
    """Check that a folder for backups is not in the home that they are of.

    Raises:
        HearthNetError: `bad_request` if it is.
    """
    if path.resolve().is_relative_to(home.path.resolve()):
        raise InvalidRequest(f"{path} is in the home itself; name a folder elsewhere, best on another disk")


@contextlib.contextmanager
def _one_at_a_time(home: Home) -> Iterator[None]:
    with writing(home.backup):
        home.backup.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(home.backup / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HearthNetError(
                "capacity_exceeded", "a backup of this home is being made already; wait for its end"
            ) from error
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _moment(home: Home, maker: BackupWriter) -> Iterator[tuple[HomeCopy, Path]]:
    """Yield the files of one moment, and the folder of those that the maker has to read."""
    from hearthnet.supervisor.os.disk import make_folder
    from hearthnet.supervisor.os.lock import home_lock

    if running_pid(home) is None:
        make_folder(home.run)
        with home_lock(home):
            files = home_files.scan(home)
            yield home_files.Staging(home, home.path, maker.known).moment(files, now_ms(), 0, 0), home.path
        return
    request = requests.ask(home, maker.known)
    try:
        yield _answer(home, request), requests.staging(home, request)
    finally:
        requests.forget(home, request)


def _answer(home: Home, request: str) -> HomeCopy:
    began = time.monotonic()
    while (found := requests.answer(home, request)) is None:
        waited = time.monotonic() - began
        silent = waited > _TAKEN_SECONDS and not requests.staging(home, request).exists()
        if silent or waited > ANSWER_SECONDS or running_pid(home) is None:
            raise Unavailable(
                "the node does not answer a backup; look at its log: hearthnet logs up",
                rule="provider_silent",
            )
        time.sleep(_PAUSE_SECONDS)
    return found


def person_of(found: BackupEntry) -> str:
    """Return the person of a backup, empty where its manifest cannot be read."""
    return found.header.person if found.header is not None else ""


def shown_parts(verb: str) -> Progress:
    """Return `shown_progress` of a number of parts."""
    return shown_progress(verb, "{} parts".format)


def shown_progress(verb: str, amount: Callable[[int], str] = size) -> Progress:
    """Return a function that shows on a terminal how much is done, at most ten times a second."""
    shown = 0.0

    def show(done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown > 0.1 and done < total:
            shown = now
            terminal.status_line(f"{verb}: {amount(done)} of {amount(total)}")

    return show


def ended_progress() -> None:
    """Erase what `shown_progress` shows."""
    if terminal.is_tty(sys.stdout):
        terminal.clear_status()
