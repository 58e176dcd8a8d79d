"""Tools whose schemas have `true` or `false` for a subschema, on their way to every kind of model."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings

from hearthnet_llm.builtin.forced_call import WIDEST, ForcedCall
from hearthnet_llm.builtin.grammar import bounded
from hearthnet_llm.interface.request import Message, Tool
from hearthnet_llm.text_tools import prompt
from hearthnet_llm.vendors.gemini import dialect as dialect
from hearthnet_llm.vendors.wire import Target
from tests.helpers.schemas import OBJECTS
from tests.services.llm.asking import changed, sent

pytestmark = pytest.mark.req("CONTRACT-11")
ASKED = [Message(role="user", content="Where do otters live?")]
WIRES = ("openai", "anthropic", "gemini", "bedrock-converse", "ollama")


def tool(schema: dict[str, Any]) -> Tool:
    return Tool("odd", "A tool.", schema)


def may_be_there(schema: dict[str, Any]) -> set[str]:
    """The names of the properties whose schema is not `false`."""
    return {name for name, inner in schema.get("properties", {}).items() if inner is not False}


@given(OBJECTS)
def test_builtin_grammar_has_every_field_that_may_be_there(schema: dict[str, Any]) -> None:
    jsonschema_rs.validator_for(bounded(schema, WIDEST))
    assert ForcedCall(tool(schema), ASKED).ask().grammar
    plain: dict[str, Any] = {
        name: schema[name] for name in ("type", "properties", "required") if name in schema
    }
    required = set(schema.get("required") or may_be_there(schema))
    assert set(bounded(plain, WIDEST).get("properties", {})) == may_be_there(schema) & required


@settings(max_examples=25)
@given(OBJECTS)
def test_every_wire_carries_every_boolean_subschema(schema: dict[str, Any]) -> None:
    for wire in WIRES:
        body = sent(wire, Target("some-model", ""), changed(tools=[tool(schema)])).body
        assert json.dumps(schema) in json.dumps(body), wire
    told = prompt.text_tool_request(changed(tools=[tool(schema)])).messages[0].text
    (line,) = (line for line in told.splitlines() if line.startswith('{"name":"odd"'))
    assert json.loads(line)["parameters"] == schema


@given(OBJECTS)
def test_gemini_dialect_has_no_boolean_subschema_and_all_that_may_be_there(schema: dict[str, Any]) -> None:
    def look(place: Any) -> None:
        assert isinstance(place, dict)
        for name in ("properties", "$defs"):
            for inner in place.get(name, {}).values():
                look(inner)
        for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for inner in place.get(name, []):
                look(inner)
        if "items" in place:
            look(place["items"])

    written = dialect.write_schema(schema, {})
    look(written)
    assert set(written.get("properties", {})) == may_be_there(schema)


def test_builtin_fields_leave_out_what_may_not_be_there() -> None:
    schema = {"type": "object", "properties": {"old": False, "query": True, "list": {"items": False}}}
    made = bounded({**schema, "required": ["query", "list"]}, WIDEST)["properties"]
    assert made["query"]["type"] == "string"
    assert made["list"]["maxItems"] == 0
    attempts = ForcedCall(tool({**schema, "required": ["query"]}), ASKED)
    assert "otters" in json.dumps(attempts.ask().grammar)
    assert attempts.check('{"query":"otters"}', ended=True) == {"query": "otters"}
    either = {"anyOf": [False, {"type": "null"}]}
    assert bounded({"properties": {"a": either}}, WIDEST)["properties"]["a"] == {"anyOf": [{"type": "null"}]}
    merged = {"type": "array", "items": True, "allOf": [{"items": {"type": "null"}}]}
    assert bounded({"properties": {"a": merged}}, WIDEST)["properties"]["a"]["items"] == {"type": "null"}
