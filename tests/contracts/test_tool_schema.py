"""A contract as a tool, and a tool call as a request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthnet.contracts.registry import contracts
from hearthnet.contracts.schema import compile_schema
from hearthnet.contracts.tool_schema import Flat
from hearthnet.core.errors import HearthNetError

ALL = list(contracts())
QUERY = contracts().get("rag.query@1.0")
POST = contracts().get("market.post@1.0")
INGEST = contracts().get("rag.ingest@1.0")


@pytest.mark.req("CONTRACT-8")
def test_params_and_input_stand_side_by_side() -> None:
    schema = QUERY.tool_schema(None, frozenset())
    assert list(schema["properties"]) == ["corpus", "copy_of", "query", "k", "filter", "include_text"]
    assert schema["required"] == ["corpus", "query"]
    assert schema["additionalProperties"] is False


@pytest.mark.req("CONTRACT-8")
def test_what_is_bound_or_hidden_is_not_asked_of_the_model() -> None:
    schema = QUERY.tool_schema({"corpus": "system"}, frozenset({"copy_of", "filter", "include_text"}))
    assert list(schema["properties"]) == ["query", "k"]
    assert schema["required"] == ["query"]
    assert POST.tool_schema(None, frozenset({"client_id"}))["required"] == ["category", "title", "body"]


@pytest.mark.req("CONTRACT-8")
def test_of_a_choice_what_is_left_is_required() -> None:
    delete = contracts().get("market.delete@1.0")
    assert delete.tool_schema(None, frozenset({"client_id"}))["required"] == []
    assert delete.tool_schema(None, frozenset({"client_id", "all"}))["required"] == ["event_id"]
    assert delete.tool_schema({"all": True}, frozenset({"client_id"}))["required"] == []
    assert delete.tool_schema({"event_id": "x"}, frozenset({"client_id", "all"}))["required"] == []


@pytest.mark.req("CONTRACT-8")
def test_objects_are_closed_at_every_depth_unless_they_say_otherwise() -> None:
    fields = POST.tool_schema(None, frozenset())["properties"]
    assert fields["location"]["additionalProperties"] is False
    assert fields["tags"] == {**POST.request_schema["properties"]["input"]["properties"]["tags"]}
    assert INGEST.tool_schema(None, frozenset())["properties"]["metadata"]["additionalProperties"] is True
    assert "additionalProperties" not in POST.request_schema["properties"]["input"]["properties"]["location"]


@pytest.mark.req("CONTRACT-8")
def test_values_and_tests_inside_a_schema_are_left_alone() -> None:
    likely = {"type": "object", "properties": {}}
    schema = {
        "type": "object",
        "properties": {"a": {"default": likely, "contains": likely, "anyOf": [likely, True]}},
    }
    request = {"properties": {"params": {"properties": {}}, "input": schema}}
    field = Flat("x.y@1.0", request).tool_schema(())["properties"]["a"]
    assert field == {
        "default": likely,
        "contains": likely,
        "anyOf": [{**likely, "additionalProperties": False}, {}],
    }


@pytest.mark.req("CONTRACT-8")
def test_what_need_not_be_an_object_is_not_closed() -> None:
    either = {"properties": {"name": {"type": "string"}}}
    request = {"properties": {"params": {"properties": {"a": either}}, "input": {"properties": {}}}}
    assert Flat("x.y@1.0", request).tool_schema(())["properties"]["a"] == either


@pytest.mark.req("CONTRACT-8")
@pytest.mark.parametrize("contract", ALL, ids=[contract.id for contract in ALL])
def test_a_good_example_comes_through_the_tool_schema_and_back(contract: Any) -> None:
    for example in contract.examples:
        if "path" not in example:
            body = example["request"]
            flat = {**body["params"], **body["input"]}
            assert compile_schema(contract.tool_schema(None, frozenset())).errors(flat) == []
            assert contract.split_arguments(flat, None) == body


@pytest.mark.req("CONTRACT-8")
@given(st.data())
def test_splitting_undoes_flattening_whatever_is_bound(data: st.DataObject) -> None:
    contract = data.draw(st.sampled_from(ALL))
    sections = contract.request_schema["properties"]
    body = {
        name: data.draw(st.dictionaries(st.sampled_from(fields), st.integers())) if fields else {}
        for name, fields in ((name, list(sections[name]["properties"])) for name in ("params", "input"))
    }
    flat = {**body["params"], **body["input"]}
    bound = set(data.draw(st.lists(st.sampled_from(sorted(flat))))) if flat else set()
    given_ = {name: value for name, value in flat.items() if name not in bound}
    assert contract.split_arguments(given_, {name: flat[name] for name in bound}) == body


@pytest.mark.req("CONTRACT-8")
def test_a_bound_or_unknown_name_among_the_arguments_is_refused() -> None:
    with pytest.raises(HearthNetError, match="'corpus' is fixed for this tool"):
        QUERY.split_arguments({"corpus": "personal", "query": "x"}, {"corpus": "system"})
    with pytest.raises(
        HearthNetError, match="has no field 'colour'; it has corpus, copy_of, query"
    ) as caught:
        QUERY.split_arguments({"colour": "red"}, None)
    assert caught.value.details == {"path": "/colour", "rule": "additionalProperties"}


@pytest.mark.req("CONTRACT-8")
def test_binding_a_field_there_is_not_is_refused() -> None:
    with pytest.raises(HearthNetError, match="has no field 'korpus'"):
        QUERY.tool_schema({"korpus": "system"}, frozenset())
    with pytest.raises(HearthNetError, match="it has none"):
        contracts().get("rag.list_corpora@1.0").tool_schema(None, frozenset({"query"}))


@pytest.mark.req("CONTRACT-8")
def test_a_name_in_both_params_and_input_cannot_be_flattened() -> None:
    both = {"properties": {"name": {"type": "string"}}}
    with pytest.raises(HearthNetError, match=r"x\.y@1\.0 has 'name' twice"):
        Flat("x.y@1.0", {"properties": {"params": both, "input": both}})
