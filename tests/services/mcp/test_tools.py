"""Listed tools as contracts: names, what is asked about, what is left out, what a change makes of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.capability_name import parse_capability
from hearthnet.core.config import McpServerConfig
from hearthnet_mcp.tools import MOST_TOOLS, capabilities, read
from tests.services.mcp.houses import SCHEMA, tool

READS = {"readOnlyHint": True}


def config(**settings: Any) -> McpServerConfig:
    return McpServerConfig(name="s", command=("x",), **settings)


def contract(listed: dict[str, Any], **settings: Any) -> Any:
    listing = read(config(**settings), [listed])
    assert not listing.dropped
    return listing.tools[0].contract


@pytest.mark.req("MCPADD-4")
def test_a_tool_is_asked_about_unless_its_owner_says_that_it_only_reads() -> None:
    plain, hinted = tool("a"), tool("a", annotations=READS)
    assert contract(plain).side_effects
    assert contract(hinted).side_effects, "what it says of itself does not count by itself"
    assert not contract(hinted, trust_hints=True).side_effects
    assert contract(plain, trust_hints=True).side_effects
    assert contract(tool("a", annotations={"readOnlyHint": False}), trust_hints=True).side_effects
    assert not contract(plain, read_only=("a",)).side_effects
    assert contract(plain, read_only=("b",)).side_effects
    assert contract(plain).idempotent == "no", "a program of others promises nothing about repetitions"
    assert (contract(plain).approval, contract(plain).effect_scope) == ("any", "node")


@pytest.mark.req("MCPADD-5")
def test_whatever_changes_of_a_tool_makes_another_capability_of_it() -> None:
    other = {**SCHEMA, "required": []}
    forms = [
        contract(tool("a", "Reads.")),
        contract(tool("a", "Reads. Also deletes.")),
        contract(tool("a", "Reads.", other)),
        contract(tool("a", "Reads."), read_only=("a",)),
    ]
    assert len({one.id for one in forms}) == 4
    assert len({one.name for one in forms}) == 1
    assert contract(tool("a", "Reads.")).id == forms[0].id


@pytest.mark.req("MCPADD-8")
def test_a_tool_with_a_broken_or_a_huge_schema_is_left_out_alone() -> None:
    listed = [
        tool("good"),
        tool("broken", schema={"type": "object", "properties": {"a": {"type": "nothing"}}}),
        tool("huge", schema={"type": "object", "properties": {"a": {"enum": ["x" * 70_000]}}}),
        tool("no object", schema={"type": "array"}),
        tool("number", schema={"type": "object", "properties": {"a": {"const": 2**60}}}),
        tool("good", "Once more under the same name."),
    ]
    listing = read(config(), listed)
    assert [one.name for one in listing.tools] == ["good"]
    left_out = ["broken", "huge", "no object", "number"]
    assert [line.partition(" is left out: ")[0] for line in listing.dropped] == list(map(repr, left_out))
    many = read(config(), [tool(f"t{number}") for number in range(MOST_TOOLS + 3)])
    assert len(many.tools) == MOST_TOOLS
    assert many.dropped == (f"3 tools are left out: {MOST_TOOLS} are offered at most",)


@pytest.mark.req("MCPADD-8")
def test_what_a_tool_says_of_itself_is_bounded() -> None:
    hidden = "Line one.\u202e\x07\nLine two." + "x" * 10_000
    made = contract(tool("a", hidden))
    assert made.summary == "Line one."
    assert "\u202e" not in made.request_schema["description"]
    assert made.request_schema["description"] == hidden.replace("\u202e\x07", "")[:4_000]
    assert len(contract(tool("a", "y" * 500)).summary) == 160
    assert contract(tool("a", "", title="A title")).summary == "A title"
    nameless = msgspec.structs.asdict(contract({"name": "a", "inputSchema": SCHEMA, "description": 7}))
    assert nameless["summary"] == "The tool a"
    assert "description" not in nameless["request_schema"]


@pytest.mark.req("MCPADD-1")
def test_a_name_that_fits_stays_as_it_is() -> None:
    assert capabilities("notes", ["read_file", "get-sum", "2fast"]) == {
        "read_file": "experimental.mcp.notes.read_file",
        "get-sum": "experimental.mcp.notes.get-sum",
        "2fast": "experimental.mcp.notes.2fast",
    }


@pytest.mark.req("MCPADD-1")
def test_others_are_readable_and_stay_apart_whatever_else_there_is() -> None:
    found = capabilities("s", ["readFile", "readfile", "READFILE", "fs.read", "Ä"])
    assert len(set(found.values())) == 5
    assert found["readfile"] == "experimental.mcp.s.readfile"
    assert found["readFile"].startswith("experimental.mcp.s.readfile-")
    assert found["fs.read"].startswith("experimental.mcp.s.fs_read-")
    assert found["readFile"] == capabilities("s", ["readFile"])["readFile"]


@pytest.mark.req("MCPADD-1")
def test_a_tool_that_is_called_as_another_would_be_keeps_its_name() -> None:
    taken = capabilities("s", ["readFile"])["readFile"].rpartition(".")[2]
    found = capabilities("s", ["readFile", taken])
    assert found[taken].endswith(f".{taken}")
    assert found["readFile"] != found[taken]


@pytest.mark.req("MCPADD-1")
@given(st.lists(st.text(max_size=100), max_size=12))
def test_every_name_is_one_of_the_bus_and_no_two_meet(names: list[str]) -> None:
    found = capabilities("a" * 32, names)
    assert len(set(found.values())) == len(set(names))
    for capability in found.values():
        assert parse_capability(f"{capability}@9999.0").name == capability
