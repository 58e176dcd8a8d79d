"""Backups of homes without a node: what is stored, what a finder learns, what is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from hearthnet.backup import backup_key, reader, writer
from hearthnet.backup.reader import SPARE_BYTES
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.restore_mark import read_mark
from hearthnet.trust.keys import Identity
from tests.backup.homes import Backed, files, ignore, large


@pytest.fixture
def backed(tmp_path: Path) -> Backed:
    """A home with a large and a small file."""
    made = Backed.make(tmp_path)
    made.write("nats/jetstream/blocks/1.blk", large())
    made.write("grants.json", b"[]")
    made.write("logs/up.log", b"a line")
    made.write("run/instances/abcdefgh", b"{}")
    made.write("run/proved", b"marks")
    made.write("services/rag/index.db-shm", b"shared")
    return made


def code_of(work: object, *arguments: object, **named: object) -> HearthNetError:
    """The error of a call."""
    assert callable(work)
    with pytest.raises(HearthNetError) as raised:
        work(*arguments, **named)
    return raised.value


@pytest.mark.req("BACKUP-1")
def test_restored_home_has_the_files_and_a_mark(backed: Backed, tmp_path: Path) -> None:
    made = backed.create()
    before = files(backed.home.path)
    mark = backed.restore(tmp_path / "new")
    restored = files(tmp_path / "new")
    assert restored == {name: data for name, data in before.items() if not name.endswith("-shm")}
    assert (tmp_path / "new/run/instances/abcdefgh").exists()
    assert not (tmp_path / "new/run/proved").exists()
    assert not (tmp_path / "new/keys/recovery.key").exists()
    assert read_mark(Home(tmp_path / "new")) == mark
    assert (mark.backup, mark.time) == (made.id, made.time)
    assert (tmp_path / "new/keys/device.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.req("BACKUP-2")
def test_unchanged_content_is_not_written_again(backed: Backed) -> None:
    first = backed.create()
    again = backed.create()
    assert first.written_chunks > 3
    assert again.written_chunks == 0
    shutil.copy(backed.home.path / "nats/jetstream/blocks/1.blk", backed.home.path / "copy")
    assert backed.create().written_chunks == 0
    with (backed.home.path / "nats/jetstream/blocks/1.blk").open("ab") as file:
        file.write(b"more")
    assert backed.create().written_chunks == 1


@pytest.mark.req("BACKUP-2")
def test_missing_chunk_of_an_unchanged_file_is_written(backed: Backed) -> None:
    backed.create()
    shutil.rmtree(backed.folder)
    backed.folder.mkdir()
    backed.create()
    assert reader.verify(backed.newest(), backed.recovery, ignore).with_key


@pytest.mark.req("BACKUP-2")
def test_keep_removes_old_backups_and_their_chunks(backed: Backed) -> None:
    ids = []
    for number in range(4):
        backed.write("nats/jetstream/blocks/1.blk", large())
        ids.append(backed.create(keep=2).id)
        assert len(backed.backups.ids()) == min(number + 1, 2)
    assert backed.backups.ids() == ids[2:]
    named = {name for backup_id in ids[2:] for name in backed.backups.read(backup_id)[0].chunks}
    assert {f"blake3:{path.name}" for path in backed.chunks()} == named
    for backup_id in ids[2:]:
        found = reader.choose(backed.folder, backup_id)
        assert reader.verify(found, backed.recovery, ignore).chunks


@pytest.mark.req("BACKUP-2")
def test_nothing_is_removed_beside_an_unreadable_backup(backed: Backed) -> None:
    first, second = backed.create(), backed.create()
    backed.manifest(second.id).write_bytes(b"{")
    removed, note = writer.keep_newest(backed.backups, 1)
    assert removed == ()
    assert "no old backup was removed" in note
    assert first.id in backed.backups.ids()


@pytest.mark.req("BACKUP-3")
def test_folder_tells_nothing_of_the_content(backed: Backed) -> None:
    secret = b"a secret that stands in the home, " * 4
    backed.write("services/notes.txt", secret)
    backed.create()
    found = [path for path in backed.folder.rglob("*") if path.is_file()]
    everything = b"".join(path.read_bytes() for path in found) + "".join(map(str, found)).encode()
    for told in (secret[:20], b"notes.txt", b"jetstream", backed.device.seed, backed.recovery.seed):
        assert told not in everything


@pytest.mark.req("BACKUP-3")
def test_same_content_of_two_homes_has_other_names(backed: Backed, tmp_path: Path) -> None:
    other = Backed.make(tmp_path, "other")
    other.write("grants.json", b"[]")
    backed.create(), other.create()
    assert not {path.name for path in backed.chunks()} & {path.name for path in other.chunks()}


@pytest.mark.req("BACKUP-3")
def test_computer_without_the_recovery_key_makes_backups(backed: Backed, tmp_path: Path) -> None:
    backed.create()
    backed.home.recovery_key.unlink()
    backed.write("grants.json", b"[1]")
    backed.create()
    backed.restore(tmp_path / "new")
    assert (tmp_path / "new/grants.json").read_bytes() == b"[1]"
    key = json.loads(backed.home.backup_key.read_bytes())
    assert backed.recovery.seed not in backed.home.backup_key.read_bytes()
    assert key["writer"]["person"] == backed.recovery.node_id


@pytest.mark.req("BACKUP-3")
def test_home_without_any_recovery_key_makes_none(backed: Backed) -> None:
    backed.home.recovery_key.unlink()
    error = code_of(backed.create)
    assert error.code == "not_found"
    assert "no recovery key" in error.message
    assert list(backed.folder.iterdir()) == []


@pytest.mark.req("BACKUP-3")
def test_key_that_others_can_read_is_refused(backed: Backed) -> None:
    backed.create()
    backed.home.backup_key.chmod(0o644)
    assert code_of(backed.create).code == "unauthorized"
    backed.home.backup_key.chmod(0o600)
    backed.home.backup_key.write_bytes(b"{}")
    assert "is damaged" in code_of(backed.create).message


@pytest.mark.req("BACKUP-4", "ATTACK-52")
@pytest.mark.parametrize("with_key", [True, False])
def test_altered_chunk_is_found(backed: Backed, tmp_path: Path, with_key: bool) -> None:
    backed.create()
    chunk = backed.chunks()[0]
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    error = code_of(reader.verify, backed.newest(), backed.recovery if with_key else None, ignore)
    assert error.code == "invalid_signature"
    assert "altered or truncated" in error.message
    assert code_of(backed.restore, tmp_path / "new").code == "invalid_signature"
    assert not (tmp_path / "new").exists()
    assert [path.name for path in tmp_path.iterdir() if "restoring" in path.name] == []


@pytest.mark.req("BACKUP-4")
def test_missing_chunk_is_found(backed: Backed, tmp_path: Path) -> None:
    backed.create()
    backed.chunks()[0].unlink()
    assert code_of(reader.verify, backed.newest(), None, ignore).code == "not_found"
    assert code_of(backed.restore, tmp_path / "new").code == "not_found"
    assert not (tmp_path / "new").exists()


@pytest.mark.req("BACKUP-4")
def test_verify_says_what_it_could_not_check(backed: Backed) -> None:
    backed.create()
    assert not reader.verify(backed.newest(), None, ignore).with_key
    assert reader.verify(backed.newest(), backed.recovery, ignore).with_key


@pytest.mark.req("BACKUP-4", "ATTACK-52")
def test_every_cut_and_flip_of_a_manifest_is_found(backed: Backed) -> None:
    backup_id = backed.create().id
    path = backed.manifest(backup_id)
    whole = path.read_bytes()
    places = range(0, len(whole), max(1, len(whole) // 200))
    for place in places:
        path.write_bytes(whole[:place])
        assert code_of(backed.newest).code in {"bad_request"}
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        with pytest.raises(HearthNetError):
            reader.verify(backed.newest(), backed.recovery, ignore)
    path.write_bytes(whole)
    assert reader.verify(backed.newest(), backed.recovery, ignore).with_key


@pytest.mark.req("BACKUP-4")
def test_newer_version_says_what_to_do(backed: Backed, tmp_path: Path) -> None:
    path = backed.manifest(backed.create().id)
    path.write_bytes(path.read_bytes().replace(b'"v":1', b'"v":2', 1).replace(b'"v":1}', b'"v":2}'))
    page = json.loads(path.read_bytes().split(b"\n")[0])
    path.write_bytes(json.dumps(page | {"v": 2}).encode() + b"\n")
    error = code_of(backed.newest)
    assert "install a newer HearthNet" in error.message
    assert not (tmp_path / "new").exists()


@pytest.mark.req("BACKUP-5")
def test_backup_of_another_person_is_refused(backed: Backed, tmp_path: Path) -> None:
    backed.create()
    error = code_of(backed.restore, tmp_path / "new", None, Identity.generate())
    assert error.code == "unauthorized"
    assert "of the person" in error.message
    assert not (tmp_path / "new").exists()


@pytest.mark.req("BACKUP-5", "ATTACK-52")
def test_backup_that_others_made_for_the_person_is_refused(backed: Backed, tmp_path: Path) -> None:
    """Everybody can seal for a person id; the statement that a node may takes the recovery key."""
    backed.create()
    forger = Backed.make(tmp_path, "forger")
    key = backup_key.make(forger.home, forger.device.node_id, forger.recovery)
    page = json.loads(forger.home.backup_key.read_bytes())
    page["writer"]["person"] = backed.recovery.node_id
    forger.home.backup_key.write_text(json.dumps(page))
    assert "is damaged" in code_of(forger.create).message
    assert key.writer.person == forger.recovery.node_id


@pytest.mark.req("BACKUP-5")
def test_home_that_is_not_empty_stays_as_it_is(backed: Backed, tmp_path: Path) -> None:
    backed.create()
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine").write_text("mine")
    error = code_of(backed.restore, there)
    assert "is not empty" in error.message
    assert [path.name for path in there.iterdir()] == ["mine"]
    assert code_of(backed.restore, there / "mine").code == "bad_request"


@pytest.mark.req("BACKUP-5")
def test_restore_without_room_leaves_nothing(
    backed: Backed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backed.create()
    usage = shutil.disk_usage(tmp_path)._replace(free=made.size + SPARE_BYTES - 1)
    monkeypatch.setattr("hearthnet.backup.reader.shutil.disk_usage", lambda _path: usage)
    error = code_of(backed.restore, tmp_path / "new")
    assert error.code == "capacity_exceeded"
    assert "make room" in error.message
    assert not (tmp_path / "new").exists()


@pytest.mark.req("BACKUP-5")
def test_empty_folder_is_a_home_to_restore_into(backed: Backed, tmp_path: Path) -> None:
    backed.create()
    (tmp_path / "new").mkdir()
    abandoned = tmp_path / ".new.restoring.999999999"
    abandoned.mkdir()
    backed.restore(tmp_path / "new")
    assert (tmp_path / "new/keys/device.key").exists()
    assert not abandoned.exists()


@pytest.mark.req("BACKUP-1")
def test_several_nodes_have_to_be_told_apart(backed: Backed, tmp_path: Path) -> None:
    other = Backed.make(tmp_path, "other")
    backed.create(), other.create()
    error = code_of(reader.choose, backed.folder)
    assert "--node" in error.message
    assert backed.device.node_id in error.message
    assert reader.choose(backed.folder, person=other.recovery.node_id).folder.node == other.device.node_id
    assert code_of(reader.choose, tmp_path / "missing").code == "not_found"
    assert code_of(reader.choose, backed.folder, "nothing").code == "not_found"


@pytest.mark.req("BACKUP-1")
def test_folder_in_the_home_or_missing_is_refused(backed: Backed) -> None:
    backed.folder = backed.home.path / "backups"
    assert code_of(backed.create).code == "not_found"
    backed.folder.mkdir()
    assert "in the home itself" in code_of(backed.create).message


@pytest.mark.req("BACKUP-2")
def test_backup_that_is_interrupted_is_none(backed: Backed, tmp_path: Path) -> None:
    first = backed.create()
    backed.write("grants.json", os.urandom(100))

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    from hearthnet.cli.workflows import backup_flow

    with pytest.raises(KeyboardInterrupt):
        backup_flow.create(backed.home, backed.folder, 0, stop)
    assert backed.backups.ids() == [first.id]
    backed.restore(tmp_path / "new")
    assert (tmp_path / "new/grants.json").read_bytes() == b"[]"
