"""Reading of backups: verification, and restoring into an empty home.

A restore writes beside the home and takes its place in one step, once everything is there and on the disk.

See: docs/protocol/backup.md#restore.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from hearthnet.backup import backup_key, folder, manifest
from hearthnet.backup.backup_key import Chunk
from hearthnet.backup.folder import BackupFolder
from hearthnet.backup.manifest import File, Header, Index
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError, InvalidRequest, NotFound, Unauthorized
from hearthnet.core.files import sync_folder
from hearthnet.core.home import Home
from hearthnet.core.restore_mark import RestoreMark, write_mark
from hearthnet.core.times import now_ms
from hearthnet.trust.keys import Identity

SPARE_BYTES: Final = 64 * 1024 * 1024
"""What a node needs to start, beside its files."""
Progress = Callable[[int, int], None]


class BackupEntry(msgspec.Struct, frozen=True):
    """A backup in a folder; `problem` is set where it cannot be read, and `header` then missing."""

    folder: BackupFolder
    id: str
    header: Header | None
    problem: str = ""


class Checked(msgspec.Struct, frozen=True):
    """A verified backup: how many chunks were read, and whether they were decrypted (`with_key`)."""

    id: str
    node: str
    time: int
    chunks: int
    bytes: int
    with_key: bool


def listing(path: Path, node: str = "") -> list[BackupEntry]:
    """Return the backups in the folder `path`, of `node` if given, the newest last.

    Raises:
        HearthNetError: `not_found` if it is no folder.
    """
    found = []
    for each in folder.nodes(path):
        if node in ("", each):
            backups = BackupFolder(path, each)
            found += [_look(backups, backup_id) for backup_id in backups.ids()]
    return sorted(found, key=lambda one: (one.header.time if one.header else 0, one.id))


def _look(backups: BackupFolder, backup_id: str) -> BackupEntry:
    try:
        return BackupEntry(backups, backup_id, backups.read(backup_id)[0])
    except HearthNetError as error:
        return BackupEntry(backups, backup_id, None, error.message)


def choose(path: Path, backup_id: str = "", node: str = "", person: str = "") -> BackupEntry:
    """Return the backup with this id, else the newest one of `node`, or of the person.

    Raises:
        HearthNetError: `not_found` if there is none; `bad_request` if there are several nodes to choose from,
            or the newest backup is damaged.
    """
    found = listing(path, node)
    if backup_id:
        found = [one for one in found if one.id == backup_id]
    if person and any(one.header is not None and one.header.person == person for one in found):
        found = [one for one in found if one.header is None or one.header.person == person]
    if not found:
        what = f"backup {backup_id[:40]}" if backup_id else "backup"
        raise NotFound(f"there is no {what} in {path}; is the disk connected, and this its folder?")
    holders = sorted({one.folder.node for one in found})
    if len(holders) > 1:
        names = ", ".join(_name(found, each) for each in holders)
        raise InvalidRequest(
            f"there are backups of {len(holders)} nodes in {path}; name one with --node: {names}"
        )
    # A damaged manifest has no time; ids begin with it.
    newest = max(found, key=lambda one: one.id)
    if newest.header is None:
        others = [one.id for one in found if one.header is not None]
        instead = f"; an earlier one is there, take it with --backup {max(others)}" if others else ""
        raise InvalidRequest(f"{newest.problem}{instead}")
    return newest


def _name(found: list[BackupEntry], node: str) -> str:
    headers = [one.header for one in found if one.folder.node == node and one.header is not None]
    return f"{node} ({headers[-1].display_name})" if headers else node


def verify(found: BackupEntry, recovery: Identity | None, progress: Progress) -> Checked:
    """Read all of a backup; without the recovery key all but its decryption.

    Raises:
        HearthNetError: The error of a part that is missing, altered or of another person.
    """
    header, sealed_index = found.folder.read(found.id)
    index = None if recovery is None else _open(header, sealed_index, recovery)
    size = 0
    if index is None:
        for number, name in enumerate(header.chunks):
            size += len(found.folder.get(name))
            progress(number + 1, len(header.chunks))
    else:
        for number, chunk in enumerate(index.chunks):
            size += len(_content(found.folder, chunk))
            progress(number + 1, len(index.chunks))
    return Checked(found.id, header.node, header.time, len(header.chunks), size, index is not None)


def restore(
    found: BackupEntry, recovery: Identity, home: Home, progress: Progress
) -> tuple[Header, RestoreMark]:
    """Restore a backup into `home`, which must not exist or be empty.

    Raises:
        HearthNetError: `bad_request` if the home is not empty; `capacity_exceeded` without room; the error of
            a backup that is damaged or of another person. Nothing is left of a restore that failed.
    """
    header, sealed_index = found.folder.read(found.id)
    index = _open(header, sealed_index, recovery)
    check_empty(home)
    _check_room(home, index.bytes)
    with _beside(home) as place:
        done = 0
        for file in index.files:
            _restore_file(place / file.path, file, index, found.folder)
            done += file.size
            progress(done, index.bytes)
        _check_key(Home(place), header)
        mark = RestoreMark(found.id, header.time, now_ms())
        write_mark(Home(place), mark)
        _sync_folders(place)
        _take_place(place, home)
    return header, mark


def check_empty(home: Home) -> None:
    """Check that a restore would overwrite nothing.

    Raises:
        HearthNetError: `bad_request` if there is anything in the folder.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            there = sorted(os.listdir(home.path))
        except NotADirectoryError as error:
            raise InvalidRequest(f"{home.path} is a file; name a folder with --home") from error
        if there:
            raise InvalidRequest(
                f"{home.path} is not empty ({', '.join(there[:3])}), and a restore overwrites nothing; name "
                "another folder with --home, or move this one away"
            )


def _open(header: Header, sealed_index: bytes, recovery: Identity) -> Index:
    try:
        return manifest.open_index(header, sealed_index, recovery)
    except HearthNetError as error:
        raise HearthNetError(error.code, f"the backup {header.id} {error.message}") from error


def _content(backups: BackupFolder, chunk: Chunk) -> bytes:
    content = backup_key.unseal(backups.get(chunk.name), ids.unb64(chunk.key))
    if len(content) != chunk.size:
        raise Unauthorized("a part of the backup has another size than it says", code="invalid_signature")
    return content


def _check_room(home: Home, needed: int) -> None:
    place = next(path for path in home.path.absolute().parents if path.exists())
    free = shutil.disk_usage(place).free
    if free < needed + SPARE_BYTES:
        raise HearthNetError(
            "capacity_exceeded",
            f"the backup takes {(needed + SPARE_BYTES) // 1_000_000} MB, and {free // 1_000_000} MB are "
            f"free where {home.path} lies; make room, or name another folder with --home",
            details={"free_bytes": free, "needed_bytes": needed + SPARE_BYTES},
        )


@contextlib.contextmanager
def _beside(home: Home) -> Iterator[Path]:
    """Yield a new folder on the disk of `home`, which is removed after the block if it is still there."""
    place = home.path.with_name(f".{home.path.name}.restoring.{os.getpid()}")
    with folder.writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(home)
        place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _remove_abandoned(home: Home) -> None:
    """Remove what restores left behind that were killed."""
    for path in home.path.parent.glob(f".{home.path.name}.restoring.*"):
        pid = path.name.rpartition(".")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)


def _restore_file(path: Path, file: File, index: Index, backups: BackupFolder) -> None:
    with folder.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file.mode & 0o700 or 0o600
        )
    with os.fdopen(descriptor, "wb") as target:
        for number in file.chunks:
            content = _content(backups, index.chunks[number])
            with folder.writing(path):
                target.write(content)
        with folder.writing(path):
            target.flush()
            os.fsync(target.fileno())


def _check_key(restored: Home, header: Header) -> None:
    from hearthnet.bus.session.keyring import load_identity

    if load_identity(restored.device_key).node_id != header.node:
        raise Unauthorized("the backup has the key of another node than it says", code="invalid_signature")


def _sync_folders(place: Path) -> None:
    for parent, _, _ in os.walk(place):
        sync_folder(Path(parent))


def _take_place(place: Path, home: Home) -> None:
    check_empty(home)
    try:
        os.rename(place, home.path)
    except OSError as error:
        if error.errno in (errno.EBUSY, errno.EXDEV, errno.ENOTEMPTY):
            raise InvalidRequest(
                f"{home.path} is the root of a disk, or not empty any more; name a folder in it with --home"
            ) from error
        raise
    sync_folder(home.path.parent)
