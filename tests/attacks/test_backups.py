"""Who finds a backup, takes the disk of backups, or plays an old one back."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from hearthnet.backup import manifest, reader
from hearthnet.core.canonical_json import canonical_json
from hearthnet.core.errors import HearthNetError
from hearthnet.core.restore_mark import read_mark
from hearthnet.trust import signed_document
from hearthnet.trust.keys import Identity
from tests.backup.homes import Backed, large


@pytest.fixture
def victim(tmp_path: Path) -> Backed:
    """A home with a backup."""
    backed = Backed.make(tmp_path)
    backed.write("nats/jetstream/1.blk", large())
    backed.create()
    return backed


def refused(victim: Backed, place: Path) -> HearthNetError:
    """The error of a restore, which leaves nothing."""
    with pytest.raises(HearthNetError) as raised:
        victim.restore(place / "new", reader.choose(victim.folder, person=victim.recovery.node_id))
    assert not (place / "new").exists()
    return raised.value


@pytest.mark.req("ATTACK-52")
def test_backup_by_a_stranger_for_the_person_is_refused(victim: Backed, tmp_path: Path) -> None:
    """Mallory seals an index of her own for the person, and borrows the statement of the person's node."""
    mallory = Backed.make(tmp_path, "mallory")
    mallory.folder = tmp_path / "hers"
    mallory.folder.mkdir()
    made = mallory.create()
    header, sealed_index = mallory.backups.read(made.id)
    theirs = victim.newest().header
    assert theirs is not None
    for forged in (
        msgspec.structs.replace(header, person=victim.recovery.node_id),
        msgspec.structs.replace(header, person=victim.recovery.node_id, writer=theirs.writer),
        msgspec.structs.replace(
            header, person=victim.recovery.node_id, writer=theirs.writer, node=victim.device.node_id
        ),
    ):
        signed = signed_document.sign(forged, mallory.device, manifest.PURPOSE)
        with pytest.raises(HearthNetError) as raised:
            manifest.read(canonical_json(signed.as_json()) + b"\n" + sealed_index)
        assert raised.value.code == "invalid_signature"


@pytest.mark.req("ATTACK-52")
def test_chunks_and_manifests_cannot_be_exchanged(victim: Backed, tmp_path: Path) -> None:
    first = victim.newest().id
    victim.write("nats/jetstream/1.blk", large())
    second = victim.create().id
    newer, older = victim.manifest(second), victim.manifest(first)
    whole = newer.read_bytes()
    newer.write_bytes(older.read_bytes())
    assert "under this name" in refused(victim, tmp_path).message
    # The index of one under the header of the other.
    newer.write_bytes(whole.split(b"\n", 1)[0] + b"\n" + older.read_bytes().split(b"\n", 1)[1])
    assert refused(victim, tmp_path).code == "bad_request"
    newer.write_bytes(whole)
    one, other = victim.chunks()[:2]
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    assert refused(victim, tmp_path).code == "invalid_signature"


@pytest.mark.req("ATTACK-52")
@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "keys/../../outside", "a//b", "a/./b"])
def test_paths_outside_the_home_are_refused(victim: Backed, tmp_path: Path, path: str) -> None:
    """By whoever has the node's key: the manifest is signed as it should be."""
    found = victim.newest()
    assert found.header is not None
    _, sealed_index = victim.backups.read(found.id)
    index = manifest.open_index(found.header, sealed_index, victim.recovery)
    files = (msgspec.structs.replace(index.files[0], path=path), *index.files[1:])
    fields = {
        name: getattr(found.header, name) for name in ("id", "display_name", "time", "hearthnet", "pause_ms")
    }
    evil = msgspec.structs.replace(index, files=files)
    victim.manifest(found.id).write_bytes(manifest.write(fields, evil, victim.device, found.header.writer))
    assert "outside the home" in refused(victim, tmp_path).message
    assert not (tmp_path / "outside").exists()


@pytest.mark.req("ATTACK-52")
def test_holder_of_the_disk_opens_no_older_backup(victim: Backed) -> None:
    """All keys of the home, and what it remembers of its last backup, open no chunk of an earlier one."""
    early = {f"blake3:{path.name}" for path in victim.chunks()}
    header, sealed_index = victim.backups.read(victim.newest().id)
    victim.write("nats/jetstream/1.blk", os.urandom(1_000))
    victim.home.recovery_key.unlink()
    victim.create()
    remembered = json.loads((victim.home.backup / "known.json").read_bytes())
    opened = {chunk[0] for known in remembered.values() for chunk in known["chunks"]}
    gone = early - opened
    assert len(gone) == 3
    with pytest.raises(HearthNetError):
        manifest.open_index(header, sealed_index, victim.device)
    with pytest.raises(HearthNetError):
        manifest.open_index(
            msgspec.structs.replace(header, person=victim.device.node_id), sealed_index, victim.device
        )


@pytest.mark.req("ATTACK-51")
def test_old_backup_is_restored_with_its_time(victim: Backed, tmp_path: Path) -> None:
    """Who takes the newer backups away plays an old one back; the mark says of when it is."""
    old = victim.newest()
    victim.write("grants.json", b"[]")
    new = victim.create()
    victim.manifest(new.id).unlink()
    mark = victim.restore(tmp_path / "new")
    assert old.header is not None
    assert (mark.backup, mark.time) == (old.id, old.header.time)
    from hearthnet.core.home import Home

    restored = read_mark(Home(tmp_path / "new"))
    assert restored is not None
    assert not restored.may_write_events
    assert restored.may_be_older(old.header.time, new.time)
    assert Identity.generate().node_id != old.header.person
