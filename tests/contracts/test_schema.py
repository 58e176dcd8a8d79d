"""Compiled schemas: what they refuse, and how they say it."""

from __future__ import annotations

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.contracts.schema import Problem, compile_schema, pointer
from hearthnet.core.errors import HearthNetError

CHOICE = {"anyOf": [{"enum": ["auto", "none"]}, {"type": "object", "required": ["name"]}]}
PARTS = {
    "oneOf": [
        {"type": "object", "required": ["text"], "properties": {"type": {"const": "text"}}},
        {"type": "object", "required": ["cid"], "properties": {"type": {"const": "image"}}},
    ]
}


@pytest.mark.req("CONTRACT-4")
@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"enum": ["a", "b", "c", "d"]}, "x", Problem("", "enum", '"x" is not one of "a", "b", "c", "d"')),
        ({"const": 1}, 2, Problem("", "const", "2 is not 1")),
        (
            {"contains": {"const": 1}},
            [2],
            Problem("", "contains", "no item is of the kind that the list must contain"),
        ),
        (
            {"properties": {"a": {"contains": {"const": 1, "description": "a one"}}}},
            {"a": [2]},
            Problem("/a", "contains", "no item is a one"),
        ),
        ({"minItems": 1}, [], Problem("", "minItems", "the list is empty; it needs at least 1 item")),
        ({"minItems": 2}, [], Problem("", "minItems", "the list is empty; it needs at least 2 items")),
        ({"minItems": 2}, [1], Problem("", "minItems", "[1] has less than 2 items")),
        (CHOICE, {}, Problem("", "required", '"name" is a required property')),
        (CHOICE, 5, Problem("", "anyOf", '5 is not one of "auto", "none", and 5 is not of type "object"')),
        (PARTS, {"type": "image"}, Problem("", "required", '"cid" is a required property')),
        (PARTS, {"type": "image", "text": "x"}, Problem("", "required", '"cid" is a required property')),
        ({"items": PARTS}, [{"type": "text"}], Problem("/0", "required", '"text" is a required property')),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
            3,
            Problem(
                "", "oneOf", "3 is valid under more than one of the schemas listed in the 'oneOf' keyword"
            ),
        ),
        (
            {"properties": {"a/b~": {"maximum": 1}}},
            {"a/b~": 2},
            Problem("/a~1b~0", "maximum", "2 is greater than the maximum of 1"),
        ),
    ],
)
def test_the_message_names_what_the_sender_has_to_know(schema: Any, value: Any, problem: Problem) -> None:
    assert compile_schema(schema).errors(value) == [problem]


@pytest.mark.req("CONTRACT-4")
def test_a_long_value_is_cut_out_of_the_middle_of_its_message() -> None:
    (problem,) = compile_schema({"maxLength": 10}).errors("x" * 100_000)
    assert problem.message.startswith('"xxx')
    assert problem.message.endswith('xxx" is longer than 10 characters')
    assert problem.message.count(" ... ") == 1
    assert len(problem.message) == 240 + len(" ... ")


def test_all_problems_are_listed() -> None:
    check = compile_schema({"required": ["a", "b"], "properties": {"c": {"type": "null"}}})
    assert sorted(problem.rule for problem in check.errors({"c": 1})) == ["required", "required", "type"]
    assert check.errors({"a": 1, "b": 1, "c": None}) == []


@pytest.mark.parametrize("value", [b"bytes", object(), {1: 2}])
def test_what_is_not_json_does_not_fit(value: Any) -> None:
    check = compile_schema({})
    assert not check.accepts(value)
    (problem,) = check.errors(value)
    assert (problem.path, problem.rule) == ("", "type")


@pytest.mark.req("CONTRACT-9")
@pytest.mark.parametrize(
    "schema",
    [{"type": "objekt"}, {"pattern": "("}, {"$ref": "#/nowhere"}, {"required": "a"}, 5, b"", {"a": object()}],
)
def test_what_is_no_schema_is_refused_when_it_is_compiled(schema: Any) -> None:
    with pytest.raises(HearthNetError, match=r"not a JSON Schema \(2020-12\): ") as caught:
        compile_schema(schema)
    assert caught.value.code == "bad_request"
    assert "\n" not in caught.value.message


@pytest.mark.req("CONTRACT-9")
def test_a_schema_never_makes_us_fetch_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it refers to is there, and is a schema: fetched, it would be taken."""
    (tmp_path / "other.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), _OneSchema) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{url}/asked") as answer:
            assert answer.read() == b"{}"
        for place in (f"{url}/x", (tmp_path / "other.json").as_uri(), "other.json"):
            with pytest.raises(HearthNetError, match="not a JSON Schema"):
                compile_schema({"$ref": place})
        server.shutdown()
    assert _OneSchema.asked == ["/asked"]


class _OneSchema(BaseHTTPRequestHandler):
    """Answers every request with a schema, and notes it."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Answer."""
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.mark.req("CONTRACT-9")
def test_a_schema_deeper_than_any_real_one_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(300):
        schema = {"properties": {"a": schema}}
    with pytest.raises(HearthNetError, match="Recursion limit"):
        compile_schema(schema)


@pytest.mark.req("CONTRACT-4")
@pytest.mark.parametrize("depth", [300, 950])
def test_a_value_that_is_nested_too_deeply_is_refused(depth: int) -> None:
    check = compile_schema({"type": "object", "required": ["a"], "properties": {"a": PARTS}})
    value: Any = {}
    for _ in range(depth):
        value = {"b": value}
    for told in (value, {"a": value}):
        assert not check.accepts(told)
        assert check.errors(told)


@pytest.mark.req("CONTRACT-9")
@pytest.mark.timeout(60)
def test_a_pattern_cannot_hold_us_up() -> None:
    check = compile_schema({"pattern": "^(a+)+$"})
    assert not check.accepts("a" * 60 + "b")
    assert len(check.errors("a" * 60 + "b")) == 1
    for pattern in ("^(?=a)(a+)+$", r"(a+)\1", "(((a{1,100}){1,100}){1,100})"):
        with pytest.raises(HearthNetError, match="regex"):
            compile_schema({"pattern": pattern})


@given(st.recursive(st.integers() | st.text() | st.none(), lambda inner: st.lists(inner), max_leaves=8))
def test_accepts_and_errors_and_a_second_validator_agree(value: Any) -> None:
    schema = {
        "items": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": ["array", "null"], "maxItems": 2}]}
    }
    check = compile_schema(schema)
    assert check.accepts(value) is (check.errors(value) == [])
    assert check.accepts(value) is jsonschema.Draft202012Validator(schema).is_valid(value)


def test_a_pointer_escapes_as_rfc_6901_says() -> None:
    assert pointer([]) == ""
    assert pointer(["a", 0, "m~n/o"]) == "/a/0/m~0n~1o"


@pytest.mark.req("BADINPUT-3")
def test_of_a_large_value_the_first_fault_is_told_without_looking_for_all() -> None:
    check = compile_schema({"type": "object", "additionalProperties": {"type": "string", "maxLength": 9}})
    small: dict[str, object] = {"a": 1, "b": 2}
    large = {f"x{number}": number for number in range(50_000)}
    assert len(check.errors(small)) == 2
    assert [(problem.path, problem.rule) for problem in check.errors(large)] == [("/x0", "type")]
    assert check.errors({"a": "text " * 20_000})[0].rule == "maxLength"
    assert check.errors({f"x{number}": "fits" for number in range(1_000)}) == []


@pytest.mark.req("BADINPUT-3", "ATTACK-31")
@pytest.mark.parametrize("place", [0, 40, 1_000])
def test_of_many_faults_those_of_the_first_item_are_listed(place: int) -> None:
    check = compile_schema({"type": "array", "minItems": 2, "items": PARTS})
    parts = [{"type": "text", "text": "a"}] * place + [{"type": "image"}] * 50_000
    assert [(problem.path, problem.rule) for problem in check.errors(parts)] == [(f"/{place}", "required")]
    assert len(check.errors([{"type": "image"}] * 4)) == 4


@pytest.mark.req("BADINPUT-3", "ATTACK-31")
def test_what_the_cut_of_a_list_breaks_is_no_fault() -> None:
    lists = {"second": {"minItems": 3, "contains": {"const": 3}}, "third": {"const": [1, 2]}}
    check = compile_schema({"properties": {"first": {"items": PARTS}, **lists}})
    value = {"first": [1] * 90, "second": [1, 2, 3], "third": [1, 2]}
    assert [problem.path for problem in check.errors(value)] == ["/first/0"]
    short = {"first": [{"text": "a"}] * 90, "second": [3], "third": [1]}
    assert [problem.path for problem in check.errors(short)] == ["/second", "/third"]


@pytest.mark.req("BADINPUT-3", "ATTACK-31")
@pytest.mark.parametrize(
    "value", [[{"text": "a"}] * 50_000 + [1], [{f"field{number}": 0 for number in range(50_000)}]]
)
def test_a_fault_that_is_costly_to_find_is_not_looked_for(value: Any) -> None:
    assert compile_schema({"items": PARTS}).errors(value) == [
        Problem("", "schema", "does not fit its schema")
    ]


@pytest.mark.req("BADINPUT-3")
def test_a_field_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    fields = {"language": {"type": "string"}, "min_year": {"type": "integer"}}
    inner = {"type": "object", "additionalProperties": False, "properties": fields}
    check = compile_schema({"properties": {"filter": inner}})
    [problem] = check.errors({"filter": {"author": "Ada", "colour": 1}})
    assert problem == (
        "/filter",
        "additionalProperties",
        'has no field "author" or "colour"; it has language, min_year',
    )
