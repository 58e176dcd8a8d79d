"""What MCP tools answer, as outputs of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hearthnet.contracts.schema import compile_schema
from hearthnet_mcp.results import MOST_CHARACTERS, output, progress


@pytest.mark.req("MCPADD-3")
def test_every_kind_of_content_has_a_part() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "Hello."},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "note://1", "mimeType": "text/plain", "text": "A note."}},
        {"type": "resource", "resource": {"uri": "file://2", "blob": "aGk="}},
        {"type": "resource_link", "uri": "note://3", "name": "third", "description": "The third one"},
        {"type": "resource_link", "uri": "note://4", "name": "fourth", "mimeType": "text/html"},
        {"type": "new_kind", "thing": 1},
    ]
    given = output({"content": blocks, "structuredContent": {"n": 1}})
    assert given == {
        "is_error": False,
        "structured": {"n": 1},
        "content": [
            {"type": "text", "text": "Hello."},
            {"type": "image", "data": "aGk=", "media_type": "image/png"},
            {"type": "audio", "data": "aGk=", "media_type": "audio/wav"},
            {"type": "document", "url": "note://1", "media_type": "text/plain", "text": "A note."},
            {"type": "document", "url": "file://2", "data": "aGk="},
            {"type": "link", "url": "note://3", "name": "third", "description": "The third one"},
            {"type": "link", "url": "note://4", "name": "fourth", "media_type": "text/html"},
            {"type": "json", "value": {"type": "new_kind", "thing": 1}},
        ],
    }
    assert output({"isError": True}) == {"content": [], "is_error": True}


@pytest.mark.req("MCPADD-3")
def test_what_is_too_large_for_one_answer_is_cut_and_that_is_said() -> None:
    text, picture = "x" * MOST_CHARACTERS, "A" * MOST_CHARACTERS
    blocks = [
        {"type": "text", "text": text},
        {"type": "image", "data": picture, "mimeType": "image/png"},
        {"type": "text", "text": "y" * MOST_CHARACTERS},
        {"type": "text", "text": "z" * MOST_CHARACTERS},
    ]
    given = output({"content": blocks, "structuredContent": {"n": text}})
    first, second, third, *_ = given["content"]
    assert "more characters]" in first["text"]
    assert second["type"] == "omitted"
    assert second["was"] == "image"
    assert second["media_type"] == "image/png"
    assert second["bytes"] > MOST_CHARACTERS
    assert third["type"] == "text"
    assert "structured" not in given
    assert len(json.dumps(given)) < 2 * MOST_CHARACTERS


@pytest.mark.req("MCPADD-14")
def test_promised_value_comes_before_the_parts() -> None:
    check = compile_schema({"type": "object", "properties": {"n": {"type": "string"}}})
    value = {"n": "x" * (MOST_CHARACTERS - 5_000)}
    result = {"content": [{"type": "text", "text": "y" * MOST_CHARACTERS}], "structuredContent": value}
    given = output(result, check)
    assert given["structured"] == value
    assert "more characters]" in given["content"][0]["text"]
    assert len(json.dumps(given)) < MOST_CHARACTERS + 1_000


@pytest.mark.req("MCPADD-14")
def test_promised_value_that_does_not_fit_is_left_out() -> None:
    check = compile_schema({"type": "object", "properties": {"n": {"type": "integer"}}})
    for value, reason in (
        ({"n": "one"}, 'own schema has it: /n "one" is not of type "integer"'),
        ({"n": 1, "x": "y" * MOST_CHARACTERS}, f"over {MOST_CHARACTERS}"),
    ):
        given = output({"content": [{"type": "text", "text": "done"}], "structuredContent": value}, check)
        assert "structured" not in given
        assert given["content"][0]["text"] == "done"
        assert reason in given["content"][1]["text"]
    assert output({"content": []}, check) == {"content": [], "is_error": False}


@pytest.mark.req("MCPADD-6")
@pytest.mark.parametrize(
    ("said", "frame"),
    [
        ((2, 5, "two"), {"current": 2, "total": 5, "stage": "two"}),
        ((3, None, None), {"current": 3, "total": 0, "stage": ""}),
        ((0.25, 1, None), {"current": 25, "total": 100, "stage": ""}),
        ((7.5, 5, None), {"current": 100, "total": 100, "stage": ""}),
        ((-1, float("inf"), "x" * 300), {"current": 0, "total": 0, "stage": "x" * 200}),
        ((float("nan"), None, None), {"current": 0, "total": 0, "stage": ""}),
    ],
)
def test_progress_is_told_in_whole_numbers(said: Any, frame: dict[str, Any]) -> None:
    assert progress(*said) == frame
