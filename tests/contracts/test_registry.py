"""Finding contracts, by name and version, in whole and damaged folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hearthnet.contracts import registry
from hearthnet.contracts.registry import Contracts, contracts
from hearthnet.core.errors import HearthNetError

FOLDER = Path(__file__).resolve().parents[2] / "contracts"


def folder_with(tmp_path: Path, **versions: str) -> Path:
    """A folder with copies of rag.query: `minor="1.3"` and so on."""
    folder = tmp_path / "contracts"
    folder.mkdir()
    shutil.copy(FOLDER / "_common.json", folder)
    content = json.loads((FOLDER / "rag.query@1.0.json").read_bytes())
    for version in versions.values():
        (folder / f"rag.query@{version}.json").write_text(json.dumps({**content, "version": version}))
    return folder


def refusal(call: Any, *arguments: Any) -> HearthNetError:
    with pytest.raises(HearthNetError) as caught:
        call(*arguments)
    return caught.value


@pytest.mark.req("CONTRACT-1")
def test_the_contracts_of_this_version_are_there() -> None:
    hashes = json.loads(Path(__file__).with_name("hashes.json").read_bytes())
    assert [contract.id for contract in contracts()] == sorted(hashes)
    assert contracts() is contracts()
    assert contracts().get("rag.query@1.0") is contracts().get("rag.query@1.0")
    assert "rag.list_corpora" in contracts().names()


@pytest.mark.req("CONTRACT-10")
def test_an_unknown_name_is_answered_with_the_nearest_ones() -> None:
    error = refusal(contracts().get, "rag.querry@1.0")
    assert (error.code, error.alt[0]) == ("not_found", "rag.query")
    assert error.message.endswith("'rag.querry'; did you mean rag.query or rag.mirror or mesh.query?")
    assert contracts().nearest("market.lst@1.0")[0] == "market.list"


@pytest.mark.req("CONTRACT-10")
def test_a_name_like_no_other_is_answered_with_where_to_look() -> None:
    error = refusal(contracts().find, "zzzz.qqqq")
    assert (error.code, error.alt) == ("not_found", [])
    assert "hearthnet caps" in error.message


@pytest.mark.req("CONTRACT-10")
def test_an_unknown_version_is_answered_with_those_there_are() -> None:
    for call, arguments in ((contracts().get, ("llm.chat@1.0",)), (contracts().find, ("llm.chat", (1, 0)))):
        error = refusal(call, *arguments)
        assert (error.code, error.alt) == ("schema_mismatch", ["llm.chat@2.0"])
        assert error.message == "llm.chat@1.0 is not a version known here; there is llm.chat@2.0"


@pytest.mark.req("CONTRACT-10")
def test_what_is_no_name_is_a_bad_request() -> None:
    assert refusal(contracts().get, "rag.query").code == "bad_request"
    assert refusal(contracts().find, "Rag Query").code == "bad_request"


@pytest.mark.req("CONTRACT-10")
def test_the_newest_contract_that_serves_is_found(tmp_path: Path) -> None:
    here = Contracts(folder_with(tmp_path, a="1.0", b="1.2", c="1.10", d="2.0"))
    assert here.find("rag.query").id == "rag.query@2.0"
    assert here.find("rag.query", (1, 0)).id == "rag.query@1.10"
    assert here.find("rag.query@1.2").id == "rag.query@1.10"
    assert here.get("rag.query@1.2").id == "rag.query@1.2"
    assert refusal(here.find, "rag.query", (1, 11)).alt[-1] == "rag.query@2.0"
    assert here.names() == ["rag.query"]


def test_a_field_may_word_a_shared_definition_its_own_way() -> None:
    definitions = {
        "a": {"type": "string", "description": "shared"},
        "b": {"items": {"$ref": "_common.json#/$defs/a"}},
    }
    expanded = registry.expand(
        [{"$ref": "_common.json#/$defs/a", "description": "own"}, {"$ref": "_common.json#/$defs/b"}],
        definitions,
    )
    assert expanded == [
        {"type": "string", "description": "own"},
        {"items": {"type": "string", "description": "shared"}},
    ]


@pytest.mark.req("CONTRACT-1")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "cannot read .*rag.query@1.0.json"),
        ("[]", "cannot read .*rag.query@1.0.json"),
        ("{}", "is no contract: Object missing required field"),
        ('{"match": {"$ref": "elsewhere.json"}}', "no shared definition 'elsewhere.json'"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: str, expected: str) -> None:
    folder = folder_with(tmp_path, a="1.0")
    (folder / "rag.query@1.0.json").write_text(content)
    with pytest.raises(HearthNetError, match=expected) as caught:
        Contracts(folder).get("rag.query@1.0")
    assert caught.value.code == "internal_error"


@pytest.mark.req("CONTRACT-1")
def test_a_file_under_another_name_is_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, a="1.0")
    (folder / "rag.query@1.0.json").rename(folder / "rag.query@1.1.json")
    with pytest.raises(HearthNetError, match=r"holds the contract of rag\.query@1\.0"):
        Contracts(folder).get("rag.query@1.1")


@pytest.mark.req("CONTRACT-1")
def test_a_folder_without_contracts_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(HearthNetError, match="there are no contracts in"):
        Contracts(tmp_path)


@pytest.mark.req("CONTRACT-1")
def test_an_installed_package_brings_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "hearthnet"
    folder_with(tmp_path, a="1.7").rename(tmp_path / "aside")
    package.mkdir()
    shutil.copytree(tmp_path / "aside", package / "_contracts")
    monkeypatch.setattr(registry, "__file__", str(package / "contracts" / "loading.py"))
    assert [contract.id for contract in contracts.__wrapped__()] == ["rag.query@1.7"]
