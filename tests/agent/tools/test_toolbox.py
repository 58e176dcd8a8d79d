"""Tools, their contracts, and the built-in ones (docs/protocol/agent.md, "Tool definitions")."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.agent.tools.builtin import builtin_names, builtin_tools
from hearthnet.agent.tools.toolbox import Prepared, Toolbox, natives
from hearthnet.agent.tools.types import ToolDefinition
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from tests.agent.bench import POST, RUN


def tool(**fields: Any) -> ToolDefinition:
    given = {
        "name": "my.tool",
        "description": "Searches.",
        "parameters_schema": {"type": "object"},
        "bound_capability": "rag.query",
        "bound_version": (1, 0),
        "side_effects": False,
        **fields,
    }
    return ToolDefinition(**given)


def opened(schema: Any) -> Any:
    """`schema` without the closing of its objects, which the tool adds for the model."""
    if isinstance(schema, dict):
        return {
            name: opened(part)
            for name, part in schema.items()
            if (name, part) != ("additionalProperties", False)
        }
    return [opened(part) for part in schema] if isinstance(schema, list) else schema


@pytest.mark.req("TOOL-20")
@pytest.mark.parametrize("name", builtin_names())
def test_a_built_in_tool_takes_its_schema_and_its_effects_from_the_contract(name: str) -> None:
    (built,) = builtin_tools([name])
    contract = contracts().find(str(built.bound_capability), built.bound_version)
    assert built.side_effects == contract.side_effects
    assert built.parameters_schema["additionalProperties"] is False
    shown = built.parameters_schema["properties"]
    declared: dict[str, Any] = {}
    required: set[str] = set()
    for part in contract.request_schema["properties"].values():
        declared |= part.get("properties", {})
        required |= set(part.get("required", ()))
    assert "client_id" not in shown
    if name == "search_corpus":  # it may leave its corpus open, and name the home that has it
        corpus = shown.pop("corpus")
        assert corpus["pattern"].replace("(@.{1,200})?", "") == declared["corpus"]["pattern"]
        assert "description" in corpus
        required.remove("corpus")
    assert {name: opened(field) for name, field in shown.items()} == {
        name: opened(declared[name]) for name in shown
    }
    assert set(built.parameters_schema["required"]) >= required - {"client_id"}
    assert all("description" in field for field in shown.values())
    assert 40 < len(built.description) < 400


@pytest.mark.req("TOOL-20")
def test_bound_params_are_hidden_from_the_model_and_sent_all_the_same() -> None:
    box = Toolbox(builtin_tools(["search_corpus"], {"search_corpus": {"corpus": "system", "k": 3}}))
    (shown,) = natives(box)
    assert set(shown) == {"name", "description", "parameters_schema"}
    assert set(shown["parameters_schema"]["properties"]) == {"query"}
    ready = box["search_corpus"].prepare({"query": "water"}, "")
    assert ready == Prepared({"params": {"corpus": "system"}, "input": {"query": "water", "k": 3}}, "")
    assert "invalid_arguments" in str(box["search_corpus"].prepare({"query": "w", "corpus": "other"}, ""))


@pytest.mark.req("GATHER-3")
def test_a_search_that_is_free_to_choose_names_a_corpus_a_home_or_none() -> None:
    search = Toolbox(builtin_tools(["search_corpus"]))["search_corpus"]
    for params in ({}, {"corpus": "system"}, {"corpus": "system@Kitchen"}):
        assert search.prepare({"query": "w", **params}, "") == Prepared(
            {"params": params, "input": {"query": "w"}}, ""
        )
    for corpus in ("", "@Kitchen", "No@Kitchen", "system@", 7):
        assert "invalid_arguments" in str(search.prepare({"query": "w", "corpus": corpus}, "")), corpus


@pytest.mark.req("TOOL-20")
def test_a_hidden_field_can_be_bound() -> None:
    (built,) = builtin_tools(["search_corpus"], {"search_corpus": {"include_text": False}})
    assert "include_text" not in built.parameters_schema["properties"]
    ready = Toolbox([built])["search_corpus"].prepare({"query": "w", "corpus": "system"}, "")
    assert isinstance(ready, Prepared)
    assert ready.body["input"]["include_text"] is False


@pytest.mark.req("TOOL-20")
def test_an_unknown_built_in_tool_is_named_with_the_nearest() -> None:
    with pytest.raises(HearthNetError, match="did you mean market_post") as raised:
        builtin_tools(["markt_post"])
    assert (raised.value.code, raised.value.alt[0]) == ("not_found", "market_post")


def test_a_param_that_there_is_not_cannot_be_bound() -> None:
    with pytest.raises(HearthNetError, match="no field 'colour'"):
        builtin_tools(["search_corpus"], {"search_corpus": {"colour": "red"}})


def test_a_tool_is_shown_under_a_safe_name_and_found_by_either() -> None:
    box = Toolbox([tool()])
    assert natives(box)[0]["name"] == "my_tool"
    assert box.find("my_tool") is box.find("my.tool") is box["my.tool"]
    assert [one.capability for one in box] == ["rag.query@1.0"]
    assert (len(box), box.find("other")) == (1, None)


@pytest.mark.req("TOOL-5")
def test_a_caller_may_tighten_side_effects_and_never_loosen_them() -> None:
    loosened = tool(name="post", bound_capability="market.post", side_effects=False)
    box = Toolbox([tool(side_effects=True), loosened])
    assert box["my.tool"].effect
    assert box["post"].effect
    assert not Toolbox([tool()])["my.tool"].effect


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"bound_capability": None}, "bad_request", "a capability without its version"),
        ({"bound_version": None}, "bad_request", "a capability without its version"),
        ({"bound_capability": "rag.qery"}, "not_found", "did you mean rag.query"),
        ({"bound_version": (9, 0)}, "schema_mismatch", "rag.query@1.0"),
        (
            {"parameters_schema": {"type": "object", "properties": []}},
            "bad_request",
            "'my.tool': not a JSON Schema",
        ),
        ({"parameters_schema": {"type": "string"}}, "bad_request", '"type": "object"'),
        ({"parameters_schema": {}}, "bad_request", '"type": "object"'),
        ({"parameters_schema": True}, "bad_request", '"type": "object"'),
    ],
)
def test_a_tool_that_could_never_run_is_refused_at_once(fields: dict[str, Any], code: str, said: str) -> None:
    with pytest.raises(HearthNetError, match=said) as raised:
        Toolbox([tool(**fields)])
    assert raised.value.code == code


@pytest.mark.req("TOOL-4")
def test_the_contract_judges_what_a_loose_schema_lets_through() -> None:
    loose = Toolbox([tool()])["my.tool"]
    assert "/params/corpus" in str(loose.prepare({"query": "water", "corpus": "Not A Name"}, ""))
    assert "has no field 'colour'" in str(loose.prepare({"colour": "red"}, ""))


def test_the_model_cannot_choose_the_idempotency_key() -> None:
    loose = Toolbox([tool(name="post", bound_capability="market.post")])["post"]
    ready = loose.prepare({**POST, "client_id": RUN}, "01JZZZZZZZZZZZZZZZZZZZZZ55")
    assert isinstance(ready, Prepared)
    assert ready.body["input"]["client_id"] == "01JZZZZZZZZZZZZZZZZZZZZZ55"


@pytest.mark.req("TOOL-4")
def test_numbers_that_have_no_canonical_form_are_wrong_arguments() -> None:
    loose = Toolbox([tool(name="post", bound_capability="market.post")])["post"]
    wrong = loose.prepare({**POST, "location": {"lat": 1, "lng": 1, "label": "x", "far": 2**60}}, RUN)
    assert str(wrong).startswith("invalid_arguments: has no canonical JSON")


@pytest.mark.parametrize(
    ("allowed", "expected"), [(30, 300_000), (60, 300_000), (2.5, 2_500), (400, 400_000)]
)
def test_a_contract_that_needs_longer_gets_it_unless_the_caller_allows_less(
    allowed: float, expected: int
) -> None:
    ingest = Toolbox([tool(bound_capability="rag.ingest")])["my.tool"]
    assert ingest.timeout_ms(allowed) == expected


def own(schema: dict[str, Any], number: int = 0) -> ToolDefinition:
    """A tool that the client runs."""
    return tool(
        name=f"own{number}",
        parameters_schema={"type": "object", **schema},
        bound_capability=None,
        bound_version=None,
    )


@pytest.mark.req("ATTACK-31")
def test_references_of_a_clients_tool_are_bounded() -> None:
    def doubled(levels: int) -> dict[str, Any]:
        steps = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
        return {"$defs": {**steps, f"a{levels}": {"const": 1}}, "properties": {"x": {"$ref": "#/$defs/a0"}}}

    assert "rule: anyOf" in str(Toolbox([own(doubled(4))])["own0"].prepare({"x": 2}, ""))
    # Beyond the bounds the client alone checks what it is called with.
    assert isinstance(Toolbox([own(doubled(24))])["own0"].prepare({"x": 2}, ""), Prepared)
    (shown,) = natives(Toolbox([own(doubled(24))]))
    assert shown["parameters_schema"] == {"type": "object", **doubled(24)}


@pytest.mark.req("ATTACK-31")
def test_patterns_of_all_tools_of_a_request_are_bounded() -> None:
    tools = [own({"properties": {"x": {"pattern": f"^a{{{n}}}$"}}}, n) for n in range(300)]
    box = Toolbox(tools)
    refused = [n for n in range(300) if isinstance(box[f"own{n}"].prepare({"x": "b"}, ""), str)]
    assert refused == list(range(256))
    lookahead = Toolbox([own({"properties": {"x": {"pattern": "(?=a)b", "maxLength": 1}}})])["own0"]
    assert isinstance(lookahead.prepare({"x": "c"}, ""), Prepared)
    assert "maxLength" in str(lookahead.prepare({"x": "cc"}, ""))


def test_a_tool_whose_references_lead_nowhere_is_refused() -> None:
    with pytest.raises(HearthNetError, match="which is not in it"):
        Toolbox([own({"properties": {"x": {"$ref": "#/$defs/a"}}})])
