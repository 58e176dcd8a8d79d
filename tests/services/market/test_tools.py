"""What a model may do to posts: change, end and delete those of whom it works for, each after a yes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hearthnet.agent.runtime.driver import Outcome
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.agent.tools.types import Approve, Decision, Deny, PendingApproval
from hearthnet.bus.bus import Bus
from hearthnet_market import MarketService
from tests.agent.test_over_the_bus import speaking, text, wants
from tests.helpers.mesh import Mesh
from tests.helpers.probe import CHAT_BODY
from tests.services.market.trade import do, listed, post

pytestmark = pytest.mark.asyncio
_TOOLS = ["market_update", "market_expire", "market_delete"]
_CHANGES: dict[str, dict[str, Any]] = {
    "market_update": {"fields": {"body": "Until Friday."}},
    "market_expire": {"reason": "fulfilled"},
    "market_delete": {},
}


class Asked:
    """A person who says the same to everything, and what was shown."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self.shown: list[PendingApproval] = []

    async def __call__(self, pending: PendingApproval) -> Decision:
        self.shown.append(pending)
        return self._decision


@contextlib.asynccontextmanager
async def _market(mesh: Mesh) -> AsyncIterator[Bus]:
    async with mesh.hosting(MarketService()), await mesh.bus() as bus:
        yield bus


async def _run(mesh: Mesh, bus: Bus, asked: Asked, tool: str, arguments: dict[str, Any]) -> Outcome:
    """A run in which the model calls that tool, and then says something."""
    async with mesh.hosting(speaking([wants(tool, arguments, "a")], [text("Well.")])):
        return await ToolExecutor(bus, builtin_tools(_TOOLS)).open_run(CHAT_BODY, decide=asked).drive()


def _result(outcome: Outcome) -> str:
    (result,) = [message for message in outcome.messages if message["role"] == "tool"]
    return str(result["content"])


@pytest.mark.req("TOOL-5", "TOOL-20", "MARKET-14", "MARKET-17")
@pytest.mark.parametrize("tool", _TOOLS)
async def test_ones_own_post_is_changed_once_after_a_yes(mesh: Mesh, tool: str) -> None:
    async with _market(mesh) as bus:
        one = await post(bus)
        asked = Asked(Approve())
        outcome = await _run(mesh, bus, asked, tool, {"event_id": one, **_CHANGES[tool]})
        (shown,) = asked.shown
        assert shown.body["input"] | {"event_id": one, **_CHANGES[tool]} == shown.body["input"]
        assert '"event_id"' in _result(outcome)
        current = await listed(bus)
        assert [found["body"] for found in current.values()] == (
            ["Until Friday."] if tool == "market_update" else []
        )
        events = (await do(bus, "export"))["events"]
        assert len(events) == {"market_update": 2, "market_expire": 2, "market_delete": 0}[tool]


@pytest.mark.req("TOOL-5", "MARKET-14", "MARKET-17")
@pytest.mark.parametrize("tool", _TOOLS)
async def test_after_a_no_the_post_is_as_it_was(mesh: Mesh, tool: str) -> None:
    async with _market(mesh) as bus:
        one = await post(bus)
        before = await listed(bus)
        asked = Asked(Deny("not today"))
        outcome = await _run(mesh, bus, asked, tool, {"event_id": one, **_CHANGES[tool]})
        assert len(asked.shown) == 1
        assert "denied" in _result(outcome)
        assert await listed(bus) == before


@pytest.mark.req("TOOL-5", "MARKET-14", "MARKET-17")
@pytest.mark.parametrize("tool", ["market_update", "market_delete"])
async def test_the_post_of_somebody_else_stays_whatever_was_approved(mesh: Mesh, tool: str) -> None:
    async with _market(mesh) as bus, await mesh.guest_bus() as member:
        theirs = await post(member, "Theirs")
        before = await listed(bus)
        outcome = await _run(mesh, bus, Asked(Approve()), tool, {"event_id": theirs, **_CHANGES[tool]})
        assert _result(outcome).startswith("unauthorized: only its author")
        assert await listed(bus) == before


@pytest.mark.req("TOOL-20", "MARKET-17")
@pytest.mark.parametrize("arguments", [{}, {"all": True}])
async def test_a_model_deletes_one_post_by_its_id_and_never_all(
    mesh: Mesh, arguments: dict[str, Any]
) -> None:
    async with _market(mesh) as bus:
        await post(bus)
        asked = Asked(Approve())
        outcome = await _run(mesh, bus, asked, "market_delete", arguments)
        assert asked.shown == []
        assert "invalid_arguments" in _result(outcome)
        assert len(await listed(bus)) == 1
