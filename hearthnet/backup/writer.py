"""Making of a backup from the files of one moment.

The state of the files of the last backup is in `backup/known.json`: a file that has not changed since, and
whose chunks are in the folder, is neither copied nor read again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from hearthnet import __version__
from hearthnet.backup import home_files, manifest
from hearthnet.backup.backup_key import BackupKey, Chunk
from hearthnet.backup.folder import BackupFolder
from hearthnet.backup.home_files import FileState, HomeCopy
from hearthnet.backup.manifest import File, Index
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.files import write_whole
from hearthnet.core.home import Home
from hearthnet.trust.keys import Identity

CHUNK_BYTES: Final = 1024 * 1024
"""Files of JetStream grow at their end, and SQLite writes pages in place: a fixed size fits both."""
_KNOWN: Final = "known.json"
Progress = Callable[[int, int], None]
"""Receives the bytes that are done, and all bytes."""


class CachedFile(msgspec.Struct, frozen=True):
    """A file as the last backup found it."""

    state: FileState
    chunks: tuple[Chunk, ...]


class Made(msgspec.Struct, frozen=True):
    """A backup that was made: its header's numbers, and the chunks that were written for it."""

    id: str
    time: int
    files: int
    size: int
    written_chunks: int
    written_bytes: int
    pause_ms: int
    left_out: tuple[str, ...]
    removed: tuple[str, ...] = ()


_DECODER: Final = msgspec.json.Decoder(dict[str, CachedFile])


class BackupWriter:
    """The maker of one backup of `home` in `folder`, whose lock the caller holds."""

    def __init__(self, home: Home, folder: BackupFolder, key: BackupKey, identity: Identity) -> None:
        self._home = home
        self._folder = folder
        self._key = key
        self._identity = identity
        self._known = self._read_known()
        self._written_chunks = self._written_bytes = 0

    @property
    def known(self) -> dict[str, FileState]:
        """The files that need no copy while they are unchanged."""
        return {path: known.state for path, known in self._known.items()}

    def write(self, moment: HomeCopy, copies: Path, display_name: str, progress: Progress) -> Made:
        """Write the backup of `moment`, whose changed files are below `copies`.

        The manifest is written last: a backup that is interrupted before is none.

        Raises:
            HearthNetError: The folder cannot be written, or is full.
        """
        total, done = sum(file.state.size for file in moment.files), 0
        files: list[File] = []
        places: dict[Chunk, int] = {}
        known: dict[str, CachedFile] = {}
        for file in moment.files:
            chunks = self._known[file.path].chunks if file.is_known else self._store(copies / file.path)
            known[file.path] = CachedFile(file.state, chunks)
            numbers = tuple(places.setdefault(chunk, len(places)) for chunk in chunks)
            files.append(File(file.path, file.state.mode, sum(chunk.size for chunk in chunks), numbers))
            done += file.state.size
            progress(done, total)
        left_out = tuple(path for path, _ in home_files.LEFT_OUT)
        index = Index(tuple(files), tuple(places), left_out)
        backup_id = ids.new_ulid(moment.time)
        header = {
            "id": backup_id,
            "display_name": display_name,
            "time": moment.time,
            "hearthnet": __version__,
            "pause_ms": moment.pause_ms,
        }
        self._folder.finish(backup_id, manifest.write(header, index, self._identity, self._key.writer))
        self._write_known(known)
        written = (self._written_chunks, self._written_bytes)
        return Made(backup_id, moment.time, len(files), index.bytes, *written, moment.pause_ms, left_out)

    def _store(self, path: Path) -> tuple[Chunk, ...]:
        found = []
        for content in _pieces(path):
            chunk, sealed = self._key.sealed(content)
            if self._folder.put(chunk.name, sealed):
                self._written_chunks += 1
                self._written_bytes += len(sealed)
            found.append(chunk)
        return tuple(found)

    def _read_known(self) -> dict[str, CachedFile]:
        """Return the known files whose chunks are in this folder."""
        try:
            found = _DECODER.decode((self._home.backup / _KNOWN).read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return {
            path: known
            for path, known in found.items()
            if all(self._folder.has(one.name) for one in known.chunks)
        }

    def _write_known(self, known: dict[str, CachedFile]) -> None:
        # It saves time and nothing else; the next backup does without it.
        with contextlib.suppress(OSError):
            self._home.backup.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._home.backup / _KNOWN, msgspec.json.encode(known))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while content := file.read(CHUNK_BYTES):
            yield content


def keep_newest(folder: BackupFolder, keep: int) -> tuple[tuple[str, ...], str]:
    """Remove all but the newest `keep` backups; return their ids, or the reason for removing none.

    A backup that cannot be read has to be looked at by a person; until then nothing is removed.
    """
    try:
        return tuple(folder.prune(keep)[0]), ""
    except HearthNetError as error:
        return (), f"no old backup was removed: {error.message}"
