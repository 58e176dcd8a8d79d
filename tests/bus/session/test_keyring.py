"""Keys and rosters on disk: what is missing, open to others or damaged is named with what to do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hearthnet.bus.session import keyring
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.keys import Identity


def _refused(path: Path) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        keyring.load_identity(path)
    return caught.value


@pytest.mark.req("BUS-20")
def test_a_key_is_read_back_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "device.key"
    made = keyring.create_identity(path)
    assert keyring.load_identity(path).node_id == made.node_id
    with pytest.raises(FileExistsError):
        keyring.create_identity(path)
    assert [file.name for file in path.parent.iterdir()] == ["device.key"]


@pytest.mark.req("BUS-20")
def test_a_key_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    path = tmp_path / "device.key"
    assert (_refused(path).code, "hearthnet up" in _refused(path).message) == ("not_found", True)
    keyring.create_identity(path)
    path.chmod(0o644)
    assert (_refused(path).code, "chmod 600" in _refused(path).message) == ("unauthorized", True)
    path.chmod(0o600)
    path.write_text("no key")
    assert _refused(path).code == "bad_request"
    path.write_bytes(b"\xff")
    assert _refused(path).message.startswith(
        f"the key {path} is no HearthNet key (one line of three words); "
    )
    path.unlink()
    path.mkdir()
    assert _refused(path).message == f"cannot read the key {path}: Is a directory"


@pytest.mark.req("BUS-20")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666, 0o777])
def test_a_key_is_for_its_owner_alone(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys" / "device.key"
    made = keyring.create_identity(path)
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    path.chmod(mode)
    assert _refused(path).code == "unauthorized"
    for good in (0o600, 0o400):
        path.chmod(good)
        assert keyring.load_identity(path).node_id == made.node_id


@pytest.mark.req("BUS-20")
def test_a_damaged_key_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "device.key"
    made, other = keyring.create_identity(path), Identity.generate()
    text = made.to_text()
    for damaged in (
        text[:-3],
        text[: len(text) // 2],
        text + text,
        text.replace(made.node_id, other.node_id),
    ):
        path.write_text(damaged)
        error = _refused(path)
        assert (error.code, str(path) in error.message) == ("bad_request", True)
        assert "put back a copy" in error.message
        assert "\n" not in error.message
        assert text.split()[1] not in error.message
        assert path.read_text() == damaged


@pytest.mark.req("BUS-20")
def test_a_roster_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    with pytest.raises(HearthNetError, match="founds a community"):
        keyring.load_roster(path)
    path.write_text("{}")
    with pytest.raises(HearthNetError, match="put back a copy"):
        keyring.load_roster(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(HearthNetError, match="cannot read the roster") as caught:
        keyring.load_roster(path)
    assert caught.value.code == "bad_request"


@pytest.mark.req("BUS-20", "COMM-11")
def test_a_roster_is_proved_unless_this_node_has_sealed_it(tmp_path: Path) -> None:
    path, own, other = tmp_path / "roster.json", Identity.generate(), Identity.generate()
    held = rosters.create(Identity.generate(), rosters.member(own, "anchor", "own", 0), "own", 0)
    keyring.write_new(path, rosters.encode(rosters.seal(held, own)))
    assert keyring.load_roster(path, own.node_id).members == keyring.load_roster(path).members
    lie = rosters.seal(msgspec.structs.replace(held, name="theirs"), other)
    path.write_bytes(rosters.encode(lie))
    damaged = path.read_bytes()
    for reader in ("", own.node_id):
        with pytest.raises(HearthNetError, match=f"the roster {path} is no roster, or was altered") as caught:
            keyring.load_roster(path, reader)
        assert caught.value.code == "invalid_signature"
        assert path.read_bytes() == damaged
