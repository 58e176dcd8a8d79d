"""JSON Schema's `true` and `false`, which may stand wherever a schema may (2020-12, 4.3.2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hearthnet.contracts.compare import compare
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import checked, versioned
from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import compile_schema
from hearthnet.contracts.supplied_schema import self_contained
from hearthnet.contracts.tool_schema import Flat
from hearthnet.core.errors import HearthNetError
from tests.helpers.schemas import NAMES, OBJECTS, VALUES

pytestmark = pytest.mark.req("CONTRACT-11")
LIST = contracts().get("market.list@1.0")


def told(schema: Any) -> Contract:
    """A contract whose input has `schema`, with all patterns that it may have."""
    properties = {"params": {"type": "object", "properties": {}}, "input": schema}
    request = {"type": "object", "required": ["params", "input"], "properties": properties}
    answer = {"type": "object", "properties": {"output": {"type": "object"}}}
    return msgspec.structs.replace(
        LIST,
        name="experimental.mcp.odd.tool",
        version="0.0",
        match={},
        request_schema=request,
        response_schema=answer,
    )


def accepts(contract: Contract, body: dict[str, Any]) -> bool:
    """Whether `body` is a request; any other error than that it is none is raised."""
    try:
        contract.check_request(body)
    except HearthNetError as error:
        if error.code != "bad_request":
            raise
        return False
    return True


@example({"properties": {"a": True}, "required": ["a"], "oneOf": [{"required": ["a"]}]}, {})
@given(OBJECTS, st.dictionaries(NAMES, VALUES, max_size=3))
def test_every_boolean_subschema_serves_a_call(schema: Any, arguments: dict[str, Any]) -> None:
    contract = versioned(told(self_contained(schema)))
    assert checked(msgspec.to_builtins(contract), contract.id).id == contract.id
    flat = contract.tool_schema(None, frozenset())
    compile_schema(flat)
    body = {"params": {}, "input": arguments}
    if accepts(contract, body):
        assert contract.with_defaults(body)["input"].keys() >= arguments.keys()
        if arguments.keys() <= flat["properties"].keys():
            assert contract.split_arguments(arguments, None) == body


@given(OBJECTS, OBJECTS)
def test_every_boolean_subschema_can_be_compared(old: Any, new: Any) -> None:
    assert compare(told(old), told(old)).kind == "equal"
    found = compare(told(old), told(new))
    assert (found.kind == "equal") is (old == new)
    assert (found.kind == "breaking") is bool(found.reasons)


def test_true_as_a_property_is_a_field_of_any_kind() -> None:
    contract = versioned(told({"type": "object", "properties": {"value": True}, "required": ["value"]}))
    assert contract.tool_schema(None, frozenset())["properties"] == {"value": {}}
    values: list[Any] = [7, "x", None, [{}]]
    for value in values:
        contract.check_request({"params": {}, "input": {"value": value}})
    with pytest.raises(HearthNetError, match='/input: "value" is a required property'):
        contract.check_request({"params": {}, "input": {}})


def test_false_as_a_property_is_no_field() -> None:
    contract = versioned(told({"type": "object", "properties": {"old": False, "new": True}}))
    assert list(contract.tool_schema(None, frozenset())["properties"]) == ["new"]
    with pytest.raises(HearthNetError, match="has no field 'old'"):
        contract.split_arguments({"old": 1}, None)
    with pytest.raises(HearthNetError, match="/input/old"):
        contract.check_request({"params": {}, "input": {"old": 1}})


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (True, {"type": "string"}, "breaking"),
        (True, False, "breaking"),
        ({"type": "string"}, True, "additive"),
        (False, {"type": "string"}, "additive"),
        (True, {}, "additive"),
    ],
)
def test_compare_takes_booleans_for_what_they_allow(old: Any, new: Any, kind: str) -> None:
    schemas = [{"type": "object", "properties": {"value": schema}} for schema in (old, new)]
    assert compare(told(schemas[0]), told(schemas[1])).kind == kind


def test_flat_offers_fields_of_combined_schemas() -> None:
    text, number = {"type": "string"}, {"type": "number"}
    schema = {
        "type": "object",
        "properties": {"a": text},
        "required": ["a"],
        "allOf": [{"properties": {"b": text}, "required": ["b"]}, True],
        "anyOf": [
            {"properties": {"c": text, "a": number}},
            {"properties": {"c": number}},
            {"required": ["d"]},
        ],
        "if": {"properties": {"a": {"const": "x"}}},
        "then": {"properties": {"e": text, "f": False}},
        "else": {"properties": {"e": text}},
        "dependentSchemas": {"a": {"properties": {"g": number}}},
    }
    contract = versioned(told(schema))
    flat = contract.tool_schema(None, frozenset())
    either = {"anyOf": [text, number]}
    assert flat["properties"] == {"a": text, "b": text, "c": either, "d": {}, "e": text, "g": number}
    assert flat["required"] == ["a", "b"]
    assert flat["additionalProperties"] is False
    arguments = {"a": "x", "b": "y", "c": 1, "g": 2}
    body = contract.split_arguments(arguments, None)
    contract.check_request(body)
    with pytest.raises(HearthNetError, match='"b" is a required property'):
        contract.check_request({"params": {}, "input": {"a": "x"}})


def test_flat_leaves_free_arguments_open() -> None:
    text = {"type": "string"}
    for others, shown in (
        ({"additionalProperties": True}, {"additionalProperties": True}),
        ({"additionalProperties": text}, {"additionalProperties": text}),
        ({"patternProperties": {"^x-": text}}, {"patternProperties": {"^x-": text}}),
    ):
        contract = versioned(told({"type": "object", "properties": {"a": text}, **others}))
        flat = contract.tool_schema(None, frozenset())
        assert flat == {"type": "object", "properties": {"a": text}, "required": [], **shown}
        body = contract.split_arguments({"a": "1", "x-b": "2"}, None)
        assert body == {"params": {}, "input": {"a": "1", "x-b": "2"}}
        contract.check_request(body)
    closed = versioned(told({"type": "object", "properties": {"a": text}}))
    assert closed.tool_schema(None, frozenset())["additionalProperties"] is False


def test_flat_closes_no_object_of_combined_schemas() -> None:
    combined = {
        "type": "object",
        "properties": {"a": {}},
        "anyOf": [{"type": "object", "properties": {"b": {}}}],
    }
    request = {"properties": {"params": {}, "input": {"properties": {"at": combined}}}}
    field = Flat("x.y@1.0", request).tool_schema(())["properties"]["at"]
    assert field == combined
