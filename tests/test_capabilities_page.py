"""docs/capabilities.md says what the contracts say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hearthnet.contracts.registry import contracts
from tools.capabilities_page import PAGE, anchor, code, kind_of, limits_of, main, page, table, text


@pytest.mark.req("DOCS-1")
def test_committed_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "the contracts have changed; run: make capabilities"


@pytest.mark.req("DOCS-1")
def test_page_has_a_section_and_every_field_of_each_contract() -> None:
    sections = dict(re.findall(r"^## (\S+@\S+)\n(.*?)(?=^## |\Z)", page(), re.MULTILINE | re.DOTALL))
    assert list(sections) == [one.id for one in contracts()]
    for contract in contracts():
        assert contract.schema_hash in sections[contract.id]
        for part in ("params", "input"):
            for field in contract.request_schema["properties"][part].get("properties", {}):
                assert f"| `{part}.{field}` |" in sections[contract.id]
        for event in contract.stream_schema or {}:
            assert f"| `{event}` |" in sections[contract.id]


def test_main_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "capabilities.md"
    monkeypatch.setattr("tools.capabilities_page.PAGE", there)
    assert main() == 0
    assert there.read_text("utf-8") == page()


@pytest.mark.parametrize(
    ("schema", "kind", "limits"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 20, "default": 5}, "integer", "1 to 20; default `5`"),
        ({"type": ["string", "null"], "maxLength": 9}, "string or null", "at most 9 characters"),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "array of string",
            "at least 2 items",
        ),
        ({"type": "array", "maxItems": 2, "minItems": 2}, "array", "exactly 2 items"),
        ({"enum": ["a", "b"]}, "string", '`"a"`, `"b"`'),
        ({"const": None}, "null", "`null`"),
        ({"anyOf": [{"enum": ["auto"]}, {"type": "object"}]}, "string or object", '`"auto"`'),
        ({"type": "object", "additionalProperties": False}, "object", "no others"),
        ({"type": "object", "propertyNames": {"maxLength": 8}}, "object", "names: at most 8 characters"),
        (
            {"type": "object", "oneOf": [{"required": ["cid"]}, {"required": ["url", "kind"]}]},
            "object",
            "exactly one of: `cid` | `url` and `kind`",
        ),
        ({}, "any", ""),
    ],
)
def test_a_schema_is_put_into_words(schema: dict[str, Any], kind: str, limits: str) -> None:
    assert (kind_of(schema), limits_of(schema)) == (kind, limits)


def test_cells_hold_no_markup_and_no_ends_of_cells() -> None:
    assert table(["a"], [["x | y\nz"]]).splitlines()[-1] == "| x \\| y z |"
    assert text("<a> [b] *c*") == "\\<a> \\[b\\] \\*c\\*"
    for char in "\\", "`", "*", "[", "]", "<":
        assert text(f"a{char}b") == f"a\\{char}b"
    assert code("a`b") == "``a`b``"
    assert anchor("rag.list_corpora@1.0") == "raglist_corpora10"
