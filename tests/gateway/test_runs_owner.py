"""The owner at the command line and at the page is one person, who decides at either what waits."""

from __future__ import annotations

from typing import Any

import pytest

from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.types import Approve, Deny, Edit
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.token import OWNER
from tests.gateway.running import ENDS, POST, WANTS, Ear, Guest, House, ask, driving
from tests.helpers.memory_runs import MemoryRuns

pytestmark = pytest.mark.asyncio
VIA = "hearthnet runs"


def terminal(house: House) -> ToolExecutor:
    """What `hearthnet ask` and `hearthnet runs resume` drive runs with."""
    return ToolExecutor(house.bus, builtin_tools(["market_post"]), store=house.store)


def desk(house: House) -> SavedRuns:
    """What `hearthnet runs` decides at."""
    peer = house.bus.peer
    return SavedRuns(house.store, peer.identity, peer.community)


def page(house: House) -> Guest:
    """The owner's page."""
    return house.guest(OWNER, is_owner=True)


async def asked_there(house: House) -> str:
    """A run that was begun at the command line and waits; its id."""
    body = ask()
    del body["input"]["tools"]
    answer = await terminal(house).run_chat_with_tools(body)
    assert answer["requires_follow_up"]
    return str(answer["run"])


async def asked_here(house: House, owner: Guest) -> str:
    """A run that was begun at the page and waits; its id."""
    run = await house.open(owner.client, ask(), Ear(), waits=False)
    await run.drive()
    return run.run


async def approve(house: House, owner: Guest, run: str) -> dict[str, Any]:
    """Says yes at the page, as it is shown there."""
    (listed,) = await house.runs.listing(owner.client)
    (asked,) = listed["pending"]
    signed, shown = owner.sign(asked["approval"]), asked["arguments_digest"]
    return await house.decide(owner.client, run, "p", Approve(), shown=shown, approval=signed)


def sent(house: House) -> tuple[str, str, list[str]]:
    """Whose approval the one effect carried, how it came, and in whose name calls went out."""
    (call,) = house.bus.calls
    assert call.approval is not None
    return call.approval.approver, call.approval.via or "", house.bus.principals


@pytest.mark.req("SESS-20")
async def test_owner_page_sees_and_decides_terminal_run() -> None:
    house = House(MemoryRuns())
    owner, node = page(house), house.bus.peer.identity.node_id
    run = await asked_there(house)
    found = await house.runs.page(owner.client, run)
    assert (found["principal"], found["question"]) == (node, "Lend it.")
    taken = await approve(house, owner, run)
    assert (taken["word"], taken["by"]) == ("approved", owner.client.principal)
    await terminal(house).resume(run)
    assert sent(house) == (node, "", [node])
    assert (await house.runs.listing(owner.client))[0]["state"] == "ended"


@pytest.mark.req("SESS-20")
async def test_owner_page_goes_on_with_terminal_run_under_its_key() -> None:
    house = House(MemoryRuns())
    owner = page(house)
    run = await asked_there(house)
    await approve(house, owner, run)
    await (await house.resume(owner.client, run)).drive()
    assert sent(house) == (owner.client.key, "", [owner.client.principal])


@pytest.mark.req("SESS-20")
@pytest.mark.parametrize("goes_on", ["terminal", "page"])
async def test_owner_terminal_decides_page_run(goes_on: str) -> None:
    """What is allowed with the node's key goes out under it, whoever drives the run."""
    house = House(MemoryRuns())
    owner, node = page(house), house.bus.peer.identity.node_id
    run = await asked_here(house, owner)
    taken = await desk(house).decide(run, "p", Edit({**POST, "title": "Mine"}), via=VIA)
    assert (taken.signed.word, taken.signed.by) == ("edited", node)
    if goes_on == "terminal":
        await terminal(house).resume(run)
    else:
        await (await house.resume(owner.client, run)).drive()
    assert sent(house) == (node, "", [node])
    assert house.bus.calls[0].body["input"]["title"] == "Mine"


@pytest.mark.req("SESS-20")
async def test_owner_terminal_yes_reaches_page_run_under_way() -> None:
    house = House(MemoryRuns())
    owner, ear = page(house), Ear()
    run = await house.open(owner.client, ask(), ear)
    driven = driving(run)
    await ear.heard("confirmation_required")
    await desk(house).decide(run.run, "p", Approve(), via=VIA)
    assert (await driven).done is not None
    node = house.bus.peer.identity.node_id
    assert sent(house) == (node, "", [node])


@pytest.mark.req("SESS-20")
async def test_owner_no_counts_at_either() -> None:
    house = House(MemoryRuns(), WANTS, WANTS, ENDS, ENDS)
    owner = page(house)
    there, here = await asked_there(house), await asked_here(house, owner)
    await house.decide(owner.client, there, "p", Deny("no"))
    await desk(house).decide(here, "p", Deny("no"), via=VIA)
    for run in (there, here):
        answer = await terminal(house).resume(run)
        assert answer["content"] == "Posted."
        (told,) = [one for one in house.bus.requests[-1]["messages"] if one["role"] == "tool"]
        assert "no" in told["content"]
    assert house.bus.calls == []


@pytest.mark.req("SESS-20", "SESS-4")
@pytest.mark.parametrize("who", ["guest", "program", "keyless"])
async def test_owner_terminal_run_is_nobody_elses(who: str) -> None:
    """A guest's page, and what shows the owner's name without being the owner's page."""
    house = House(MemoryRuns())
    run = await asked_there(house)
    client = {
        "guest": house.guest("eve"),
        "program": house.guest(OWNER),
        "keyless": house.guest(OWNER, own_key=False),
    }[who].client
    assert await house.runs.listing(client) == []
    for act in (
        house.runs.page(client, run),
        house.runs.preview(client, run, "p", POST),
        house.decide(client, run, "p", Approve(), shown=""),
        house.decide(client, run, "p", Deny("")),
        house.runs.cancel(client, run),
        house.resume(client, run),
    ):
        with pytest.raises(HearthNetError) as caught:
            await act
        assert caught.value.code == "not_found"
    assert house.bus.calls == []


@pytest.mark.req("SESS-20", "SESS-10")
async def test_owner_page_yes_takes_its_signature() -> None:
    house = House(MemoryRuns())
    owner, other = page(house), house.guest("eve")
    run = await asked_there(house)
    (listed,) = await house.runs.listing(owner.client)
    (asked,) = listed["pending"]
    shown = asked["arguments_digest"]
    forged = {**other.sign({**asked["approval"], "approver": other.client.key}), "approver": owner.client.key}
    for approval, code in ((None, "unauthorized"), (forged, "invalid_signature")):
        with pytest.raises(HearthNetError) as caught:
            await house.decide(owner.client, run, "p", Approve(), shown=shown, approval=approval)
        assert caught.value.code == code
    assert house.bus.calls == []


@pytest.mark.req("SESS-20")
async def test_owner_yes_serves_no_client_of_that_name() -> None:
    """A program that calls itself `owner` is not the owner's page: nothing goes out in the owner's name."""
    house = House(MemoryRuns())
    program = house.guest(OWNER)
    run = await asked_here(house, program)
    with pytest.raises(HearthNetError) as caught:
        await desk(house).decide(run, "p", Approve(), via=VIA)
    assert (caught.value.code, caught.value.details) == ("unauthorized", {"rule": "own_key"})
    assert house.bus.calls == []


@pytest.mark.req("SESS-20")
@pytest.mark.parametrize("own_key", [True, False])
async def test_owner_terminal_goes_on_with_no_programs_run(own_key: bool) -> None:
    """What a program called `owner` allowed itself would go out under the node's key, past its scope."""
    house = House(MemoryRuns())
    program = house.guest(OWNER, own_key=own_key)
    run = await asked_here(house, program)
    (listed,) = await house.runs.listing(program.client)
    (asked,) = listed["pending"]
    signed = program.sign(asked["approval"]) if own_key else None
    shown = asked["arguments_digest"]
    await house.decide(program.client, run, "p", Approve(), shown=shown, approval=signed)
    with pytest.raises(HearthNetError) as caught:
        await terminal(house).resume(run)
    assert (caught.value.code, caught.value.details) == ("unauthorized", {"rule": "principal"})
    assert house.bus.calls == []


@pytest.mark.req("SESS-20")
@pytest.mark.parametrize("own_key", [True, False])
async def test_owner_page_run_takes_no_yes_of_a_program(own_key: bool) -> None:
    house = House(MemoryRuns(), WANTS)
    owner, program = page(house), house.guest(OWNER, own_key=own_key)
    run = await asked_here(house, owner)
    for _ in range(2):
        (listed,) = await house.runs.listing(program.client)
        (asked,) = listed["pending"]
        signed = program.sign(asked["approval"]) if own_key else None
        shown = asked["arguments_digest"]
        with pytest.raises(HearthNetError) as caught:
            await house.decide(program.client, run, "p", Approve(), shown=shown, approval=signed)
        assert (caught.value.code, caught.value.details) == ("unauthorized", {"rule": "owner"})
        # It still waits when the command line was there, which leaves the page's key in its place.
        assert (await terminal(house).resume(run))["requires_follow_up"]
    assert (await desk(house).load(run)).record.key == owner.client.key
    assert house.bus.calls == []


@pytest.mark.req("SESS-20")
async def test_owner_terminal_leaves_a_run_that_a_program_went_on_with() -> None:
    house = House(MemoryRuns())
    owner, program = page(house), house.guest(OWNER)
    run = await asked_here(house, owner)
    await (await house.resume(program.client, run, waits=False)).drive()
    with pytest.raises(HearthNetError) as caught:
        await terminal(house).resume(run)
    assert (caught.value.code, caught.value.details) == ("unauthorized", {"rule": "principal"})
    await approve(house, owner, run)
    await (await house.resume(owner.client, run, waits=False)).drive()
    assert sent(house) == (owner.client.key, "", [owner.client.principal])
