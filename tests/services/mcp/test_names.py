"""Names of tools on the bus."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.core.capability_name import parse_capability
from hearthnet_mcp.tools import capabilities

pytestmark = pytest.mark.req("MCPADD-1")


def test_a_name_that_fits_stays_as_it_is() -> None:
    assert capabilities("notes", ["read_file", "get-sum", "2fast"]) == {
        "read_file": "experimental.mcp.notes.read_file",
        "get-sum": "experimental.mcp.notes.get-sum",
        "2fast": "experimental.mcp.notes.2fast",
    }


def test_others_are_readable_and_stay_apart_whatever_else_there_is() -> None:
    found = capabilities("s", ["readFile", "readfile", "READFILE", "fs.read", "Ä"])
    assert len(set(found.values())) == 5
    assert found["readfile"] == "experimental.mcp.s.readfile"
    assert found["readFile"].startswith("experimental.mcp.s.readfile-")
    assert found["fs.read"].startswith("experimental.mcp.s.fs_read-")
    assert found["readFile"] == capabilities("s", ["readFile"])["readFile"]


def test_a_tool_that_is_called_as_another_would_be_keeps_its_name() -> None:
    taken = capabilities("s", ["readFile"])["readFile"].rpartition(".")[2]
    found = capabilities("s", ["readFile", taken])
    assert found[taken].endswith(f".{taken}")
    assert found["readFile"] != found[taken]


@given(st.lists(st.text(max_size=100), max_size=12))
def test_every_name_is_one_of_the_bus_and_no_two_meet(names: list[str]) -> None:
    found = capabilities("a" * 32, names)
    assert len(set(found.values())) == len(set(names))
    for capability in found.values():
        assert parse_capability(f"{capability}@9999.0").name == capability
