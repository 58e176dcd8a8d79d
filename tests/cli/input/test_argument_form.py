"""What a person types into the fields of an edit."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.cli.input.argument_form import fields, read_pairs

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["category", "title"],
    "properties": {
        "category": {"enum": ["offer", "request"]},
        "title": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ttl_seconds": {"type": "integer"},
    },
}


def typed(name: str, text: str) -> dict[str, Any]:
    """The arguments after `text` was typed into the field `name`."""
    arguments: dict[str, Any] = {"category": "offer", "title": "Filter", "tags": ["a"]}
    next(field for field in fields(SCHEMA) if field.name == name).apply(text, arguments)
    return arguments


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("title", "  ", "Filter"),
        ("title", " Water filter ", "Water filter"),
        ("title", '"two\\nlines"', "two\nlines"),
        ("title", '"unfinished\\"', '"unfinished\\"'),
        ("category", "request", "request"),
        ("tags", "water, lend ,", ["water", "lend"]),
        ("tags", '["a,b"]', ["a,b"]),
        ("ttl_seconds", "3600", 3600),
    ],
)
def test_typed_text_becomes_a_value(name: str, text: str, value: object) -> None:
    assert typed(name, text)[name] == value


@pytest.mark.req("CLI-44")
def test_pairs_become_arguments_of_their_fields_types() -> None:
    schema = {
        "properties": {**SCHEMA["properties"], "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    }
    pairs = ["title=a=b", "ttl_seconds=3600", "tags=a,b", "note=5", "category=offer", "other=7", "title2="]
    assert read_pairs(pairs, schema) == {
        "title": "a=b",
        "ttl_seconds": 3600,
        "tags": ["a", "b"],
        "note": "5",
        "category": "offer",
        "other": "7",
        "title2": "",
    }


def test_a_dash_leaves_out_what_is_optional_only() -> None:
    assert "tags" not in typed("tags", "-")
    assert "ttl_seconds" not in typed("ttl_seconds", "-")
    with pytest.raises(ValueError, match="title cannot be left out"):
        typed("title", "-")


def test_what_is_no_value_is_said() -> None:
    with pytest.raises(ValueError, match="not a value that ttl_seconds can have"):
        typed("ttl_seconds", "a week")
    with pytest.raises(ValueError, match=r"ttl_seconds can have; type a whole number such as 12$"):
        typed("ttl_seconds", "1,5")


def test_hints_say_what_may_be_typed() -> None:
    assert [field.hint for field in fields(SCHEMA)] == [" (offer, request)", "", " (separated by commas)", ""]


@pytest.mark.req("CONTRACT-11")
def test_fields_of_boolean_schemas_take_any_value_or_none() -> None:
    schema = {"type": "object", "properties": {"any": True, "never": False}, "required": ["any"]}
    (field,) = fields(schema)
    arguments: dict[str, Any] = {}
    field.apply('{"a": 1}', arguments)
    assert (field.name, field.hint, field.required, arguments) == ("any", "", True, {"any": {"a": 1}})
