"""The folder of the backups of one node: chunks by their names, and a manifest for each backup.

    FOLDER/<node>/chunks/ab/ab12...      a sealed chunk, named by its hash
    FOLDER/<node>/<id>.backup            a manifest, written last and in one step

A backup that was interrupted leaves chunks that no manifest names; the next one uses or removes them.

See: docs/protocol/backup.md#folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hearthnet.backup import manifest
from hearthnet.backup.manifest import Header
from hearthnet.core import ids
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import OTHER, HearthNetError, InvalidRequest, NotFound
from hearthnet.core.files import sync_folder, write_whole

_SUFFIX: Final = ".backup"
_HASH: Final = re.compile("blake3:[0-9a-f]{64}")
_NODE: Final = re.compile("[A-Za-z0-9_-]{43}")
_TEMPORARY: Final = re.compile(r"\..*\.\d+")


class BackupFolder:
    """The backups of one node in a folder or on a disk."""

    def __init__(self, path: Path, node: str) -> None:
        self.path: Final = path / ids.token_form(node)
        self.node: Final = node
        self._chunks = self.path / "chunks"
        self._synced: set[Path] = set()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for a process that writes; the system releases it with the process.

        Raises:
            HearthNetError: `capacity_exceeded` if another process makes a backup there, or the disk is full;
                `bad_request` if the folder cannot be written.
        """
        with writing(self.path):
            self._chunks.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise HearthNetError(
                    "capacity_exceeded", f"another backup is being made in {self.path}; wait for its end"
                ) from error
            yield
        finally:
            os.close(descriptor)

    def has(self, name: str) -> bool:
        """Return whether a chunk is there."""
        return self._chunk(name).exists()

    def put(self, name: str, sealed: bytes) -> bool:
        """Write a chunk durably; return False if it was there."""
        path = self._chunk(name)
        if path.exists():
            return False
        with writing(path):
            path.parent.mkdir(exist_ok=True, mode=0o700)
            write_whole(path, sealed, durable=True)
        self._synced.add(path.parent)
        return True

    def get(self, name: str) -> bytes:
        """Return a chunk.

        Raises:
            HearthNetError: `not_found` if it is missing; `invalid_signature` if it was altered or truncated.
        """
        path = self._chunk(name)
        try:
            sealed = path.read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"a part of the backup is missing ({path}); take an earlier backup") from error
        except OSError as error:
            raise InvalidRequest(f"cannot read {path}: {error.strerror}", exit_status=OTHER) from error
        if content_hash(sealed) != name:
            raise HearthNetError(
                "invalid_signature",
                f"a part of the backup was altered or truncated ({path}); take an earlier backup",
            )
        return sealed

    def finish(self, backup_id: str, data: bytes) -> None:
        """Write the manifest of a backup, once all its chunks are on the disk."""
        path = self.path / f"{backup_id}{_SUFFIX}"
        with writing(path):
            for folder in (*self._synced, self._chunks):
                sync_folder(folder)
            write_whole(path, data, durable=True)
            sync_folder(self.path)

    def ids(self) -> list[str]:
        """Return the ids of the backups, the oldest first; they begin with the time."""
        return sorted(
            path.name.removesuffix(_SUFFIX) for path in self.path.glob(f"*{_SUFFIX}") if _is_backup(path)
        )

    def read(self, backup_id: str) -> tuple[Header, bytes]:
        """Return header and encrypted index of a backup, as `manifest.read` does, with its path in errors.

        Raises:
            HearthNetError: As `manifest.read`; `not_found` if there is no such backup.
        """
        path = self.path / f"{backup_id}{_SUFFIX}"
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise NotFound(f"there is no backup {backup_id[:40]!r} in {self.path.parent}") from error
        except OSError as error:
            raise InvalidRequest(f"cannot read {path}: {error.strerror}", exit_status=OTHER) from error
        try:
            header, sealed_index = manifest.read(data)
        except HearthNetError as error:
            raise HearthNetError(error.code, f"the backup {path} {error.message}") from error
        if (header.id, header.node) != (backup_id, self.node):
            raise HearthNetError(
                "invalid_signature", f"{path} is another backup under this name; rename it back"
            )
        return header, sealed_index

    def prune(self, keep: int) -> tuple[list[str], int]:
        """Remove all but the newest `keep` backups (0: none), and the chunks that no other one names.

        Nothing is removed while a manifest cannot be read, whose chunks are not known. Returns the ids that
        were removed and the number of chunks.
        """
        known = self.ids()
        old = known[:-keep] if keep and len(known) > keep else []
        named: set[str] = set()
        for backup_id in known:
            if backup_id not in old:
                named.update(self.read(backup_id)[0].chunks)
        with writing(self.path):
            for backup_id in old:
                (self.path / f"{backup_id}{_SUFFIX}").unlink(missing_ok=True)
            sync_folder(self.path)
            return old, self._remove_unnamed(named)

    def _remove_unnamed(self, named: set[str]) -> int:
        count = 0
        for path in self._chunks.glob("*/*"):
            if _TEMPORARY.fullmatch(path.name) or f"blake3:{path.name}" not in named:
                path.unlink(missing_ok=True)
                count += 1
        return count

    def _chunk(self, name: str) -> Path:
        if not _HASH.fullmatch(name):
            raise InvalidRequest("a backup names a chunk that is none")
        digits = name.removeprefix("blake3:")
        return self._chunks / digits[:2] / digits


def nodes(path: Path) -> list[str]:
    """Return the ids of the nodes that have backups in the folder `path`.

    Raises:
        HearthNetError: `not_found` if it is no folder, or cannot be read.
    """
    try:
        names = sorted(entry.name for entry in path.iterdir() if _NODE.fullmatch(entry.name))
    except OSError as error:
        raise NotFound(f"cannot read the folder {path}: {error.strerror}; is the disk connected?") from error
    found = []
    for name in names:
        with contextlib.suppress(HearthNetError):
            found.append(ids.from_token_form(name))
    return found


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Translate an OSError in the block to an error about `path`.

    Raises:
        HearthNetError: `capacity_exceeded` for a full disk; `bad_request` with exit code 1 for all others.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise HearthNetError(
                "capacity_exceeded", f"the disk of {where} is full; make room, or keep fewer backups"
            ) from error
        reason = error.strerror or type(error).__name__
        raise InvalidRequest(
            f"cannot write {where}: {reason}; is the disk connected and writable?", exit_status=OTHER
        ) from error


def _is_backup(path: Path) -> bool:
    return ids.is_ulid(path.name.removesuffix(_SUFFIX))
