"""Names that every vendor takes, and back.

See: docs/protocol/agent.md#names.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.agent.loop.state import client_id_of, confirmation_id_of
from hearthnet.agent.tools.names import NameMap, is_safe, placeholder, unknown_tool
from hearthnet.core.canonical_json import derived_id
from hearthnet.core.errors import HearthNetError


@pytest.mark.req("TOOL-19")
@given(st.lists(st.text(min_size=1, max_size=130), unique=True, max_size=12))
def test_every_name_is_safe_unique_and_found_again(names: list[str]) -> None:
    mapped = NameMap(names)
    safe = [mapped.to_safe(name) for name in names]
    assert all(is_safe(name) for name in safe)
    assert len(set(safe)) == len(names)
    assert [mapped.to_declared(name) for name in safe] == names


@pytest.mark.req("TOOL-19")
def test_names_that_would_collide_stay_apart_and_safe_ones_are_kept() -> None:
    mapped = NameMap(["rag.query", "rag_query", "rag query", "r" * 128, "r" * 127])
    assert mapped.to_safe("rag_query") == "rag_query"
    assert mapped.to_declared("rag_query") == "rag_query"
    assert mapped.to_safe("rag.query").startswith("rag_query-")
    assert len({mapped.to_safe(name) for name in ("rag.query", "rag query", "r" * 128, "r" * 127)}) == 4


def test_a_plain_replacement_will_do_where_it_is_free() -> None:
    mapped = NameMap(["mesh.search"])
    assert mapped.to_safe("mesh.search") == "mesh_search"
    assert mapped.to_declared("mesh.search") == "mesh.search", "a model may know it by its own name"
    assert mapped.to_declared("mesh-search") is None
    long = NameMap(["r" * 65]).to_safe("r" * 65)
    assert (long[:56], len(long)) == ("r" * 55 + "-", 64), "a shortened name is never a plain one"


@pytest.mark.req("TOOL-19")
@pytest.mark.parametrize("others", [[], ["rag_query"], ["rag_query", "rag query"]])
def test_what_stands_in_for_a_name_on_its_way_is_that_tool_and_no_other(others: list[str]) -> None:
    mapped = NameMap(["rag.query", *others])
    assert mapped.to_declared(placeholder("rag.query")) == "rag.query"
    assert mapped.to_declared(placeholder("rag/query")) is None


@pytest.mark.req("TOOL-19")
def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(HearthNetError, match="'a' is declared twice; rename one") as raised:
        NameMap(["a", "b", "a"])
    assert raised.value.code == "bad_request"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("serch", "did you mean search?"),
        ("zzz", "there are: search, list"),
        ("x" * 500, "there are: search, list"),
    ],
)
def test_an_unknown_tool_is_named_with_what_there_is(name: str, said: str) -> None:
    error = unknown_tool(name, ["search", "list"])
    assert error.code == "not_found"
    assert error.message.endswith(said)
    assert len(error.message) < 200
    assert "there are: none" in unknown_tool("a", []).message


@given(st.text(), st.text())
def test_derived_ids_have_the_form_of_a_ulid_and_differ_by_purpose(run: str, call: str) -> None:
    derived = client_id_of(run, call)
    assert len(derived) == 26
    assert derived[0] in "01234567"
    assert derived == client_id_of(run, call)
    assert derived not in {
        confirmation_id_of(run, call),
        derived_id("client", run + call),
        client_id_of(call, run + "x"),
    }
