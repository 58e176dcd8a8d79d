"""Contracts that are told by who offers the capability: under their own names, and bound to what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.contracts import registry
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import MOST_BYTES, checked, is_told, versioned
from hearthnet.contracts.registry import Contracts, contracts
from hearthnet.core.errors import HearthNetError

FOLDER = Path(__file__).resolve().parents[2] / "contracts"
LIST = contracts().get("market.list@1.0")


def contract(name: str = "experimental.mcp.notes.read", **changed: Any) -> Contract:
    """A contract as a service makes one."""
    fields = {"name": name, "version": "0.0", "stability": "experimental", **changed}
    return msgspec.structs.replace(LIST, **fields)


def request(schema: Any) -> dict[str, Any]:
    """A request schema whose input is `schema`."""
    properties = {"params": {"type": "object", "properties": {}}, "input": schema}
    return {"type": "object", "required": ["params", "input"], "properties": properties}


@pytest.mark.req("MCPADD-2")
def test_the_version_follows_from_all_that_a_contract_says() -> None:
    one = versioned(contract())
    assert is_told(one.name)
    assert versioned(one).id == one.id
    assert one.version.endswith(".0")
    assert 1 <= one.major < 10**15
    different = {
        versioned(contract(**changed)).id
        for changed in (
            {"summary": "Reads a note."},
            {"side_effects": True, "idempotent": "no"},
            {"request_schema": request({"type": "object", "properties": {"a": {"type": "string"}}})},
            {"timeout_seconds": 77},
        )
    }
    assert len(different | {one.id}) == 5


@pytest.mark.req("MCPADD-2")
@pytest.mark.parametrize(
    "changed",
    [
        {"name": "market.list"},
        {"name": "experimental.Not a name"},
        {"summary": "x" * MOST_BYTES},
        {"request_schema": request({"type": "no type"})},
        {"request_schema": {"type": "object"}},
        {"request_schema": request({"type": "object", "properties": []})},
        {"stream_schema": {"progress": {"type": 7}}},
        {"side_effects": True, "idempotent": "pure"},
        {"side_effects": False, "idempotent": "client_id"},
        {"side_effects": True, "idempotent": "client_id"},  # and no input of that name
        {"request_schema": request(True)},
        {"timeout_seconds": 0},
        {"max_concurrent": -1},
    ],
)
def test_what_cannot_be_told_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(HearthNetError) as caught:
        versioned(contract(**changed))
    assert caught.value.code == "bad_request"


@pytest.mark.req("MCPADD-2")
def test_what_was_told_is_held_against_its_version() -> None:
    true = versioned(contract())
    told = msgspec.to_builtins(true)
    assert checked(told, true.id).id == true.id
    lies: list[tuple[Any, str]] = [
        ({**told, "side_effects": not true.side_effects}, true.id),
        (told, "experimental.mcp.notes.write@1.0"),
        ({"name": true.name}, true.id),
        ("nothing", true.id),
    ]
    for lie, capability in lies:
        with pytest.raises(HearthNetError) as caught:
            checked(lie, capability)
        assert caught.value.code == "bad_request"


@pytest.mark.req("MCPADD-2")
def test_what_was_learned_is_found_and_is_no_installed_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Contracts(FOLDER)
    first, second = versioned(contract()), versioned(contract(summary="Another one."))
    for identifier in (first.id, first.name):
        with pytest.raises(HearthNetError) as caught:
            known.get(first.id) if "@" in identifier else known.find(identifier)
        assert caught.value.code == "not_found"
    known.learn(first)
    known.learn(second)
    assert known.get(first.id) is first
    assert known.find(first.name) is second, "the one that was told last"
    assert known.find(first.name, first.capability[1:]) is first
    assert first.name not in known.names()
    assert not any(is_told(one.name) for one in known)
    with pytest.raises(HearthNetError, match="is not the version"):
        known.learn(msgspec.structs.replace(first, version="1.0"))
    monkeypatch.setattr(registry, "MOST_TOLD", 2)
    known.learn(first)
    known.learn(versioned(contract(summary="A third one.")))
    assert known.get(first.id) is first, "it was told again, and so later"
    with pytest.raises(HearthNetError):
        known.get(second.id)
