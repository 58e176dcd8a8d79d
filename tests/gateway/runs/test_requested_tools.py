"""The tools that a client asks for, and those that it runs itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hearthnet.agent.runtime.client_tools import ClientResult, ClientTools
from hearthnet.agent.tools.dynamic import dynamic_tool
from hearthnet.agent.tools.types import ClientCallRequest, ToolDefinition
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.runs.requested_tools import MOST_TOOLS, tools_of
from hearthnet.trust.authorization.token import Scope
from hearthnet.trust.keys import Identity
from tests.agent.scripted import calls, done, says
from tests.agent.tools.test_dynamic import told
from tests.gateway.running import Ear, House, ask, driving
from tests.helpers.memory_runs import MemoryRuns

OWN = {"name": "look", "description": "Looks.", "parameters_schema": {"type": "object"}}
LOOKS = [calls("look", {}, "k"), done("tool_calls")]


def told_last(house: House) -> tuple[str, str]:
    """The result that the model was shown last, and the call that it is of."""
    last = house.bus.requests[-1]["messages"][-1]
    return last["tool_call_id"], last["content"]


@pytest.mark.req("SESS-15")
def test_tools_are_named_fixed_or_the_clients_own() -> None:
    found = tools_of(
        [
            "search_corpus",
            "market.post",
            "market.list@1.0",
            {"use": "search_marketplace"},
            {"use": "rag.query", "params": {"corpus": "system"}},
            {**OWN, "side_effects": True},
        ]
    )
    assert [(tool.name, tool.bound_capability, tool.side_effects) for tool in found] == [
        ("search_corpus", "rag.query", False),
        ("market.post", "market.post", True),
        ("market.list", "market.list", False),
        ("search_marketplace", "market.search", False),
        ("rag.query", "rag.query", False),
        ("look", None, True),
    ]
    fixed = found[4]
    assert fixed.bound_params == {"corpus": "system"}
    assert "corpus" not in fixed.parameters_schema["properties"]
    assert "client_id" not in found[1].parameters_schema["properties"]


@pytest.mark.req("SESS-15")
@pytest.mark.parametrize(
    ("asked", "code", "path"),
    [
        ("search_corpus", "bad_request", ""),
        ([1], "bad_request", "/0"),
        (["nonsense"], "not_found", None),
        (["no.such"], "not_found", None),
        (["market.post@9.0"], "schema_mismatch", None),
        ([{"use": 1}], "bad_request", "/0"),
        ([{"use": "search_corpus", "params": []}], "bad_request", "/0"),
        ([{"use": "search_corpus", "more": 1}], "bad_request", "/0/more"),
        ([{"use": "search_corpus", "params": {"nonsense": 1}}], "bad_request", None),
        ([OWN, {"name": ""}], "bad_request", "/1"),
        ([{**OWN, "parameters_schema": []}], "bad_request", "/0"),
        ([{**OWN, "bound_capability": "market.post"}], "bad_request", "/0/bound_capability"),
        ([{**OWN, "side_effects": "no"}], "bad_request", "/0"),
        ([OWN] * (MOST_TOOLS + 1), "bad_request", ""),
    ],
)
def test_what_is_no_tool_is_refused_with_its_place(asked: Any, code: str, path: str | None) -> None:
    with pytest.raises(HearthNetError) as caught:
        tools_of(asked)
    assert caught.value.code == code
    if path is not None:
        assert caught.value.details["path"] == f"/input/tools{path}"


@pytest.mark.asyncio
@pytest.mark.req("SESS-15")
async def test_a_client_that_listens_runs_its_own_tools() -> None:
    house, ear, mine = House(MemoryRuns(), LOOKS, [says("Red."), done()]), Ear(), ClientTools()
    anna = house.guest()
    run = await house.open(anna.client, ask(OWN), ear, run_tool=mine)
    driven = driving(run)
    wanted = await ear.heard("tool_wanted")
    mine.give(wanted["tool_call_id"], {"colour": "red"})
    assert (await driven).message["content"] == "Red."
    assert told_last(house) == ("k", '{"colour":"red"}')


@pytest.mark.asyncio
@pytest.mark.req("SESS-7", "SESS-15")
@pytest.mark.parametrize("listens", [True, False])
async def test_a_client_that_is_gone_answers_when_it_comes_again(listens: bool) -> None:
    house, ear = House(MemoryRuns(), LOOKS, [says("Red."), done()], away_seconds=0.01), Ear()
    anna, asked = house.guest(), asyncio.Event()

    async def never(_wanted: ClientCallRequest) -> ClientResult | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    run = await house.open(anna.client, ask(OWN), ear, run_tool=never if listens else None)
    driven = driving(run)
    if listens:
        await asked.wait()
        assert run.presence._here.is_set()
        run.presence.leave()
        assert not run.presence._here.is_set()
    outcome = await driven
    assert [wanted.tool_call_id for wanted in outcome.wanted] == ["k"]
    answers = {"k": ClientResult({"colour": "red"})}
    again = await house.resume(anna.client, run.run, answers=answers)
    assert (await again.drive()).message["content"] == "Red."
    assert told_last(house) == ("k", '{"colour":"red"}')


@pytest.mark.asyncio
@pytest.mark.req("SESS-15")
async def test_a_tool_whose_contract_is_told_is_as_its_teller_is_trusted() -> None:
    made = told(side_effects=False)
    asked_for: list[str] = []

    async def tell(names: list[str]) -> list[ToolDefinition]:
        asked_for.extend(names)
        return [dynamic_tool(made, own=False)]

    house = House(MemoryRuns(), [calls(made.name, {"text": "x"}, "n"), done("tool_calls")], fetch_tools=tell)
    anna = house.guest(scope=Scope(("llm.chat", made.name)))
    ear = Ear()
    run = await house.open(anna.client, ask(made.name, OWN), ear, waits=False)
    (pending,) = (await run.drive()).pending
    assert (asked_for, pending.capability) == ([made.name], str(made.capability))
    with pytest.raises(HearthNetError, match="nobody offers") as caught:
        await House(MemoryRuns()).open(anna.client, ask(made.name), ear)
    assert caught.value.code == "not_found"
    own = {"use": made.name, "params": {"text": "fixed"}}
    (fixed,) = tools_of([own], {made.name: dynamic_tool(made, own=True)})
    assert "text" not in fixed.parameters_schema["properties"]
    with pytest.raises(HearthNetError, match="list of names"):
        await house.open(anna.client, {"input": {"tools": made.name}}, ear)


@pytest.mark.req("ATTACK-34")
def test_one_tool_of_two_providers_is_refused() -> None:
    made, node = told(), Identity(bytes([1]) * 32).node_id
    learned = {made.name: dynamic_tool(made, own=False, provider=node)}
    asked = [{"use": made.name, "provider": Identity(bytes([2]) * 32).node_id}]
    with pytest.raises(HearthNetError, match="is there with another provider") as caught:
        tools_of(asked, learned)
    assert caught.value.details["path"] == "/input/tools/0/provider"
