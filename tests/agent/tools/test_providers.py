"""For which home an effect on a single node is: settled before a person is asked, and shown."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hearthnet.agent.loop.events import (
    AskHome,
    AskPerson,
    Cancel,
    DecisionMade,
    Dispatch,
    Located,
    ModelDone,
    NotLocated,
    Resume,
    Start,
)
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import Limits, new_run
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.grant_store import tool_digest
from hearthnet.agent.tools.builtin import capability_tool
from hearthnet.agent.tools.providers import (
    for_home,
    home_in,
    home_of,
    is_for_one_home,
    provider_of,
    with_home_argument,
)
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import (
    Approve,
    Decision,
    Deny,
    Edit,
    PendingApproval,
    ToolCall,
    ToolDefinition,
    ToolError,
)
from hearthnet.bus.bus import find_contract
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.runs.calls import approved
from hearthnet.protocol.offer import OfferRecord
from hearthnet.trust.authorization.approval import ANY_PROVIDER, Approval
from hearthnet.trust.keys import Identity
from tests.agent.bench import EPOCH, QUESTION, RUN, Bench, of, only
from tests.agent.scripted import PROVIDER, ScriptedBus, calls, done, gives, says
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.req("TOOL-90")
INGEST, SHARED = "rag.ingest@1.0", "community.promote@1.0"
TOOL = capability_tool(INGEST, {"corpus": "mine"})
TOOLBOX = Toolbox([TOOL])
BODY: dict[str, Any] = {"params": {}, "input": {"messages": QUESTION}}
GIVEN = {"doc_cid": "blake3:" + "0" * 64, "title": "A", "language": "en"}
OWN, OTHER, THIRD = sorted(Identity.generate().node_id for _ in range(3))


class Offers:
    """Which nodes offer it."""

    def __init__(self, *nodes: str) -> None:
        self.nodes = nodes

    async def offers(self, capability: str | None = None) -> list[OfferView]:
        return [view(node) for node in self.nodes]


def view(node: str, capability: str = INGEST) -> OfferView:
    record = OfferRecord(
        capability=capability,
        instance="abcdefgh",
        schema_hash="blake3:" + "0" * 64,
        params={},
        max_concurrent=1,
        in_flight=0,
        issued_at=0,
        expires_at=1,
    )
    return OfferView(node, parse_capability(capability), record)


@pytest.mark.asyncio
async def test_provider_of_an_effect_is_the_own_home_then_the_only_one() -> None:
    ingest = TOOLBOX.bound(TOOL.name)
    assert await provider_of(ingest, Offers(OTHER, OWN, THIRD), OWN) == OWN
    assert await provider_of(ingest, Offers(OTHER, OWN, THIRD), THIRD) == THIRD
    assert await provider_of(ingest, Offers(OTHER, OTHER), OWN) == OTHER
    promote = Toolbox([capability_tool(SHARED, {})]).bound("community.promote")
    assert await provider_of(promote, Offers(OTHER, THIRD), OWN) == ANY_PROVIDER
    pinned = Toolbox([msgspec.structs.replace(TOOL, provider=THIRD)]).bound(TOOL.name)
    assert await provider_of(pinned, Offers(OTHER, OWN), OWN) == THIRD


@pytest.mark.asyncio
async def test_provider_of_several_other_homes_names_them() -> None:
    ingest = TOOLBOX.bound(TOOL.name)
    with pytest.raises(HearthNetError, match="nobody offers") as nobody:
        await provider_of(ingest, Offers(), OWN)
    with pytest.raises(HearthNetError) as several:
        await provider_of(ingest, Offers(THIRD, OTHER), OWN)
    assert (nobody.value.code, several.value.code) == ("not_found", "bad_request")
    assert f"{home_of(None, OTHER)}, {home_of(None, THIRD)}" in several.value.message
    assert several.value.details == {"providers": [OTHER, THIRD]}


@pytest.mark.req("ATTACK-34")
@pytest.mark.asyncio
async def test_an_effect_at_another_home_is_not_approved_unseen() -> None:
    identity = Identity.generate()
    peer = SimpleNamespace(node_id=identity.node_id, identity=identity, community=OWN)
    bus: Any = SimpleNamespace(peer=peer, offers=Offers(OTHER).offers)
    keyless: Any = SimpleNamespace(key="")
    contract, body = find_contract(INGEST), {"params": {"corpus": "mine"}, "input": GIVEN}
    with pytest.raises(HearthNetError, match="this home does not offer rag") as caught:
        await approved(bus, keyless, contract, body, None)
    assert caught.value.code == "not_found"
    seen = await approved(bus, keyless, contract, body, None, OTHER)
    assert isinstance(seen, Approval)
    assert seen.provider == OTHER


def looking(tool: ToolDefinition = TOOL) -> tuple[ToolLoop, PendingApproval]:
    """A loop whose model called it, and what the home is looked for."""
    loop = ToolLoop(new_run(RUN, QUESTION, "auto", Limits()), Toolbox([tool]))
    loop.feed(Start(now=EPOCH))
    bench = Bench(start=False, locates=False)
    bench.loop = loop
    actions = bench.call(TOOL.name, GIVEN, "a")
    assert not of(AskPerson, actions)
    return loop, only(AskHome, actions).pending


def test_a_home_that_was_found_is_shown_and_the_call_goes_there() -> None:
    loop, pending = looking()
    about = pending.confirmation_id
    elsewhere = loop.feed(Located(now=EPOCH, confirmation_id="other", provider=THIRD, home="Attic"))
    assert elsewhere == []
    asked = only(
        AskPerson, loop.feed(Located(now=EPOCH, confirmation_id=about, provider=OTHER, home="Kitchen"))
    )
    assert (asked.pending.provider, asked.pending.home) == (OTHER, "Kitchen")
    assert loop.feed(Located(now=EPOCH, confirmation_id=about, provider=THIRD, home="Attic")) == []
    loop.feed(ModelDone(now=EPOCH, meta={}))
    sent = only(Dispatch, loop.feed(DecisionMade(now=EPOCH, confirmation_id=about, decision=Approve())))
    assert sent.provider == OTHER


def test_a_home_that_is_not_settled_refuses_the_call_unasked() -> None:
    loop, pending = looking()
    refused = NotLocated(
        now=EPOCH, confirmation_id=pending.confirmation_id, code="bad_request", message="which?"
    )
    actions = loop.feed(refused)
    assert not of(AskPerson, actions)
    assert loop.state.records[0].status == "refused"
    assert loop.state.calls[0].content == "bad_request: which?"
    assert loop.feed(refused) == []


def test_a_resumed_run_looks_for_the_home_again() -> None:
    loop, pending = looking()
    again = ToolLoop(loop.state, TOOLBOX)
    assert only(AskHome, again.feed(Resume(now=EPOCH))).pending == pending
    again.feed(Cancel(now=EPOCH))
    assert (
        again.feed(Located(now=EPOCH, confirmation_id=pending.confirmation_id, provider=OTHER, home="")) == []
    )


def test_nobody_decides_before_the_home_is_settled() -> None:
    """A yes given while it is looked for would be carried out at a home that nobody has seen."""
    loop, pending = looking()
    about = pending.confirmation_id
    loop.feed(ModelDone(now=EPOCH, meta={}))
    assert loop.feed(DecisionMade(now=EPOCH, confirmation_id=about, decision=Approve())) == []
    found = Located(now=EPOCH, confirmation_id=about, provider=OTHER, home="Kitchen")
    assert only(AskPerson, loop.feed(found)).pending.home == "Kitchen"


@pytest.mark.asyncio
async def test_a_run_waits_for_nobody_while_its_home_is_looked_for() -> None:
    """As another process finds it, where this one is killed meanwhile."""
    bus = ScriptedBus([calls(TOOL.name, GIVEN, "a"), done("tool_calls")])
    looked, settled = asyncio.Event(), asyncio.Event()
    store = MemoryRuns()

    async def offers(capability: str | None = None) -> list[OfferView]:
        looked.set()
        await settled.wait()
        return [view(OTHER)]

    bus.offers = offers  # type: ignore[method-assign]
    saved = SavedRuns(store, bus.peer.identity, bus.peer.community)
    task = asyncio.create_task(ToolExecutor(bus, [TOOL], store=store).run_chat_with_tools(BODY))
    await looked.wait()
    (record,) = (await saved.listing()).runs
    with pytest.raises(HearthNetError, match="has no call"):
        await saved.decide(record.run, "a", Approve(), via="runs")
    settled.set()
    assert (await task)["requires_follow_up"]
    (record,) = (await saved.listing()).runs
    assert [one.provider for one in record.pending] == [OTHER]


def test_an_effect_on_a_shared_log_has_no_home() -> None:
    toolbox = Toolbox([capability_tool(SHARED, {})])
    bench = Bench(start=False, locates=False)
    bench.loop = ToolLoop(new_run(RUN, QUESTION, "auto", Limits()), toolbox)
    bench.feed(Start(now=EPOCH))
    arguments = {"target_node_id": OTHER, "new_level": "trusted"}
    asked = only(AskPerson, bench.call("community.promote", arguments, "a")).pending
    assert (asked.provider, asked.home) == ("", "")


def test_an_installed_effect_is_of_the_own_home_or_the_named_one() -> None:
    views = [view(OTHER), view(OWN)]
    assert for_home(TOOL, views, OWN).provider == OWN
    assert for_home(TOOL, [*views, view(THIRD, SHARED)], THIRD).provider == ""
    assert for_home(TOOL, views, OWN, OTHER).provider == OTHER
    pinned = msgspec.structs.replace(TOOL, provider=THIRD)
    assert for_home(pinned, views, OWN, OTHER) == pinned
    read, shared = "rag.query@1.0", capability_tool(SHARED, {})
    asked_about = msgspec.structs.replace(capability_tool(read, {"corpus": "mine"}), side_effects=True)
    clients = ToolDefinition("open_page", "", {"type": "object"}, None, None, True)
    for other, name in ((asked_about, read), (clients, read), (shared, SHARED)):
        assert for_home(other, [view(OWN, name)], OWN) == other


def test_calls_for_one_home_are_effects_there_and_what_names_it() -> None:
    read = capability_tool("rag.query@1.0", {"corpus": "mine"})
    clients = ToolDefinition("open_page", "", {"type": "object"}, None, None, True)
    pinned = msgspec.structs.replace(read, provider=THIRD)
    for tool, expected in ((TOOL, True), (pinned, True), (read, False), (clients, False)):
        assert is_for_one_home(Toolbox([tool])[tool.name]) is expected
    assert not is_for_one_home(Toolbox([capability_tool(SHARED, {})])["community.promote"])


def test_a_home_is_shown_by_its_name_and_id() -> None:
    peer = SimpleNamespace(roster=SimpleNamespace(shown_name={OTHER: "Attic", THIRD: ""}.get))
    assert home_of(peer, OTHER) == f"Attic ({ids.short_id(OTHER)})"
    assert home_of(peer, THIRD) == ids.short_id(THIRD)


@pytest.mark.asyncio
async def test_a_run_tells_its_model_which_homes_there_are() -> None:
    bus = ScriptedBus(
        [calls(TOOL.name, GIVEN, "a"), done("tool_calls")],
        [says("Which one?"), done()],
        tools={INGEST: gives({"chunks_indexed": 1})},
    )
    bus.offered = [view(OTHER), view(THIRD)]
    questions: list[PendingApproval] = []

    async def decide(pending: PendingApproval) -> Decision:
        questions.append(pending)
        return Approve()

    message = await ToolExecutor(bus, [TOOL]).run_chat_with_tools(BODY, decide=decide)
    assert (message["content"], questions, bus.calls) == ("Which one?", [], [])
    told = bus.requests[1]["messages"][-1]["content"]
    assert told.startswith("bad_request: cannot tell for which home")
    assert home_of(None, OTHER) in told
    assert home_of(None, THIRD) in told


def roster(**named: str) -> Any:
    """A peer that knows these homes by name."""
    shown = {node: name for name, node in named.items()}
    called = lambda text: [node for node in shown if text in (node, shown[node])]  # noqa: E731
    return SimpleNamespace(roster=SimpleNamespace(name="c", nodes_called=called, shown_name=shown.get))


def hashed(*nodes: str) -> Any:
    """These nodes offer it, with the contract that is installed here."""
    own = find_contract(INGEST).schema_hash

    async def offers(capability: str | None = None) -> list[OfferView]:
        return [
            msgspec.structs.replace(one, offer=msgspec.structs.replace(one.offer, schema_hash=own))
            for one in map(view, nodes)
        ]

    return SimpleNamespace(offers=offers)


@pytest.mark.req("GATHER-6")
@pytest.mark.asyncio
async def test_the_home_that_a_call_names_is_meant_where_it_offers_it() -> None:
    tool = Toolbox([for_home(TOOL, [view(OWN), view(OTHER)], OWN)]).bound(TOOL.name)
    peer = roster(Hearth=OWN, Kitchen=OTHER, Garden=THIRD)
    assert tool.provider == OWN
    assert home_in(tool, {**GIVEN, "home": "Kitchen"}) == "Kitchen"
    assert home_in(tool, GIVEN) == ""
    assert await provider_of(tool, hashed(OWN, OTHER), OWN, peer) == OWN
    for home, node in (("Kitchen", OTHER), ("Hearth", OWN), (OTHER, OTHER)):
        assert await provider_of(tool, hashed(OWN, OTHER), OWN, peer, home) == node
    with pytest.raises(HearthNetError, match=r"Garden .* does not offer rag.ingest@1.0 now") as away:
        await provider_of(tool, hashed(OWN, OTHER), OWN, peer, "Garden")
    with pytest.raises(HearthNetError, match="no home of c is called 'Shed'") as unknown:
        await provider_of(tool, hashed(OWN, OTHER), OWN, peer, "Shed")
    with pytest.raises(HearthNetError, match="does not offer") as other_contract:
        await provider_of(tool, Offers(OWN, OTHER), OWN, peer, "Kitchen")
    assert {one.value.code for one in (away, unknown, other_contract)} == {"not_found"}


@pytest.mark.req("GATHER-6")
def test_the_argument_is_there_where_others_offer_it_and_nobody_has_chosen() -> None:
    def takes_it(tool: ToolDefinition) -> bool:
        return "home" in tool.parameters_schema["properties"]

    assert takes_it(for_home(TOOL, [view(OWN), view(OTHER)], OWN))
    assert takes_it(for_home(TOOL, [view(THIRD), view(OTHER)], OWN))
    assert not takes_it(for_home(TOOL, [view(OWN)], OWN))
    assert not takes_it(for_home(TOOL, [view(OWN), view(OTHER)], OWN, OTHER))
    chosen = with_home_argument(TOOL, required=True)
    assert "home" in chosen.parameters_schema["required"]
    assert with_home_argument(chosen) == chosen
    prepared = Toolbox([chosen]).bound(TOOL.name).prepare({**GIVEN, "home": "Kitchen"}, ids.new_ulid())
    assert not isinstance(prepared, str)
    assert "home" not in prepared.body["input"]


MOVED = Edit({**GIVEN, "home": "Kitchen"})


@pytest.mark.req("GATHER-6")
def test_a_person_changes_all_but_the_home_that_was_shown() -> None:
    loop, pending = looking(with_home_argument(TOOL))
    about = pending.confirmation_id
    loop.feed(Located(now=EPOCH, confirmation_id=about, provider=OWN, home="Hearth"))
    loop.feed(ModelDone(now=EPOCH, meta={}))

    def decide(decision: Decision) -> list[Any]:
        return list(loop.feed(DecisionMade(now=EPOCH, confirmation_id=about, decision=decision)))

    moved = decide(MOVED)
    assert not of(Dispatch, moved)
    again = only(AskPerson, moved).pending
    assert (again.home, again.arguments) == ("Hearth", GIVEN)
    assert again.problem.startswith("invalid_arguments: /home")
    sent = only(Dispatch, decide(Edit({**GIVEN, "title": "B"})))
    assert (sent.provider, sent.body["input"]["title"]) == (OWN, "B")


@pytest.mark.req("GATHER-6")
@pytest.mark.asyncio
async def test_a_yes_to_another_home_is_kept_nowhere_and_the_no_after_it_counts() -> None:
    bus = ScriptedBus(
        [calls(TOOL.name, {**GIVEN, "home": "Garden"}, "a"), done("tool_calls")],
        [says("Nothing was done."), done()],
        tools={INGEST: gives({"chunks_indexed": 1})},
    )
    bus.offers = hashed(THIRD, PROVIDER).offers  # type: ignore[method-assign]
    bus.peer.roster = roster(Kitchen=PROVIDER, Garden=THIRD).roster
    store, shown = MemoryRuns(), list[PendingApproval]()
    saved = SavedRuns(store, bus.peer.identity, bus.peer.community)

    async def decide(asked: PendingApproval) -> Decision:
        shown.append(asked)
        if len(shown) > 1:
            return Deny("not there")
        with pytest.raises(HearthNetError, match="the home stays the one that was shown"):
            await saved.decide(asked.run, "a", MOVED, via="runs")
        return MOVED

    tool = with_home_argument(TOOL)
    await ToolExecutor(bus, [tool], store=store).run_chat_with_tools(BODY, decide=decide)
    assert [one.provider for one in shown] == [THIRD, THIRD]
    assert bus.calls == []
    (record,) = (await saved.listing()).runs
    assert [one.word for one in (await saved.decisions(record)).values()] == ["denied"]


@pytest.mark.req("GATHER-6")
@pytest.mark.asyncio
async def test_a_single_call_that_names_a_home_is_shown_with_it_and_approved_for_it() -> None:
    bus = ScriptedBus(tools={INGEST: gives({"chunks_indexed": 1})})
    bus.offers = hashed(OWN, PROVIDER).offers  # type: ignore[method-assign]
    bus.peer.roster = roster(Kitchen=PROVIDER).roster
    executor = ToolExecutor(bus, [with_home_argument(TOOL)])
    call = ToolCall("a", TOOL.name, {**GIVEN, "home": "Kitchen"})
    with pytest.raises(ToolError) as asked:
        await executor.dispatch(call)
    assert (asked.value.pending.provider, asked.value.pending.home.partition(" ")[0]) == (PROVIDER, "Kitchen")
    assert not (await executor.dispatch_confirmed(call)).is_error
    (sent,) = bus.calls
    assert sent.approval is not None
    assert (sent.node, sent.approval.provider) == (PROVIDER, PROVIDER)
    nobody = await executor.dispatch_confirmed(ToolCall("b", TOOL.name, {**GIVEN, "home": "Shed"}))
    assert nobody.is_error
    assert len(bus.calls) == 1


@pytest.mark.req("GATHER-6")
def test_a_grant_stays_when_another_home_begins_to_offer_it() -> None:
    chosen = Toolbox([with_home_argument(TOOL, required=True)]).bound(TOOL.name)
    assert tool_digest(chosen) == tool_digest(TOOLBOX.bound(TOOL.name))


@pytest.mark.req("GATHER-6")
@pytest.mark.asyncio
async def test_a_single_call_goes_to_the_home_that_was_shown_whoever_has_its_name_by_then() -> None:
    bus = ScriptedBus(tools={INGEST: gives({"chunks_indexed": 1})})
    bus.offers = hashed(OTHER, PROVIDER).offers  # type: ignore[method-assign]
    bus.peer.roster = roster(Kitchen=PROVIDER).roster
    executor = ToolExecutor(bus, [with_home_argument(TOOL)])
    call = ToolCall("a", TOOL.name, {**GIVEN, "home": "Kitchen"})
    with pytest.raises(ToolError):
        await executor.dispatch(call)
    bus.peer.roster = roster(Kitchen=OTHER).roster
    assert (await executor.dispatch_confirmed(call, Edit({**call.arguments, "home": "Shed"}))).is_error
    assert not (await executor.dispatch_confirmed(call)).is_error
    assert [sent.node for sent in bus.calls] == [PROVIDER]
