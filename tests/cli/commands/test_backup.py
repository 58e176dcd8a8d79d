"""`hearthnet backup` and `hearthnet person words`, in homes without a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hearthnet.backup.words import to_words
from hearthnet.bus.session.keyring import create_identity
from hearthnet.core.home import Home
from hearthnet.core.restore_mark import read_mark
from hearthnet.gateway.auth.home_persons import HomePerson, HomePersons
from tests.backup.homes import Backed, files
from tests.cli.conftest import Here
from tests.helpers.shell import Shell


@pytest.fixture
def backed(tmp_path: Path) -> Backed:
    """A home, and its words in a file."""
    made = Backed.make(tmp_path, "backed")
    made.write("grants.json", b"[]")
    (tmp_path / "words").write_text("\n".join(to_words(made.recovery.seed)))
    return made


@pytest.mark.req("BACKUP-1")
def test_backup_is_made_listed_verified_and_restored(backed: Backed, here: Here, tmp_path: Path) -> None:
    home = ("--home", backed.home.path)
    made = here.json("backup", "create", backed.folder, "--keep", "3", *home)
    assert made["written_chunks"] == made["files"] > 2
    assert here("backup", "create", backed.folder, *home) == 0
    assert "0 new parts" in here.out
    assert "not in it: keys/recovery.key" in here.out
    listed = here.json("backup", "list", backed.folder, *home)
    assert listed[0]["id"] == made["id"]
    assert {one["problem"] for one in listed} == {""}
    assert here("backup", "list", backed.folder, *home) == 0
    assert made["id"] in here.out
    assert here.json("backup", "verify", backed.folder, *home)["with_key"]
    backed.home.recovery_key.unlink()
    assert here("backup", "verify", backed.folder, *home) == 0
    assert "not checked without the recovery words" in here.out
    words = ("--words", tmp_path / "words")
    assert here("backup", "verify", backed.folder, *words, *home) == 0
    assert "all decrypted" in here.out
    new = ("--home", tmp_path / "new")
    assert here.json("backup", "restore", backed.folder, *words, *new)["node"] == backed.device.node_id
    assert files(tmp_path / "new") == files(backed.home.path)
    assert here("backup", "restore", backed.folder, *words, *new) == 2
    assert "is not empty" in here.err


@pytest.mark.req("BACKUP-5", "BACKUP-6")
def test_wrong_words_are_one_line(backed: Backed, here: Here, tmp_path: Path) -> None:
    backed.create()
    words = list(to_words(backed.recovery.seed))
    right = words[6]
    words[6] = "zoo" if right != "zoo" else "able"
    (tmp_path / "wrong").write_text(" ".join(words))
    new = tmp_path / "new"
    for option in (tmp_path / "wrong", tmp_path / "missing"):
        assert here("backup", "restore", backed.folder, "--words", option, "--home", new) in (2, 5)
        assert len(here.err.strip().splitlines()) == 1
        assert not new.exists()
    assert (
        here("backup", "restore", backed.folder, "--words", tmp_path / "wrong", "--home", new, "--json") == 2
    )
    assert json.loads(here.out)["details"]["words"] == [7]
    assert here("backup", "restore", backed.folder, "--home", new) == 7
    assert "--words FILE" in here.err
    key = backed.home.recovery_key
    assert here("backup", "restore", backed.folder, "--words", key, "--home", new) == 0


@pytest.mark.req("BACKUP-4")
def test_damaged_backup_is_listed_with_its_problem(backed: Backed, here: Here) -> None:
    good, bad = backed.create().id, backed.create().id
    backed.manifest(bad).write_bytes(backed.manifest(bad).read_bytes()[:100])
    listed = {one["id"]: one["problem"] for one in here.json("backup", "list", backed.folder)}
    assert listed[good] == ""
    assert "truncated" in listed[bad]
    assert here("backup", "list", backed.folder) == 0
    assert here("backup", "verify", backed.folder, "--home", backed.home.path) == 2
    assert f"--backup {good}" in here.err


@pytest.mark.req("BACKUP-3")
def test_home_is_allowed_to_make_backups_by_its_words(backed: Backed, here: Here, tmp_path: Path) -> None:
    backed.home.recovery_key.unlink()
    home = ("--home", backed.home.path)
    assert here("backup", "create", backed.folder, *home) == 5
    assert "hearthnet backup allow" in here.err
    allowed = here.json("backup", "allow", "--words", tmp_path / "words", *home)
    assert allowed == {"person": backed.recovery.node_id, "node": backed.device.node_id}
    assert here("backup", "create", backed.folder, *home) == 0


@pytest.mark.req("BACKUP-9")
def test_restored_home_goes_on_alone_by_command(backed: Backed, here: Here, tmp_path: Path) -> None:
    assert here("backup", "alone", "--yes", "--home", backed.home.path) == 5
    backed.create()
    backed.restore(tmp_path / "new")
    assert here("backup", "alone", "--home", tmp_path / "new") == 7
    assert here.json("backup", "alone", "--yes", "--home", tmp_path / "new") == {"alone": True}
    mark = read_mark(type(backed.home)(tmp_path / "new"))
    assert mark is not None
    assert mark.may_write_events


@pytest.mark.req("BACKUP-11")
def test_words_are_printed_after_a_yes(backed: Backed, here: Here) -> None:
    home = ("--home", backed.home.path)
    assert here("person", "words", *home) == 7
    assert here.json("person", "words", "--yes", *home)["words"] == list(to_words(backed.recovery.seed))
    assert here("person", "words", "--yes", "--forget", *home) == 7
    assert backed.home.recovery_key.exists()


@pytest.mark.req("BACKUP-11")
@pytest.mark.parametrize("right", [True, False])
def test_key_is_removed_once_words_are_typed(backed: Backed, right: bool) -> None:
    words = to_words(backed.recovery.seed)
    shell = Shell(backed.home.path)
    with shell.terminal("person", "words", "--forget", "--yes") as terminal:
        terminal.expect("press Enter")
        terminal.type("\n")
        for number in range(4):
            terminal.expect("word ")
            place = int(terminal.expect(": "))
            word = words[place - 1]
            terminal.type((word if right or number < 2 else "wrong") + "\n")
            if not right and number == 2:
                break
        assert terminal.end() == (0 if right else 4)
    assert backed.home.recovery_key.exists() != right
    if right:
        assert backed.create().files


@pytest.mark.req("BACKUP-13")
def test_printed_words_open_a_backup_as_they_are(backed: Backed, here: Here, tmp_path: Path) -> None:
    backed.create()
    assert here("person", "words", "--yes", "--home", backed.home.path) == 0
    sheet, new = here.out, tmp_path / "new"
    (tmp_path / "sheet").write_text(sheet)
    restore = ("backup", "restore", backed.folder, "--home")
    assert here(*restore, tmp_path / "other", "--words", tmp_path / "sheet") == 0
    with Shell(new).terminal(*restore, new) as terminal:
        terminal.expect("24 recovery words")
        terminal.type(sheet)
        assert terminal.end() == 0
    assert files(new) == files(tmp_path / "other") == files(backed.home.path)


@pytest.mark.req("PERSON-87")
@pytest.mark.parametrize("backed_up", [True, False])
def test_key_of_a_person_in_backups_is_said(backed: Backed, tmp_path: Path, backed_up: bool) -> None:
    persons = HomePersons(backed.home)
    recovery = create_identity(persons.recovery_key("anna"))
    persons.save(HomePerson(name="anna", person=recovery.node_id, created_at=1))
    if backed_up:
        backed.create()
    words = to_words(recovery.seed)
    with Shell(backed.home.path).terminal("person", "words", "anna", "--forget", "--yes") as terminal:
        terminal.expect("press Enter")
        terminal.type("\n")
        for _ in range(4):
            terminal.expect("word ")
            terminal.type(words[int(terminal.expect(": ")) - 1] + "\n")
        assert terminal.end() == 0
    assert ("backups made before have it" in terminal.shown) is backed_up
    earlier = backed.newest() if backed_up else None
    backed.create()
    backed.restore(tmp_path / "new")
    assert not HomePersons(Home(tmp_path / "new")).recovery_key("anna").exists()
    if earlier is not None:
        backed.restore(tmp_path / "earlier", earlier)
        assert HomePersons(Home(tmp_path / "earlier")).recovery_key("anna").exists()


@pytest.mark.req("BACKUP-6", "BACKUP-11")
def test_words_are_typed_where_no_file_is_named(backed: Backed, here: Here, tmp_path: Path) -> None:
    backed.create()
    words, new = to_words(backed.recovery.seed), tmp_path / "new"
    restore = ("backup", "restore", backed.folder, "--home", new)
    assert here(*restore) == 7
    assert "use --words FILE" in here.err
    with Shell(new).terminal(*restore) as terminal:
        terminal.expect("24 recovery words")
        terminal.type(" ".join(f"{number}. {word}" for number, word in enumerate(words[:12], 1)) + "\n")
        terminal.type(" ".join(words[12:]) + "\n")
        assert terminal.end() == 0
    assert files(new) == files(backed.home.path)


@pytest.mark.req("BACKUP-11")
def test_a_key_file_opens_a_backup_as_the_words_do(backed: Backed, here: Here, tmp_path: Path) -> None:
    backed.create()
    words = ("--words", backed.home.recovery_key)
    assert here("backup", "restore", backed.folder, *words, "--home", tmp_path / "new") == 0
    assert files(tmp_path / "new") == files(backed.home.path)
