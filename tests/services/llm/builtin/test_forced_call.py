"""The attempts at a call, and the grammars they are made with: no engine needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.errors import HearthNetError
from hearthnet_llm.builtin import grammar
from hearthnet_llm.builtin.demonstrations import DEMONSTRATIONS, for_tool
from hearthnet_llm.builtin.forced_call import WIDEST, ForcedCall
from hearthnet_llm.builtin.grammar import KeyWords, SchemaBounds, bounded, fields
from hearthnet_llm.interface.request import Message, Tool
from tests.services.llm.tools import SCHEMAS

pytestmark = pytest.mark.req("LLM-1")
SMALL = SchemaBounds(text=10, items=2)


def calling(name: str = "search", said: str = "Where do otters live?") -> ForcedCall:
    """The attempts at a call of one of the test's tools."""
    return ForcedCall(Tool(name, "A tool.", SCHEMAS[name]), [Message(role="user", content=said)])


def test_a_complete_fitting_answer_is_taken() -> None:
    attempts = calling()
    assert attempts.ask().temperature == 0
    assert attempts.check('{"query":"otters"}', ended=True) == {"query": "otters"}


def test_an_answer_cut_off_is_asked_for_in_fewer_words() -> None:
    attempts = calling()
    first = attempts.ask()
    assert attempts.check('{"query":"where do', ended=False) is None
    second = attempts.ask()
    assert second.attempt == 1
    assert second.grammar != first.grammar
    assert second.temperature == 0
    while not attempts.over:
        attempts.check("{", ended=False)
    assert '"maxLength": 1' in attempts.ask().grammar


def test_an_answer_that_does_not_fit_is_drawn_again() -> None:
    attempts = calling()
    assert attempts.check('{"query":""}', ended=True) is None
    assert "/query" in attempts.reason
    assert attempts.ask().temperature > 0


def test_an_answer_that_is_no_json_means_that_the_grammar_was_not_held() -> None:
    attempts = calling("book")
    assert "^[A-F]$" in attempts.ask().grammar
    assert attempts.check("Hello there!", ended=True) is None
    assert attempts.check("[1]", ended=True) is None
    assert "^[A-F]$" not in attempts.ask().grammar


def test_without_demonstrations_the_form_is_described() -> None:
    system, user = calling("book").ask().turns
    assert "- seats" in system["content"]
    assert "The tool" not in user["content"]


def test_demonstrations_are_for_any_tool_with_their_fields() -> None:
    assert for_tool(SCHEMAS["search"]) is DEMONSTRATIONS[0]
    assert for_tool(SCHEMAS["post"]) is DEMONSTRATIONS[1]
    assert for_tool({**SCHEMAS["search"], "required": ["query", "k"]}) is None
    assert for_tool({"properties": {"query": {"type": "integer"}}}) is None
    assert for_tool({}) is None


@pytest.mark.parametrize("shown", DEMONSTRATIONS, ids=lambda shown: "-".join(shown.fields))
def test_each_demonstration_has_its_fields_and_keeps_to_its_words(shown: Any) -> None:
    for example in shown.examples:
        assert tuple(example.arguments) == shown.fields
        for name, style in shown.key_words.items():
            said = grammar.words_of(example.said)
            words = iter([word.lower() for word in said] if style.lower else said)
            assert all(word in words for word in example.arguments[name].split())


def test_key_words_may_end_only_near_the_end_of_the_question() -> None:
    schema = bounded(SCHEMAS["search"], WIDEST)
    rules = grammar.of_call(schema, "Is it Müller's well?", {"query": KeyWords(skip=1)})
    lines = dict(line.split(": ", 1) for line in rules.splitlines()[1:])
    assert lines["f0s"] == '"is" f0w0 | "it" f0w1'
    assert lines["f0w0"] == '" it" f0w1 | " müller\'s" f0w2'
    assert lines["f0w1"] == '" müller\'s" f0w2 | " well" f0w3'
    assert lines["f0w2"] == '" well" f0w3 | ""'
    assert lines["f0w3"] == '""'


def test_other_fields_beside_key_words_keep_their_schema() -> None:
    schema = bounded({**SCHEMAS["search"], "required": ["query", "k"]}, WIDEST)
    rules = grammar.of_call(schema, "Hello", {"query": KeyWords(1)})
    assert '"maximum": 20' in rules
    assert rules.splitlines()[1] == r'start: "{\"query\":" f0 ",\"k\":" f1 "}"'


def test_nothing_said_leaves_the_plain_grammar() -> None:
    schema = bounded(SCHEMAS["search"], WIDEST)
    assert grammar.of_call(schema, "?!", {"query": KeyWords(1)}) == grammar.of_json(schema)


def test_quotes_keep_their_order_and_number() -> None:
    rules = grammar.of_quotes(["One.", "Two.", "Three."], 2).splitlines()
    assert rules[1] == "start: q0x0 | q0x1 | q0x2"
    assert rules[2] == 'q0x0: "One." (" " (q1x1 | q1x2))?'
    assert rules[5:] == ['q1x0: "One."', 'q1x1: "Two."', 'q1x2: "Three."']


def test_optional_fields_are_left_out_unless_all_are() -> None:
    assert fields(SCHEMAS["search"]) == ["query"]
    assert fields(SCHEMAS["optional"]) == ["name", "size"]
    assert bounded(SCHEMAS["optional"], SMALL)["required"] == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "string", "minLength": 1, "maxLength": 10}),
        ({"type": "string", "minLength": 20}, {"type": "string", "minLength": 20, "maxLength": 20}),
        ({"type": "string", "maxLength": 0}, {"type": "string", "minLength": 0, "maxLength": 0}),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"const": 3}, {"const": 3}),
        ({"type": "boolean"}, {"type": "boolean"}),
        (
            {"type": "integer", "exclusiveMinimum": 2},
            {"exclusiveMinimum": 2, "maximum": 999_999_999, "type": "integer"},
        ),
        ({"oneOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}]}),
        ({"$ref": "#/no/where"}, {"type": "string", "minLength": 1, "maxLength": 10}),
        ({"$ref": "https://example.org/x"}, {"type": "string", "minLength": 1, "maxLength": 10}),
    ],
)
def test_everything_that_could_grow_has_an_end(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    made = bounded({"properties": {"x": schema}, "required": ["x"]}, SMALL)["properties"]["x"]
    made.pop("pattern", None)
    assert made == expected


def test_arrays_objects_and_combinations_are_bounded() -> None:
    schema = {
        "properties": {
            "list": {"type": "array", "minItems": 3},
            "long": {"type": "array", "maxItems": 50},
            "open": {"properties": {"b": {"const": 1}}, "required": ["b"], "additionalProperties": True},
            "any": {"items": {"type": "null"}},
            "deep": {"$ref": "#"},
            "all": {"allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"title": "t"}, True]},
        },
        "required": ["list", "long", "open", "any", "deep", "all"],
    }
    made = bounded(schema, SMALL)
    assert made["properties"]["list"]["maxItems"] == 3
    assert made["properties"]["long"]["maxItems"] == 2
    assert made["properties"]["open"]["additionalProperties"] is False
    assert made["properties"]["any"]["maxItems"] == 2
    assert made["properties"]["all"]["required"] == ["a"]
    assert '{"type": "null"}' in json.dumps(made["properties"]["deep"])


@pytest.mark.req("ATTACK-38")
@pytest.mark.asyncio
async def test_a_schema_reads_neither_files_nor_addresses(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"auths": {"registry": "A-SECRET"}}')
    asked: list[object] = []

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        places = (
            f"file://{tmp_path}/secret.json#/auths/registry",
            "file:///dev/zero",
            f"http://127.0.0.1:{port}/",
            f"//127.0.0.1:{port}/",
        )
        for place in places:
            for schema in ({"$ref": place}, {"$schema": place}, {"$dynamicRef": place}):
                with contextlib.suppress(HearthNetError):
                    made = await asyncio.to_thread(ForcedCall, Tool("t", None, schema), [])
                    assert "$ref" not in schema, "what is no reference of this version is not followed"
                    assert made.check("{}", ended=True) == {}
        await asyncio.sleep(0)
    assert asked == []


@pytest.mark.req("ATTACK-38")
def test_references_do_not_make_a_schema_large() -> None:
    two = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(20)}
    doubled = {"$defs": {**two, "a20": {"type": "object"}}, "$ref": "#/$defs/a0"}
    with pytest.raises(HearthNetError, match="more than 4000 values"):
        ForcedCall(Tool("t", None, doubled), [Message("user", "x")])
    wide = {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}] * 30}}, "required": ["a"]}
    with pytest.raises(HearthNetError, match="more than 4000 parts"):
        bounded(wide, SMALL)


@given(st.sampled_from(sorted(SCHEMAS)), st.integers(1, 300), st.integers(1, 9))
def test_a_bounded_schema_is_a_schema(name: str, text: int, items: int) -> None:
    jsonschema_rs.validator_for(bounded(SCHEMAS[name], SchemaBounds(text, items)))
