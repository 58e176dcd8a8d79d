"""Every file in contracts/: its shape, its schemas, its examples, and that it changes only on purpose."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from hearthnet.contracts.compare import compare
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import compile_schema
from hearthnet.core.canonical_json import content_hash
from hearthnet.core.errors import CODES, HearthNetError
from tests.contracts import golden

FOLDER = Path(__file__).resolve().parents[2] / "contracts"
ALL = list(contracts())
EXAMPLES = [(contract, index) for contract in ALL for index in range(len(contract.examples))]

UNBOUNDED = {
    "auth.token.issue@1.0",
    "community.device.decide@1.0",
    "community.join@1.0",
    "community.log.sync@1.0",
    "community.sync@1.0",
    "embed.text@1.0",
    "llm.chat@2.0",
    "llm.complete@1.0",
    "rag.ingest@1.0",
}
"""Contracts whose schema allows more than their limit in bytes."""
_parser: Any = vars(re)["_parser"]

MADE_BY = {
    "posts": "market.post@1.0",
    "hidings": "market.hide@1.0",
    "others_posts": "market.post@1.0",
    "reservations": "market.reserve@1.0",
    "invites": "community.invite@1.0",
    "tokens": "auth.token.issue@1.0",
}

every_contract = pytest.mark.parametrize("contract", ALL, ids=[contract.id for contract in ALL])
every_example = pytest.mark.parametrize(
    ("contract", "index"), EXAMPLES, ids=[f"{contract.id}-{index}" for contract, index in EXAMPLES]
)


def raw(contract: Contract) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{contract.id}.json").read_bytes())
    return content


def schemas(contract: Contract) -> list[dict[str, Any]]:
    parts = [contract.request_schema, contract.response_schema, contract.offer_params]
    return parts + list((contract.stream_schema or {}).values())


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in a schema, itself included."""
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from objects(inner)


@pytest.mark.req("CONTRACT-1")
@every_contract
def test_the_file_has_the_shape_of_a_contract(contract: Contract) -> None:
    shape = compile_schema(json.loads((FOLDER / "_meta.json").read_bytes()))
    assert shape.errors(raw(contract)) == []
    assert set(contract.errors) <= CODES


@pytest.mark.req("CONTRACT-1")
def test_a_file_without_examples_or_with_an_unknown_field_has_not() -> None:
    shape = compile_schema(json.loads((FOLDER / "_meta.json").read_bytes()))
    content = raw(ALL[0])
    assert [problem.path for problem in shape.errors({**content, "examples": []})][:1] == ["/examples"]
    assert [problem.rule for problem in shape.errors({**content, "notes": ""})] == ["additionalProperties"]


@pytest.mark.req("CONTRACT-1")
@every_contract
def test_every_schema_is_json_schema_2020_12_and_stands_alone(contract: Contract) -> None:
    for schema in schemas(contract):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert not [part for part in objects(schema) if "$ref" in part]


@pytest.mark.req("CONTRACT-1")
@every_contract
def test_a_model_finds_every_field_of_a_request_described(contract: Contract) -> None:
    fields = contract.tool_schema(None, frozenset())["properties"]
    assert [name for name, schema in fields.items() if "description" not in schema] == []


@pytest.mark.req("CONTRACT-1")
@every_contract
def test_match_names_fields_of_the_request_and_params_of_the_offer(contract: Contract) -> None:
    for path, rule in contract.match.items():
        section, name = path.split(".")
        assert name in contract.request_schema["properties"][section]["properties"]
        assert {rule.offer, rule.also or rule.offer} <= set(contract.offer_params["properties"])


@pytest.mark.req("CONTRACT-2")
@every_example
def test_the_example_is_accepted_or_refused_where_it_says(contract: Contract, index: int) -> None:
    example = contract.examples[index]
    if "path" not in example:
        contract.check_request(example["request"])
        return
    with pytest.raises(HearthNetError) as caught:
        contract.check_request(example["request"])
    assert (caught.value.code, caught.value.details["path"]) == (example["error"], example["path"])


@pytest.mark.req("CONTRACT-2")
@every_example
def test_what_the_example_takes_as_given_is_possible(contract: Contract, index: int) -> None:
    given = contract.examples[index].get("given", {})
    for kind, made_by in MADE_BY.items():
        for request in given.get(kind, []):
            contracts().get(made_by).check_request({"params": {}, "input": request})
    if "document" in given:
        assert content_hash(given["document"].encode()) in json.dumps(contract.examples[index])


@pytest.mark.req("CONTRACT-2")
@every_example
def test_a_second_validator_agrees(contract: Contract, index: int) -> None:
    example = contract.examples[index]
    other = jsonschema.Draft202012Validator(contract.request_schema)
    assert other.is_valid(example["request"]) is ("path" not in example)


@pytest.mark.req("CONTRACT-3")
def test_schema_hashes_are_those_looked_at() -> None:
    hint = "schemas changed; if that is wanted: python -m tests.contracts.golden"
    assert golden.hashes() == json.loads(golden.HASHES.read_text(encoding="utf-8")), hint


@pytest.mark.req("CONTRACT-3")
@pytest.mark.parametrize("old", golden.released(), ids=lambda contract: str(contract.id))
def test_a_released_contract_stays_and_its_minors_only_add(old: Contract) -> None:
    now = [contract for contract in ALL if contract.capability.serves(old.capability)]
    assert now, f"{old.id} was released and must stay as long as its major does"
    for contract in now:
        found = compare(old, contract)
        if contract.id == old.id:
            may = golden.allowed(golden.CHANGELOG.read_text(encoding="utf-8"))
            assert found.kind in may, (
                f"{old.id} changed ({found.kind}): {found.reasons}; make it a new version"
            )
        else:
            assert found.kind != "breaking", f"{contract.id} breaks callers of {old.id}: {found.reasons}"


@pytest.mark.req("CONTRACT-3")
def test_what_was_released_changes_with_a_release_alone() -> None:
    draft, done = "# Changelog\n\n## 0.2.0, not released yet\n", "\n## 0.1.0, 2026-12-01\n\n- ...\n"
    first = draft.replace("0.2.0", "0.1.0")
    assert golden.allowed(first) == {"equal", "additive"}
    assert golden.allowed(draft + done) == golden.allowed(done) == {"equal"}
    assert "not released yet" in golden.release(first)
    assert "not released yet" in golden.release(draft + done)
    assert golden.release(done) == ""


def largest(schema: Any) -> float:
    """The largest JSON text in UTF-8 that a schema allows, without unknown fields; infinite for no bound."""
    if not isinstance(schema, dict) or not schema:
        return math.inf
    if "enum" in schema or "const" in schema:
        values: list[Any] = schema["enum"] if "enum" in schema else [schema["const"]]
        return max(len(json.dumps(value)) for value in values)
    if "type" not in schema:
        alternatives: list[Any] = schema.get("anyOf") or schema.get("oneOf") or [{}]
        return max(map(largest, alternatives))
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return max(_largest_of(kind, schema) for kind in types)


def _largest_of(kind: str, schema: dict[str, Any]) -> float:
    if kind == "string":
        pattern = schema.get("pattern", "")
        closed = pattern.startswith("^") and pattern.endswith("$") and "[^" not in pattern
        width = float(_parser.parse(pattern).getwidth()[1]) if closed else math.inf
        width = math.inf if width >= _parser.MAXREPEAT else width
        return 2.0 + min(4 * float(schema.get("maxLength", math.inf)), width)
    if kind == "array":
        return 2 + float(schema.get("maxItems", math.inf)) * (1 + largest(schema.get("items")))
    if kind == "object":
        named = sum(len(name) + 4 + largest(inner) for name, inner in schema.get("properties", {}).items())
        others = schema.get("additionalProperties")
        return (
            2
            + named
            + (float(schema.get("maxProperties", math.inf)) * (70 + largest(others)) if others else 0)
        )
    return 24


@pytest.mark.req("CONTRACT-13")
@every_contract
def test_every_request_that_the_schema_bounds_fits_the_limit(contract: Contract) -> None:
    """What has no bound, or one beyond what a message holds, states how much it takes."""
    most = largest(contract.request_schema)
    if contract.id in UNBOUNDED:
        assert most > contract.request_limit
    else:
        assert most <= contract.request_limit <= 1024 * 1024


@pytest.mark.req("CONTRACT-13")
def test_a_contract_takes_what_it_says_and_not_a_byte_more() -> None:
    contract = contracts().get("market.post@1.0")
    assert contract.request_limit == 65_536
    contract.check_request_size(65_536)
    with pytest.raises(HearthNetError) as caught:
        contract.check_request_size(65_537)
    assert (caught.value.code, caught.value.details) == ("payload_too_large", {"limit": 65_536})
    assert "max_request_bytes" not in msgspec.to_builtins(contract)


@pytest.mark.req("CONTRACT-13")
@pytest.mark.parametrize(
    ("name", "limit"),
    [("experimental.mcp.house.lamp", 1_048_576), ("hello.greet", 8_388_608), ("rag.query", 65_536)],
)
def test_a_contract_that_states_no_limit_has_one(name: str, limit: int) -> None:
    assert msgspec.structs.replace(contracts().get("rag.query@1.0"), name=name).request_limit == limit
