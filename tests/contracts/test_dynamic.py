"""Contracts that are told by who offers the capability: under their own names, and bound to what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.contracts import dynamic, registry
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import MOST_BYTES, checked, versioned
from hearthnet.contracts.match import MatchRule
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.contracts.registry import Contracts, contracts
from hearthnet.contracts.schema import SchemaCheck, compile_schema
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
    assert is_provider_defined(one.name)
    assert versioned(one).id == one.id
    assert one.version.endswith(".0")
    assert 1 <= one.major < 10**15
    text = {"type": "object", "properties": {"a": {"type": "string"}}}
    changes: dict[str, dict[str, Any]] = {
        "name": {"name": "experimental.mcp.notes.write"},
        "stability": {"stability": "beta"},
        "summary": {"summary": "Reads a note."},
        "trust_required": {"trust_required": "trusted"},
        "side_effects": {"side_effects": True, "idempotent": "no"},
        "idempotent": {"idempotent": "no"},
        "timeout_seconds": {"timeout_seconds": 77},
        "max_concurrent": {"max_concurrent": 77},
        "max_request_bytes": {"max_request_bytes": 77},
        "request_schema": {"request_schema": request(text)},
        "response_schema": {"response_schema": {"type": "object", "properties": {"output": text}}},
        "stream_schema": {"stream_schema": {"progress": text}},
        "offer_params": {"offer_params": text},
        "match": {"match": {"input.a": MatchRule(rule="in", offer="a")}},
        "errors": {"errors": ["not_found"]},
        "examples": {"examples": []},
        "effect_scope": {"effect_scope": "node"},
        "approval": {"approval": "any"},
    }
    assert set(changes) == set(Contract.__struct_fields__) - {"version"}
    versions = {name: versioned(contract(**changed)).version for name, changed in changes.items()}
    assert len({one.version, *versions.values()}) == 1 + len(changes), versions


@pytest.mark.req("MCPADD-2")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "market.list"}, "is not under experimental"),
        ({"name": "experimental.Not a name"}, "is not a capability"),
        ({"summary": "x" * MOST_BYTES}, "65536 at most"),
        ({"request_schema": request({"type": "no type"})}, "not a JSON Schema"),
        ({"request_schema": {"type": "object"}}, "no object of params and input"),
        ({"request_schema": request({"type": "object", "properties": []})}, "not a JSON Schema"),
        ({"stream_schema": {"progress": {"type": 7}}}, "not a JSON Schema"),
        ({"side_effects": True, "idempotent": "pure"}, "with side effects is not 'pure'"),
        ({"side_effects": False, "idempotent": "client_id"}, "without side effects is not 'client_id'"),
        ({"side_effects": True, "idempotent": "client_id"}, "has to require client_id"),
        ({"request_schema": request(True)}, "no object of params and input"),
        ({"response_schema": {}}, "the reply is no object with an output"),
        ({"response_schema": {"properties": {"outputs": True}}}, "the reply is no object with an output"),
        ({"stream_schema": {"done\ndata: {}\n\nevent: a": {}}}, "the frames are not"),
        ({"stream_schema": {"a": {}, "": {}}}, "the frames are not"),
        ({"stream_schema": {f"a{n}": {} for n in range(17)}}, "the frames are not up to 16"),
        ({"timeout_seconds": 0}, "are at least 1"),
        ({"max_concurrent": -1}, "are at least 1"),
    ],
    ids=range(18),
)
def test_what_cannot_be_told_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(HearthNetError, match=reason) as caught:
        versioned(contract(**changed))
    assert caught.value.code == "bad_request"


@pytest.mark.req("MCPADD-2")
def test_what_was_told_is_held_against_its_version() -> None:
    true = versioned(contract())
    told = msgspec.to_builtins(true)
    assert checked(told, true.id).id == true.id
    other = {**told, "side_effects": True, "idempotent": "no"}
    versioned(msgspec.convert(other, Contract))
    lies: list[tuple[Any, str, str]] = [
        (other, true.id, "is not the version of what it says"),
        ({**told, "version": "1.0"}, f"{true.name}@1.0", "is not the version of what it says"),
        (told, "experimental.mcp.notes.write@1.0", "is not the contract of"),
        ({"name": true.name}, true.id, "is no contract: Object missing required field"),
        ("nothing", true.id, "is no contract: Expected `object`"),
    ]
    for lie, capability, reason in lies:
        with pytest.raises(HearthNetError, match=reason) as caught:
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
    assert not any(is_provider_defined(one.name) for one in known)
    with pytest.raises(HearthNetError, match="is not the version"):
        known.learn(msgspec.structs.replace(first, version="1.0"))
    monkeypatch.setattr(registry, "MAX_FETCHED", 2)
    known.learn(first)
    known.learn(versioned(contract(summary="A third one.")))
    assert known.get(first.id) is first, "it was told again, and so later"
    with pytest.raises(HearthNetError, match="nobody has told what"):
        known.get(second.id)


@pytest.mark.req("ATTACK-31")
def test_what_is_told_is_compiled_once_until_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list[Any]()

    def counted(schema: Any, weight: int | None = None) -> SchemaCheck:
        compiled.append(schema)
        return compile_schema(schema, weight)

    told, known = versioned(contract()), Contracts(FOLDER)
    monkeypatch.setattr(dynamic, "compile_schema", counted)
    learned = checked(msgspec.to_builtins(told), told.id)
    known.learn(learned)
    known.learn(learned)
    assert len(compiled) == len(told.schemas())
    changed = msgspec.structs.replace(learned, summary="Another one.")
    with pytest.raises(HearthNetError, match="is not the version"):
        known.learn(changed)


@pytest.mark.req("ATTACK-31")
@pytest.mark.parametrize("limit", ["MAX_FETCHED", "MAX_FETCHED_BYTES"])
def test_who_supplies_ever_new_contracts_displaces_its_own(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    known = Contracts(FOLDER)
    own, others, flood = (
        [versioned(contract(summary=f"{whose} {number}")) for number in range(count)]
        for whose, count in (("Ours", 5), ("Another's", 2), ("A flood's", 60))
    )
    size = len(msgspec.json.encode(flood[0]))
    monkeypatch.setattr(registry, limit, 12 if limit == "MAX_FETCHED" else 12 * size)
    for node, some in (("", own), ("carol", others), ("mallory", flood)):
        for one in some:
            known.learn(one, node)
    assert all(known.has_learned(one.capability) for one in (*own, *others, flood[-1]))
    assert 2 <= sum(known.has_learned(one.capability) for one in flood) <= 6
