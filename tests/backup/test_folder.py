"""The folder of backups: what another process, a damaged disk or a full one does to it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hearthnet.backup.folder import BackupFolder, nodes, writing
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import OTHER, HearthNetError, InvalidRequest, NotFound
from hearthnet.trust.keys import Identity

SEALED = b"sealed"
CHUNK = content_hash(SEALED)


@pytest.fixture
def folder(tmp_path: Path) -> BackupFolder:
    """A folder with one chunk."""
    made = BackupFolder(tmp_path, Identity.generate().node_id)
    with made.lock():
        assert made.put(CHUNK, SEALED)
    return made


@pytest.mark.req("BACKUP-2")
def test_one_process_writes_at_a_time(folder: BackupFolder) -> None:
    with folder.lock():
        other = BackupFolder(folder.path.parent, folder.node)
        with pytest.raises(HearthNetError, match="another backup is being made") as raised, other.lock():
            pass
        assert raised.value.code == "capacity_exceeded"
    with folder.lock():
        assert not folder.put(CHUNK, b"another")
    assert folder.get(CHUNK) == SEALED


@pytest.mark.req("BACKUP-5")
def test_parts_that_the_disk_does_not_read_are_named(folder: BackupFolder) -> None:
    """A folder in the place of a file stands for a bad sector: both are an OSError at reading."""
    (part,) = (folder.path / "chunks").glob("*/*")
    part.unlink()
    part.mkdir()
    (folder.path / "one.backup").mkdir()
    for path, read in (
        (part, lambda: folder.get(CHUNK)),
        (folder.path / "one.backup", lambda: folder.read("one")),
    ):
        with pytest.raises(InvalidRequest) as raised:
            read()
        assert raised.value.message == f"cannot read {path}: Is a directory"
        assert raised.value.exit_status == OTHER
    with pytest.raises(NotFound) as missing:
        folder.read("two")
    assert missing.value.message == f"there is no backup 'two' in {folder.path.parent}"


@pytest.mark.req("BACKUP-5")
@pytest.mark.parametrize("name", ["", "blake3:", f"{CHUNK}0", "blake3:../../../keys/device.key", "other"])
def test_names_that_are_no_chunks_lead_nowhere(folder: BackupFolder, name: str) -> None:
    for work in (folder.get, folder.has):
        with pytest.raises(InvalidRequest, match="names a chunk that is none"):
            work(name)


@pytest.mark.req("BACKUP-2", "BACKUP-5")
@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        (errno.ENOSPC, "capacity_exceeded", "make room, or keep fewer backups"),
        (errno.EDQUOT, "capacity_exceeded", "make room, or keep fewer backups"),
        (errno.EROFS, "bad_request", "Read-only file system; is the disk connected and writable"),
    ],
)
def test_a_disk_that_takes_no_more_is_said(tmp_path: Path, number: int, code: str, text: str) -> None:
    with pytest.raises(HearthNetError, match=text) as raised, writing(tmp_path):
        raise OSError(number, os.strerror(number), str(tmp_path / "file"))
    assert raised.value.code == code
    assert str(tmp_path / "file") in raised.value.message


@pytest.mark.req("BACKUP-5")
def test_a_disk_that_is_not_there_is_said(folder: BackupFolder) -> None:
    assert nodes(folder.path.parent) == [folder.node]
    away = folder.path / "away"
    with pytest.raises(NotFound) as raised:
        nodes(away)
    said = f"cannot read the folder {away}: No such file or directory; is the disk connected?"
    assert raised.value.message == said
