"""Keys and rosters on disk: what is missing, open to others or damaged is named with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hearthnet.bus import keyring
from hearthnet.errors import HearthNetError


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
    assert "cannot read" in _refused(path).message


@pytest.mark.req("BUS-20")
def test_a_roster_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    with pytest.raises(HearthNetError, match="founds a community"):
        keyring.load_roster(path)
    path.write_text("{}")
    with pytest.raises(HearthNetError, match="put back a copy"):
        keyring.load_roster(path)
