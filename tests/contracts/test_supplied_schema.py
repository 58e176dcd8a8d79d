"""Schemas from outside: bounded before they are compiled; a copy is never stricter than its original."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import check_usable, checked, versioned
from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import compile_schema
from hearthnet.contracts.supplied_schema import (
    MAX_DEPTH,
    MAX_PATTERN_CHARACTERS,
    MAX_PATTERNS,
    MAX_VALUES,
    Bounds,
    self_contained,
)
from hearthnet.core.errors import HearthNetError
from tests.contracts.test_boolean_schemas import told
from tests.helpers.schemas import OBJECTS, VALUES

pytestmark = pytest.mark.req("CONTRACT-12")


def nested(levels: int) -> dict[str, Any]:
    """A schema with so many levels of schemas in it."""
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def patterns(number: int, *, characters: int = 4) -> dict[str, Any]:
    """A schema with so many patterns."""
    return {"properties": {f"p{n}": {"pattern": f"{n:x>{characters}}"} for n in range(number)}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#/$defs/a"}, "keyword '\\$ref'"),
        ({"items": {"$dynamicRef": "#a"}}, "keyword '\\$dynamicRef'"),
        ({"unevaluatedProperties": False}, "keyword 'unevaluatedProperties'"),
        ({"x-mine": 1}, "keyword 'x-mine'"),
        ({"anyOf": [{"properties": {"a": {"dependencies": {}}}}]}, "keyword 'dependencies'"),
        ({"properties": {"a": 7}}, "an object, true or false"),
        ({"enum": ["a", ["a"]]}, "enum holds texts"),
        ({"const": {"a": 1}}, "const holds texts"),
        ({"multipleOf": 1e-300}, "multipleOf is an integer"),
        ({"multipleOf": 0.01}, "multipleOf is an integer"),
        ({"multipleOf": 10**300}, "multipleOf is an integer"),
        (patterns(MAX_PATTERNS + 1), f"more than {MAX_PATTERNS} patterns"),
        ({"patternProperties": dict.fromkeys(map(str, range(MAX_PATTERNS + 1)), True)}, "patterns"),
        (patterns(1, characters=MAX_PATTERN_CHARACTERS + 1), "pattern of more than 256 characters"),
        ({"enum": [*range(MAX_VALUES)]}, f"more than {MAX_VALUES} values"),
        ({"default": [*range(MAX_VALUES)]}, f"more than {MAX_VALUES} values"),
        (nested(MAX_DEPTH + 1), f"more than {MAX_DEPTH} levels"),
        ({"examples": [[[nested(MAX_DEPTH)]]]}, f"more than {MAX_DEPTH} levels"),
    ],
)
def test_a_schema_beyond_the_bounds_is_refused_in_whatever_part_of_a_contract(
    schema: dict[str, Any], reason: str
) -> None:
    with pytest.raises(HearthNetError, match=reason) as refused:
        Bounds().check(schema)
    assert refused.value.code == "bad_request"
    for part in ("request", "response_schema", "offer_params", "stream_schema"):
        with pytest.raises(HearthNetError, match=reason):
            versioned(_with(part, schema))


def _with(part: str, schema: dict[str, Any]) -> Contract:
    """A contract with this schema in one of its parts."""
    if part == "request":
        return told({"type": "object", "properties": {"a": schema}})
    value: Any = schema
    if part == "response_schema":
        value = {"properties": {"output": schema}}
    elif part == "stream_schema":
        value = {"frame": schema}
    return msgspec.structs.replace(told({"type": "object"}), **{part: value})


def test_the_schemas_of_a_contract_share_its_bounds() -> None:
    half = {"enum": [*range(MAX_VALUES // 2)]}
    versioned(_with("response_schema", half))
    twice = msgspec.structs.replace(_with("response_schema", half), offer_params=half)
    with pytest.raises(HearthNetError, match=f"more than {MAX_VALUES} values"):
        versioned(twice)


def test_what_this_project_installs_is_within_the_bounds() -> None:
    for contract in contracts():
        bounds = Bounds()
        for schema in contract.schemas():
            bounds.check(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"anyOf": [*({"type": "string"},) * 1_900, True]}}, [*range(200_000)]),
        ({"items": {"anyOf": [{"enum": [f"v{n}" for n in range(3_900)]}, True]}}, ["x"] * 200_000),
        ({"items": {"multipleOf": 999_999}}, [10**15 - 1] * 200_000),
        (
            {"items": {"anyOf": [*({"pattern": f"[ab]*a[ab]{{{n + 80}}}c"} for n in range(12)), True]}},
            ["ab" * 150_000],
        ),
        ({"propertyNames": {"pattern": "[ab]*a[ab]{90}c"}}, {"ab" * 4_000_000: 1}),
        ({"anyOf": [{"items": {"anyOf": [{"type": "string"}] * 200}}]}, [*range(1_000)]),
        ({"items": {"anyOf": [{"required": ["a"]}] * 900}}, [{}] * 200),
        (nested(MAX_DEPTH - 8), [*range(200_000)]),
        (patterns(MAX_PATTERNS, characters=200), {f"p{n}": "x" * 30_000 for n in range(32)}),
        (patterns(1), [{"p0": "x"}] * 5_000),
    ],
)
def test_compiling_and_checking_take_bounded_time(schema: dict[str, Any], value: Any) -> None:
    contract = _with("response_schema", schema)
    began = time.process_time()
    supplied = versioned(contract)
    compiled = time.process_time()
    with contextlib.suppress(HearthNetError):
        supplied.check_reply({"output": value, "meta": {}})
    ended = time.process_time()
    assert compiled - began < 0.25
    assert ended - compiled < 0.5


def test_a_value_with_more_parts_than_its_schema_allows_is_refused_unchecked() -> None:
    check = compile_schema({"items": {"type": "integer"}}, weight=4_000)
    assert check.accepts([1] * 400)
    assert not check.accepts([1] * 600)
    (problem,) = check.errors([1] * 600)
    assert (problem.rule, problem.message) == ("size", "has more parts than may be checked with its schema")
    few, many = [*range(1), "a"], ["a"] * 100
    assert compile_schema({"items": {"type": "integer"}}, weight=500).errors(few)[0].path == "/1"
    either = {"items": {"anyOf": [{"type": "integer"}, {"const": "b"}]}}
    assert [one.rule for one in compile_schema(either, weight=500).errors(many)] == ["schema"]
    (first,) = compile_schema({"items": {"type": "integer"}}, weight=500).errors(many)
    assert (first.path, first.rule) == ("/0", "type"), "without alternatives one fault costs little"
    assert compile_schema({"items": {"type": "string"}}, weight=500).errors(many) == []
    assert compile_schema({"items": {"type": "integer"}}).accepts([1] * 100_000)


@given(OBJECTS, st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
def test_what_a_schema_accepts_its_copy_accepts(schema: Any, value: dict[str, Any]) -> None:
    copy = self_contained(schema)
    Bounds().check(copy)
    if compile_schema(schema).accepts(value):
        assert compile_schema(copy).accepts(value)


@pytest.mark.parametrize(
    ("schema", "copy"),
    [
        ({"x-mine": 1, "$comment": "a", "type": "string"}, {"type": "string"}),
        ({"pattern": "^(?=a)", "type": "string"}, {"type": "string"}),
        ({"pattern": "a" * 300}, {}),
        ({"pattern": "^a$"}, {"pattern": "^a$"}),
        ({"multipleOf": 0.1}, {}),
        ({"multipleOf": 10}, {"multipleOf": 10}),
        ({"enum": [[1]]}, {}),
        ({"patternProperties": {"(?=a)": True}, "additionalProperties": False}, {}),
        ({"patternProperties": {"^a": True}, "additionalProperties": False},) * 2,
        ({"not": {"multipleOf": 0.1}}, {}),
        ({"not": {"multipleOf": 2}}, {"not": {"multipleOf": 2}}),
        ({"if": {"pattern": "(?=a)"}, "then": False}, {"then": False}),
        ({"oneOf": [{"const": [1]}, {"type": "string"}]}, {}),
        ({"anyOf": [{"const": [1]}, {"type": "string"}]}, {"anyOf": [{}, {"type": "string"}]}),
        ({"not": {"$ref": "#"}}, {}),
        ({"contains": {"pattern": "(?=x)"}, "maxContains": 1, "type": "array"}, {"type": "array"}),
        ({"not": {"unevaluatedProperties": False}}, {}),
        ({"not": {"x-mine": 1, "type": "null"}}, {"not": {"type": "null"}}),
        (
            {"$ref": "#/$defs/a", "then": False, "$defs": {"a": {"if": {"type": "null"}}}},
            {"then": False, "allOf": [{"if": {"type": "null"}}]},
        ),
        ({"pattern": "(a{1,100}){1,100}"}, {}),
    ],
)
def test_constraints_beyond_the_bounds_are_left_out(schema: dict[str, Any], copy: dict[str, Any]) -> None:
    assert self_contained(schema) == copy


def test_a_copy_has_so_many_patterns() -> None:
    copied = self_contained(patterns(MAX_PATTERNS), max_patterns=5)["properties"].values()
    assert [*copied] == [{"pattern": f"{n:x>4}"} for n in range(5)] + [{}] * (MAX_PATTERNS - 5)


def test_a_contract_that_is_larger_than_any_is_refused_before_it_is_read() -> None:
    raw = msgspec.to_builtins(versioned(told({"type": "object"})))
    raw["request_schema"]["default"] = [0] * 200_000
    began = time.process_time()
    with pytest.raises(HearthNetError, match="larger than any contract"):
        checked(raw, f"{raw['name']}@{raw['version']}")
    assert time.process_time() - began < 0.1


def test_contracts_of_the_own_home_are_not_bounded() -> None:
    wide = {"type": "object", "properties": {"output": {"enum": [*range(MAX_VALUES)]}}}
    own = msgspec.structs.replace(
        told({"type": "object"}), name="hello.greet", version="1.0", response_schema=wide
    )
    check_usable(own)
    own.check_reply({"output": 1, "text": "x" * 1_000_000})


def test_a_supplied_contract_beyond_the_bounds_is_not_taken() -> None:

    good = versioned(told({"type": "object"}))
    raw = msgspec.to_builtins(good)
    raw["response_schema"] = {"$ref": "#"}
    with pytest.raises(HearthNetError, match="keyword"):
        checked(raw, good.id)
    assert checked(msgspec.to_builtins(good), good.id).id == good.id


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("other.json", "the schema refers to 'other.json', which is not in it"),
        ("other.json#/$defs/a", "the schema refers to"),
        ("#a", "the schema refers to '#a'"),
        ("#/$defs/b", "the schema refers to"),
        ("#/allOf/1", "the schema refers to"),
        ("#/allOf/a", "the schema refers to"),
        ("#/title/a", "the schema refers to"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(reference: str, message: str) -> None:
    schema = {"title": "a", "allOf": [{"type": "string"}], "$defs": {"a": True}, "not": {"$ref": reference}}
    with pytest.raises(HearthNetError) as refused:
        self_contained(schema)
    assert refused.value.code == "bad_request"
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("target", "own", "copy"),
    [
        (True, {}, True),
        (True, {"type": "string"}, {"type": "string"}),
        (False, {"type": "string"}, False),
        ({"type": "string"}, {"title": "T"}, {"type": "string", "title": "T"}),
        ({"title": "T"}, {"type": "string"}, {"type": "string", "title": "T"}),
        ({"minLength": 1}, {"allOf": [{"maxLength": 2}]}, {"allOf": [{"minLength": 1}, {"maxLength": 2}]}),
    ],
)
def test_a_reference_is_replaced_by_its_target(target: Any, own: dict[str, Any], copy: Any) -> None:
    schema = {"$defs": {"a/b~c": target}, "properties": {"x": {"$ref": "#/$defs/a~1b~0c", **own}}}
    assert self_contained(schema) == {"properties": {"x": copy}}


def test_what_is_to_be_copied_is_bounded() -> None:
    assert self_contained({"enum": [1, 2]}, max_values=4) == {"enum": [1, 2]}
    for schema, reason in (({"enum": [1, 2, 3]}, "more than 4 values"), (nested(MAX_DEPTH + 1), "values")):
        with pytest.raises(HearthNetError, match=reason) as refused:
            self_contained(schema, max_values=4)
        assert refused.value.code == "bad_request"
    with pytest.raises(HearthNetError, match=f"more than {MAX_DEPTH} levels"):
        self_contained(nested(MAX_DEPTH + 1))
