"""Tools whose contracts came with no installation, without a bus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.events import NotLocated
from hearthnet.agent.loop.state import Limits, new_run
from hearthnet.agent.persistence.run_record import (
    RunRecord,
    Sealer,
    contracts_digest,
    dynamic_contracts,
    unseal,
)
from hearthnet.agent.persistence.saved_runs import toolbox_of
from hearthnet.agent.runtime.authority import MOST_CHARACTERS, Scopes
from hearthnet.agent.runtime.dispatch import Dispatcher
from hearthnet.agent.runtime.ports import Clock
from hearthnet.agent.runtime.stream_collector import drain
from hearthnet.agent.tools.dynamic import MOST_DESCRIBED, dynamic_tool, dynamic_tools
from hearthnet.agent.tools.toolbox import BoundTool, Toolbox
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import versioned
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.keys import Identity
from tests.agent.scripted import Script
from tests.contracts.test_dynamic import contract, request

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def told(name: str = "experimental.mcp.notes.write", **changed: Any) -> Contract:
    """A contract of a tool with an effect, known here."""
    fields = {"request_schema": request(TEXT), "side_effects": True, "idempotent": "no", **changed}
    made = versioned(contract(name, **fields))
    contracts().learn(made)
    return made


@pytest.mark.req("MCPADD-4")
def test_it_is_a_tool_under_its_capabilitys_name() -> None:
    made = told()
    tool = dynamic_tool(made, own=True)
    assert (tool.name, tool.bound_capability, tool.bound_version) == (made.name, made.name, (made.major, 0))
    assert tool.parameters_schema["required"] == ["text"]
    assert tool.description == made.summary
    assert tool.side_effects
    harmless = told(side_effects=False)
    assert not dynamic_tool(harmless, own=True).side_effects
    assert dynamic_tool(harmless, own=False).side_effects
    long = {**request(TEXT), "description": "x" * 5_000}
    assert len(dynamic_tool(told(request_schema=long), own=True).description) == MOST_DESCRIBED
    bound = Toolbox([tool]).bound(made.name)
    assert bound.foreign, "what a program of others says are the words of others, also after an effect"
    assert not bound.repeatable_effect


@pytest.mark.req("MCPADD-13")
def test_a_saved_run_brings_the_contracts_that_its_reader_may_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = told(summary="Only here.")
    identity = Identity.generate()
    toolbox = Toolbox([dynamic_tool(made, own=True, provider=identity.node_id)])
    record = RunRecord(
        run="01HZX3Q4R5S6T7V8W9XA0BC1D2",
        owner="",
        principal="",
        state=new_run("01HZX3Q4R5S6T7V8W9XA0BC1D2", [], "auto", Limits(), []),
        request={},
        tools=[tool.definition for tool in toolbox],
        contracts=contracts_digest(toolbox),
        told=dynamic_contracts(toolbox),
        per_tool_seconds=30,
        started_at=0,
    )
    record.owner = identity.node_id
    sealed = Sealer(record, identity.runs_key()).seal(record)
    monkeypatch.setattr(contracts(), "_fetched", {})
    with pytest.raises(HearthNetError) as unknown:
        contracts().get(made.id)
    assert unknown.value.code == "not_found"
    read = unseal(sealed, record.run, identity)
    assert toolbox_of(read).bound(made.name).contract.id == made.id


@pytest.mark.req("MCPADD-13")
def test_a_token_has_room_for_long_names() -> None:
    tools = [
        dynamic_tool(told(f"experimental.mcp.notes.{letter * 64}"), own=True) for letter in "abcdefghijkl"
    ]
    toolbox = Toolbox(tools)
    bound = [tool for tool in toolbox if isinstance(tool, BoundTool)]
    scopes = Scopes(bound)
    held = {scopes.of(tool)[0]: scopes.of(tool)[1].capabilities for tool in bound}
    assert len(held) > 1
    assert all(sum(map(len, capabilities)) <= MOST_CHARACTERS for capabilities in held.values())
    assert sorted(name for names in held.values() for name in names) == sorted(
        tool.capability for tool in bound
    )


@pytest.mark.asyncio
@pytest.mark.req("MCPADD-6")
async def test_a_stream_of_progress_and_one_result_is_that_result() -> None:
    seen: list[dict[str, Any]] = []
    step = {"current": 1, "total": 2, "stage": "one"}
    script = Script([("progress", step), ("result", {"content": []}), ("done", {"ms": 3})])
    assert await drain("experimental.x.y@1.0", script, seen.append) == ({"content": []}, {"ms": 3})
    assert seen == [step]


@pytest.mark.req("ATTACK-34")
@pytest.mark.asyncio
async def test_a_named_provider_has_to_offer_a_tool_that_is_known() -> None:
    """Its contract was learned from another node."""
    made, own, other = told(), *(Identity(bytes([number]) * 32).node_id for number in (1, 2))

    async def offers(_: str) -> list[Any]:
        return [SimpleNamespace(node=own)]

    async def fetch_contract(_: str, node: str = "", listed: Any = ()) -> Contract:
        return made

    bus: Any = SimpleNamespace(
        peer=SimpleNamespace(node_id=own), offers=offers, fetch_contract=fetch_contract
    )
    (tool,) = await dynamic_tools(bus, [made.name], {made.name: own})
    assert tool.provider == own
    for node, code in ((other, "not_found"), ("garbage", "bad_request")):
        with pytest.raises(HearthNetError) as caught:
            await dynamic_tools(bus, [made.name], {made.name: node})
        assert caught.value.code == code
    record: Any = SimpleNamespace(run=ids.new_ulid(), tools=[dynamic_tool(made, own=True)], contracts="")
    with pytest.raises(HearthNetError, match="does not say which home") as unsettled:
        toolbox_of(record)
    assert unsettled.value.code == "schema_mismatch"
    toolbox = Toolbox([msgspec.structs.replace(tool, provider="garbage")])
    bus.peer.identity = bus.peer
    nothing: Any = None
    dispatcher = Dispatcher(bus, toolbox, nothing, "", Clock(), None, None)
    pending: Any = SimpleNamespace(confirmation_id="c", name=made.name, arguments={})
    found = await dispatcher.located(pending)
    assert isinstance(found, NotLocated)
    assert found.code == "bad_request"


@pytest.mark.req("GATHER-6")
@pytest.mark.asyncio
async def test_a_tool_of_several_other_homes_is_called_at_the_one_that_the_call_names() -> None:
    """Where their contracts are the same, and only an effect: a read would be carried out unseen."""
    made, own, *others = told(), *(Identity(bytes([number]) * 32).node_id for number in (1, 2, 3))
    hashes = dict.fromkeys([own, *others], made.schema_hash)
    offering = set(others)

    async def offers(_: str) -> list[Any]:
        return [
            SimpleNamespace(node=node, offer=SimpleNamespace(schema_hash=hashes[node])) for node in offering
        ]

    async def fetch_contract(_: str, node: str = "", listed: Any = ()) -> Contract:
        return made

    bus: Any = SimpleNamespace(
        peer=SimpleNamespace(node_id=own), offers=offers, fetch_contract=fetch_contract
    )
    (tool,) = await dynamic_tools(bus, [made.name])
    assert (tool.provider, tool.parameters_schema["required"]) == ("", ["text", "home"])
    toolbox = Toolbox([tool])
    assert toolbox.bound(made.name).names_home
    fields: dict[str, Any] = {"run": ids.new_ulid(), "tools": [tool], "contracts": contracts_digest(toolbox)}
    record: Any = SimpleNamespace(**fields)
    assert toolbox_of(record).bound(made.name).names_home, "a saved run goes on with it"
    offering.add(own)
    (tool,) = await dynamic_tools(bus, [made.name])
    assert (tool.provider, "home" in tool.parameters_schema["properties"]) == (own, True)
    assert tool.parameters_schema["required"] == ["text"]
    offering.discard(own)
    hashes[others[0]] = "blake3:" + "0" * 64
    with pytest.raises(HearthNetError, match="cannot tell for which home"):
        await dynamic_tools(bus, [made.name])
    hashes[others[0]] = made.schema_hash
    made = told(side_effects=False)
    with pytest.raises(HearthNetError, match="cannot tell for which home"):
        await dynamic_tools(bus, [made.name])
