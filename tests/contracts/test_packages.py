"""The contracts that installed packages bring: found without an import, refused one by one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_home_only, refuse_home_only
from hearthnet.contracts.packages import GROUP, MAX_FILES, PackagedContracts, read_seen, signature_path
from hearthnet.contracts.registry import Contracts
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.entry_points import scan_entry_points
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.keys import Identity
from tests.helpers.packages import contract, sign, write_package

FOLDER = Path(__file__).resolve().parents[2] / "contracts"
GREET = parse_capability("hello.greet@1.0")
Scan = Callable[[], PackagedContracts]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, first on the path."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def scanned() -> PackagedContracts:
    """What is installed now."""
    return PackagedContracts(scan_entry_points.__wrapped__().of(GROUP))


def refusal(packages: PackagedContracts, name: str = "hello.greet") -> str:
    """The error of a lookup in a registry with `packages`."""
    with pytest.raises(HearthNetError) as caught:
        Contracts(FOLDER, lambda: packages).find(name)
    assert caught.value.code == "not_found"
    return caught.value.message


@pytest.mark.req("OTHERS-1")
def test_a_packages_contract_is_found_without_an_import(site: Path) -> None:
    code = "raise RuntimeError('imported')"
    write_package(site, "hello", contract(), contract("hello.greet@1.1"), code=code)
    known = Contracts(FOLDER, scanned)
    assert known.get("hello.greet@1.0").summary == "Greet a person by name."
    assert known.find("hello.greet").id == "hello.greet@1.1"
    assert known.find("hello.greet", (1, 0)).id == "hello.greet@1.1"
    assert "hello_package" not in sys.modules
    assert "hello.greet" not in known.names()
    with pytest.raises(HearthNetError) as caught:
        known.get("hello.greet@2.0")
    assert caught.value.code == "schema_mismatch"


@pytest.mark.req("OTHERS-1")
def test_next_version_of_a_packages_contract_is_learned_beside_it(site: Path) -> None:
    write_package(site, "hello", contract())
    known = Contracts(FOLDER, scanned)
    fresh = msgspec.convert(contract("hello.greet@2.0"), Contract)
    known.learn(fresh)
    assert (known.get("hello.greet@2.0"), known.find("hello.greet", (2, 0))) == (fresh, fresh)
    assert known.find("hello.greet").id == known.find("hello.greet", (1, 0)).id == "hello.greet@1.0"


@pytest.mark.req("OTHERS-1")
def test_names_of_this_project_do_not_scan_packages() -> None:
    def fail() -> PackagedContracts:
        raise AssertionError("scanned")

    known = Contracts(FOLDER, fail)
    assert known.find("market.list").id == "market.list@1.0"
    with pytest.raises(HearthNetError, match="there is no capability"):
        known.find("market.lst")
    # Every contract of this project lies in a namespace that no package may use.
    assert not any(map(is_home_only, known.names()))


@pytest.mark.req("OTHERS-2")
def test_two_packages_with_one_name_are_both_refused(site: Path) -> None:
    write_package(site, "hello", contract(), contract("hello.other@1.0"))
    write_package(site, "hallo", contract("hello.greet@1.1"))
    packages = scanned()
    text = "cannot use hello.greet: hallo 1.0 and hello 1.0 both have it; uninstall one of them"
    assert packages.refused == {"hello.greet": text}
    assert refusal(packages) == text
    assert Contracts(FOLDER, lambda: packages).find("hello.other").id == "hello.other@1.0"


@pytest.mark.req("OTHERS-2")
def test_one_folder_named_twice_is_one_claim(site: Path) -> None:
    points = f"[{GROUP}]\na = hello_package.contracts\nb = hello_package.contracts\n"
    write_package(site, "hello", contract(), entry_points=points)
    write_package(site, "renamed", entry_points=f"[{GROUP}]\nc = hello_package.contracts\n")
    packages = scanned()
    assert list(packages.found) == [GREET]
    assert (packages.found[GREET].package, packages.refused) == ("hello 1.0", {})


@pytest.mark.req("OTHERS-2")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "market.greet"}, "market is a namespace of HearthNet itself; mend it"),
        ({"summary": 7}, "Expected `str`, got `int` - at `$.summary`"),
        ({"extra": 1}, "unknown field `extra`"),
        ({"side_effects": True}, "with side effects is not 'pure'"),
        ({"request_schema": {"type": "object"}}, "no object of params and input"),
        ({"offer_params": {"type": "no type"}}, "no type"),
        ({"summary": "x" * 70_000}, "65536 at most"),
        ({"summary": "x" * 300_000}, "more than 262144 bytes"),
    ],
)
def test_an_unusable_contract_is_refused_alone(site: Path, changed: dict[str, Any], reason: str) -> None:
    wrong = {**contract("hello.wrong@1.0"), **changed}
    folder = write_package(site, "hello", contract(), wrong)
    packages = scanned()
    assert list(packages.found) == [GREET]
    (text,) = packages.refused.values()
    file = folder / f"{wrong['name']}@1.0.json"
    assert text.startswith(f"cannot use {file} of hello 1.0: ")
    assert reason in text
    assert text.endswith("; mend it, or uninstall the package")


@pytest.mark.req("OTHERS-2")
def test_a_file_that_is_no_contract_is_refused(site: Path) -> None:
    folder = write_package(site, "hello", contract())
    (folder / "hello.half@1.0.json").write_text('{"name": "hello.half"')
    doubled = json.dumps(contract("hello.twice@1.0")).replace("{", '{"name": "hello.other", ', 1)
    (folder / "hello.twice@1.0.json").write_text(doubled)
    (folder / "hello.moved@1.0.json").write_text(json.dumps(contract()))
    (folder / "hello.folder@1.0.json").mkdir()
    packages = scanned()
    assert list(packages.found) == [GREET]
    reasons = {
        "half": "truncated",
        "twice": "a key stands twice",
        "moved": "it is the contract of hello.greet@1.0",
    }
    for name, reason in {**reasons, "folder": "Is a directory"}.items():
        assert reason in packages.refused[f"hello.{name}@1.0"], packages.refused
        assert f"hello.{name}@1.0.json" in refusal(packages, f"hello.{name}")


@pytest.mark.req("OTHERS-2")
@pytest.mark.parametrize(
    "value", ["hello_package.nothing", "nowhere.contracts", "sys", "hello_package", ".x", "a b"]
)
def test_a_package_without_contracts_is_named(site: Path, value: str) -> None:
    write_package(site, "hello", contract(), entry_points=f"[{GROUP}]\nhello = {value}\n")
    packages = scanned()
    assert not packages.found
    (text,) = packages.refused.values()
    assert text.startswith("cannot use the contracts of hello 1.0: no files name@major.minor.json in ")


@pytest.mark.req("OTHERS-2")
def test_a_package_with_too_many_contracts_has_none(site: Path) -> None:
    write_package(site, "hello", *(contract(f"hello.greet@1.{minor}") for minor in range(MAX_FILES + 1)))
    packages = scanned()
    assert not packages.found
    assert f"{MAX_FILES + 1} files" in "".join(packages.refused.values())


@pytest.mark.req("OTHERS-1")
def test_a_module_stands_for_its_folder(site: Path) -> None:
    folder = write_package(
        site, "hello", contract(), entry_points=f"[{GROUP}]\na = hello_package.contracts.x\n"
    )
    (folder / "x.py").write_text("raise RuntimeError('imported')")
    assert list(scanned().found) == [GREET]


@pytest.mark.req("OTHERS-2")
def test_a_malformed_package_is_named_and_harms_no_other(site: Path) -> None:
    write_package(site, "hello", contract())
    write_package(site, "odd", entry_points="[hearthnet.services]\nodd\n")
    about = site / "bare-1.0.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text("[hearthnet.services]\nbare\n")
    scan = scan_entry_points.__wrapped__()
    assert sorted(text.partition(": ")[0] for text in scan.errors) == [
        f"cannot read the entry points of a package without metadata in {site}",
        "cannot read the entry points of odd 1.0",
    ]
    assert list(PackagedContracts(scan.of(GROUP)).found) == [GREET]


@pytest.mark.req("OTHERS-1")
def test_of_two_versions_of_a_package_the_first_counts(site: Path) -> None:
    older = site / "older"
    older.mkdir()
    write_package(older, "hello", contract("hello.gone@1.0"))
    write_package(site, "hello", contract())
    sys.path.append(str(older))
    try:
        assert list(scanned().found) == [GREET]
    finally:
        sys.path.remove(str(older))


@pytest.mark.req("OTHERS-3")
def test_a_changed_contract_is_refused_until_it_is_forgotten(site: Path, tmp_path: Path) -> None:
    folder = write_package(site, "hello", contract())
    seen, where = {"hello.greet@1.0": scanned().found[GREET].digest}, tmp_path / "contracts.json"
    same = scanned()
    same.refuse_changed(seen, where)
    assert list(same.found) == [GREET]
    file = folder / "hello.greet@1.0.json"
    file.write_text(json.dumps(contract(timeout_seconds=6)))
    changed = scanned()
    changed.refuse_changed(seen, where)
    assert not changed.found
    assert refusal(changed) == (
        "cannot use hello.greet@1.0 of hello 1.0: it was another contract when this node first started with "
        f"it; raise its version, or remove its line from {where} if nothing relies on the former one"
    )
    fresh = scanned()
    fresh.refuse_changed({}, where)
    assert list(fresh.found) == [GREET]


@pytest.mark.req("OTHERS-3")
def test_a_damaged_memory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "contracts.json"
    assert read_seen(file) == {}
    file.write_text('{"a": 1}')
    with pytest.raises(HearthNetError, match=r"cannot read .*contracts\.json"):
        read_seen(file)


@pytest.mark.req("OTHERS-6")
def test_a_packages_signature_is_the_file_beside_its_contract(site: Path) -> None:
    folder = write_package(site, "hello", contract())
    packaged = scanned().found[GREET]
    file = folder / "hello.greet@1.0.sig"
    assert signature_path(packaged.path) == file
    assert packaged.signature() is None
    sign(folder, Identity.generate())
    assert packaged.signature() == file.read_bytes()
    file.write_bytes(b"x" * 1_000_000)
    assert packaged.signature() == b"x" * 4096, "the rest of a file that is too long is not read"
    file.unlink()
    file.mkdir()
    assert packaged.signature() is None


@pytest.mark.req("OTHERS-6")
def test_a_packages_plain_name_is_refused_to_other_homes() -> None:
    for name in ("hello.greet", "hello.greet@1.0"):
        with pytest.raises(HearthNetError, match=r"^hello\.greet is called at its own home only$") as caught:
            refuse_home_only(name)
        assert caught.value.code == "unauthorized"
    for name in ("market.post@1.0", "experimental.hello.greet", "search_corpus"):
        refuse_home_only(name)
