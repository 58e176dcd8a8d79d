"""Input schemas of foreign tools: whole, bounded, objects."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.contracts.schema import compile_schema
from hearthnet.contracts.supplied_schema import MAX_VALUES
from hearthnet.core.errors import HearthNetError
from hearthnet_mcp.schemas import input_schema, output_schema

pytestmark = pytest.mark.req("MCPADD-8")


def test_references_are_put_in_where_they_stand() -> None:
    raw = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"point": {"type": "object", "properties": {"x/y": {"$ref": "#/$defs/n~1umber"}}}},
        "$defs": {"n/umber": {"type": "number"}},
        "properties": {
            "at": {"$ref": "#/definitions/point", "description": "Where"},
            "all": {"type": "array", "items": {"anyOf": [{"$ref": "#/definitions/point"}, {"type": "null"}]}},
            "same": {"$ref": "#/properties/all/items/anyOf/1"},
        },
    }
    schema = input_schema(raw)
    point = {"type": "object", "properties": {"x/y": {"type": "number"}}}
    assert schema["properties"]["at"] == {**point, "description": "Where"}
    assert schema["properties"]["all"]["items"] == {"anyOf": [point, {"type": "null"}]}
    assert schema["properties"]["same"] == {"type": "null"}
    assert "$ref" not in str(schema)
    assert "$schema" not in schema
    compile_schema(schema)


@pytest.mark.parametrize(
    ("beside", "fits", "fits_not"),
    [
        ({"properties": {"b": {"type": "string"}}, "required": ["b"]}, {"a": 1, "b": "x"}, {"b": "x"}),
        ({"required": ["b"], "allOf": [{"required": ["c"]}]}, {"a": 1, "b": 1, "c": 1}, {"b": 1, "c": 1}),
        ({"type": "object", "title": "Mine"}, {"a": 1}, {"a": "x"}),
    ],
)
def test_a_reference_and_what_stands_beside_it_both_apply(
    beside: dict[str, Any], fits: Any, fits_not: Any
) -> None:
    base = {"type": "object", "title": "Base", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    raw = {"properties": {"of": {"$ref": "#/$defs/base", **beside}}, "$defs": {"base": base}}
    check = compile_schema(input_schema(raw))
    assert check.accepts({"of": fits})
    assert not check.accepts({"of": fits_not})


def test_a_reference_to_a_boolean_schema_keeps_what_stands_beside_it() -> None:
    raw = {
        "$ref": "#/properties/any",
        "type": "object",
        "properties": {"any": True, "word": {"$ref": "#/properties/any", "type": "string"}},
    }
    properties = {"any": True, "word": {"type": "string"}}
    assert input_schema(raw) == {"type": "object", "properties": properties}
    assert output_schema({"$ref": "#/$defs/none", "$defs": {"none": False}}) is None


def test_one_that_leads_back_into_itself_becomes_anything() -> None:
    raw = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}, "me": {"$ref": "#"}},
        "$defs": {
            "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree", "title": "Left"}}}
        },
    }
    schema = input_schema(raw)
    assert schema["properties"]["tree"]["properties"]["left"] == {"title": "Left"}
    check = compile_schema(schema)
    assert check.accepts({"tree": {"left": {"left": 7}}})


def test_fields_may_be_called_like_keywords() -> None:
    raw = {"type": "object", "properties": {"$ref": {"type": "string"}, "definitions": {"type": "integer"}}}
    assert input_schema(raw)["properties"] == raw["properties"]


def test_without_fields_any_argument_is_taken() -> None:
    anything = {"type": "object", "properties": {}, "additionalProperties": True}
    assert input_schema({}) == input_schema({"type": "object"}) == anything
    assert input_schema({"additionalProperties": False})["additionalProperties"] is False
    assert "additionalProperties" not in input_schema({"properties": {}})
    assert "additionalProperties" not in input_schema({"anyOf": [{"properties": {"a": {}}}]})
    assert input_schema(
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/any"}}, "$defs": {"any": True}}
    )["properties"] == {"a": True}


@pytest.mark.req("MCPADD-14")
def test_schema_of_results_is_whole_or_none() -> None:
    number = {"type": "number"}
    raw = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": number}}
    assert output_schema(raw) == {"type": "object", "properties": {"n": number}}
    assert output_schema({"type": "array"}) == {"type": "array"}
    assert output_schema({"items": {"type": "string", "pattern": "^a"}}) == {"items": {"type": "string"}}
    assert input_schema({"properties": {"a": {"pattern": "^a"}}})["properties"] == {"a": {"pattern": "^a"}}
    for wrong in (None, True, {"type": 7}, {"$ref": "#/$defs/none"}):
        assert output_schema(wrong) is None


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, "describes no object"),
        ({"type": "string"}, "describes no object"),
        ({"type": "object", "$ref": "#/$defs/none", "$defs": {"none": False}}, "describes no object"),
        ({"type": "object", "properties": []}, "are no object"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}}, "not in it"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "not in it"),
        ({"type": "object", "properties": {"a": {"$ref": "#/required/x"}}, "required": ["a"]}, "not in it"),
        ({"type": "object", "properties": {str(n): {} for n in range(MAX_VALUES)}}, "more than 4000 values"),
    ],
)
def test_what_is_no_schema_of_arguments_is_refused(raw: Any, reason: str) -> None:
    with pytest.raises(HearthNetError, match=reason):
        input_schema(raw)


def test_a_small_schema_that_grows_without_end_is_refused() -> None:
    defs: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 30):
        inner = {"$ref": f"#/$defs/d{level - 1}"}
        defs[f"d{level}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    deep: Any = {}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    for raw in (
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/d29"}}, "$defs": defs},
        {"type": "object", "properties": {"x": deep}},
    ):
        with pytest.raises(HearthNetError, match=r"more than (4000 values|64 levels)"):
            input_schema(raw)
