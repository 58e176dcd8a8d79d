"""Homes made by hand, without a node, and backups of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hearthnet.backup import reader
from hearthnet.backup.folder import BackupFolder
from hearthnet.backup.reader import BackupEntry
from hearthnet.backup.writer import Made
from hearthnet.bus.session.keyring import create_identity
from hearthnet.cli.workflows import backup_flow
from hearthnet.core.home import Home
from hearthnet.core.restore_mark import RestoreMark
from hearthnet.trust.keys import Identity


def ignore(_done: int, _total: int) -> None:
    """Progress that nobody sees."""


@dataclass
class Backed:
    """A home with files, its keys, and a folder for its backups."""

    home: Home
    folder: Path
    device: Identity
    recovery: Identity

    @classmethod
    def make(cls, place: Path, name: str = "home") -> Backed:
        home, folder = Home(place / name), place / "backups"
        folder.mkdir(exist_ok=True)
        device = create_identity(home.device_key)
        recovery = create_identity(home.recovery_key)
        return cls(home, folder, device, recovery)

    def write(self, path: str, data: bytes) -> None:
        """Writes a file of the home."""
        file = self.home.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def create(self, keep: int = 0) -> Made:
        """A backup of the home, in which no node runs."""
        return backup_flow.create(self.home, self.folder, keep, ignore)[0]

    @property
    def backups(self) -> BackupFolder:
        """Its backups in the folder."""
        return BackupFolder(self.folder, self.device.node_id)

    def newest(self) -> BackupEntry:
        """Its newest backup."""
        return reader.choose(self.folder, node=self.device.node_id)

    def restore(
        self, to: Path, found: BackupEntry | None = None, recovery: Identity | None = None
    ) -> RestoreMark:
        """Restores a backup, the newest one by default."""
        return reader.restore(found or self.newest(), recovery or self.recovery, Home(to), ignore)[1]

    def manifest(self, backup_id: str) -> Path:
        """The file of a manifest."""
        return self.backups.path / f"{backup_id}.backup"

    def chunks(self) -> list[Path]:
        """The files of all chunks."""
        return sorted((self.backups.path / "chunks").glob("*/*"))


def files(home: Path) -> dict[str, bytes]:
    """The files of a home that belong into a backup, by path."""
    left_out = ("backup/", "run/", "logs/", "restored.json", "keys/recovery.key")
    found = {str(path.relative_to(home)): path for path in home.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(left_out)}


def large() -> bytes:
    """Content of several chunks."""
    return os.urandom(2_500_000)
