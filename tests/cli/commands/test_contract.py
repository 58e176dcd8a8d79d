"""`hearthnet contract`: keys and signatures of a package's contracts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.bus.session.keyring import load_identity
from hearthnet.cli.entry_point import run
from hearthnet.contracts.packages import read_contract
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.contract_signature import check_contract, decode, key_label, shared_contract
from tests.helpers.packages import contract, write_package

GREET = "hello.greet@1.0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The contracts of a package."""
    return write_package(tmp_path, "hello", contract(), contract("hello.part@1.0"))


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key that the command made."""
    file = tmp_path / "keys" / "hello.key"
    assert run(["contract", "key", str(file)]) == 0
    return file


def page(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    """What a command that must succeed prints as JSON."""
    capsys.readouterr()
    assert run(["contract", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.req("OTHERS-7")
def test_contract_sign_writes_a_signature_of_each(
    folder: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = load_identity(key)
    signed = page(capsys, "sign", "--key", key, folder)
    assert [one["capability"] for one in signed] == [GREET, "hello.part@1.0"]
    for one in signed:
        known = read_contract(folder / f"{one['capability']}.json")
        signature = decode(msgspec.json.decode((folder / f"{one['capability']}.sig").read_bytes()))
        check_contract(signature, known)
        assert signature.key == identity.node_id
        assert one["shared"] == shared_contract(known, identity.node_id).id
    # After a change, the old signature is for another contract; signing again replaces it.
    (folder / f"{GREET}.json").write_text(json.dumps(contract(timeout_seconds=6)))
    changed, file = read_contract(folder / f"{GREET}.json"), folder / f"{GREET}.sig"
    with pytest.raises(HearthNetError, match="another contract"):
        check_contract(decode(msgspec.json.decode(file.read_bytes())), changed)
    assert run(["contract", "sign", "--key", str(key), str(folder / f"{GREET}.json")]) == 0
    check_contract(decode(msgspec.json.decode(file.read_bytes())), changed)
    assert f"{GREET}: experimental.key.{key_label(identity.node_id)}.{GREET}"[:-3] in capsys.readouterr().out


@pytest.mark.req("OTHERS-7")
def test_contract_key_never_overwrites_one(key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = key.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    assert run(["contract", "key", str(key)]) == 2
    assert f"cannot make {key}: it exists" in capsys.readouterr().err
    assert key.read_bytes() == before
    made = page(capsys, "key", key.with_name("other.key"))
    assert made["label"] == key_label(made["key"])
    assert run(["contract", "key", str(key / "below.key")]) == 2
    assert "cannot make" in capsys.readouterr().err


@pytest.mark.req("OTHERS-7")
def test_contract_sign_names_what_it_cannot_sign(
    folder: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = folder / "market.greet@1.0.json"
    taken.write_text(json.dumps(contract("market.greet@1.0")))
    (folder.parent / "empty").mkdir()
    for path, status, reason in (
        (taken, 2, "market is a namespace of HearthNet itself"),
        (folder / "hello.gone@1.0.json", 2, "it cannot be read: No such file"),
        (folder.parent / "empty", 5, "no contract name@major.minor.json in"),
    ):
        assert run(["contract", "sign", "--key", str(key), str(path)]) == status
        assert reason in capsys.readouterr().err
    assert list(folder.glob("*.sig")) == []
    (folder / f"{GREET}.sig").mkdir()
    assert run(["contract", "sign", "--key", str(key), str(folder / f"{GREET}.json")]) == 2
    assert f"cannot sign {folder / GREET}.json: Is a directory" in capsys.readouterr().err
    key.chmod(0o600)
    key.write_text("no key\n")
    assert run(["contract", "sign", "--key", str(key), str(folder)]) == 2
    assert f"the key {key} is no HearthNet key" in capsys.readouterr().err
    key.chmod(0o644)
    assert run(["contract", "sign", "--key", str(key), str(folder)]) == 4
    assert "can be read by others" in capsys.readouterr().err
