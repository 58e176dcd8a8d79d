"""What a listing fetches of the contracts that neighbours supply, and what it does not fetch again."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hearthnet.bus.calls import contract_fetch
from hearthnet.bus.calls.attempt import ConnectionLost
from hearthnet.bus.calls.contract_fetch import MAX_LISTED, ContractLearner
from hearthnet.bus.calls.unary import ReceivedReply
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import versioned
from hearthnet.contracts.registry import contracts
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.protocol.offer import OfferRecord

pytestmark = [pytest.mark.asyncio, pytest.mark.req("ATTACK-31")]
OWN, ANNA, MALLORY = (f"ed25519:{letter * 43}" for letter in "OAM")


def contract(name: str) -> Contract:
    """The contract of a tool."""
    fields = {"name": f"experimental.mcp.tests.{name}", "version": "0.0"}
    return versioned(msgspec.structs.replace(contracts().get("market.list@1.0"), **fields))


def offer(node: str, of: Contract, instance: str = "abcdefgh") -> OfferView:
    """Its offer by a process of `node`."""
    record = OfferRecord(
        capability=of.id, instance=instance, schema_hash=of.schema_hash, params={}, max_concurrent=1,
        in_flight=0, issued_at=0, expires_at=0,
    )  # fmt: skip
    return OfferView(node, parse_capability(of.id), record)


class Providers:
    """Who answers what, and how often each was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.answers: dict[tuple[str, str], Contract | dict[str, Any] | HearthNetError | None] = {}
        self.asked = Counter[tuple[str, str]]()
        self.learner = ContractLearner(Home.resolve(tmp_path), OWN, self.ask, self._no_offers)
        monkeypatch.setattr(contracts(), "_fetched", {})

    async def ask(self, _name: str, body: dict[str, Any], *, node: str, instance: str) -> ReceivedReply:
        """Answer, fail, or never answer."""
        key = node, body["input"]["capability"]
        self.asked[key] += 1
        answer = self.answers[key]
        if answer is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(answer, dict):
            return ReceivedReply({"output": answer}, node, instance)
        if isinstance(answer, Contract):
            return ReceivedReply({"output": {"contract": msgspec.to_builtins(answer)}}, node, instance)
        assert answer is not None
        raise answer

    async def _no_offers(self, *_: Any, **__: Any) -> list[OfferView]:
        return []


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Providers:
    """Nobody has told anything yet."""
    return Providers(monkeypatch, tmp_path)


async def test_a_copied_name_and_instance_hide_no_other_home(providers: Providers) -> None:
    tool = contract("copied")
    providers.answers = {(MALLORY, tool.id): HearthNetError("not_found", "no"), (ANNA, tool.id): tool}
    await providers.learner.fetch_all([offer(ANNA, tool), offer(MALLORY, tool)])
    assert contracts().has_learned(tool.capability)


async def test_of_each_other_home_so_many_contracts_are_fetched(providers: Providers) -> None:
    tools = [contract(f"many{number}") for number in range(MAX_LISTED + 20)]
    providers.answers = {(node, tool.id): tool for node in (OWN, ANNA) for tool in tools}
    offers = [offer(ANNA, tool, instance) for instance in ("aaaaaaaa", "bbbbbbbb") for tool in tools]
    await providers.learner.fetch_all(offers)
    assert len({capability for _, capability in providers.asked}) == MAX_LISTED
    # What is known takes nobody's place, and the own node has as many as it likes.
    await providers.learner.fetch_all(offers)
    assert len({capability for _, capability in providers.asked}) == len(tools)
    contracts()._fetched.clear()
    providers.asked.clear()
    await providers.learner.fetch_all([offer(OWN, tool) for tool in tools])
    assert len(providers.asked) == len(tools)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (HearthNetError("not_found", "no"), contract_fetch.FAILURE_SECONDS),
        (HearthNetError("bad_request", "no"), contract_fetch.FAILURE_SECONDS),
        (HearthNetError("rate_limited", "later"), contract_fetch.BUSY_SECONDS),
        (HearthNetError("partition", "away"), contract_fetch.BUSY_SECONDS),
        (None, contract_fetch.BUSY_SECONDS),
        (ConnectionLost(), 0.0),
    ],
)
async def test_what_failed_is_not_asked_for_again_for_a_while(
    providers: Providers, monkeypatch: pytest.MonkeyPatch, answer: HearthNetError | None, seconds: float
) -> None:
    monkeypatch.setattr(contract_fetch, "LISTING_SECONDS", 0.2)
    good, bad, loop = contract("good"), contract("bad"), asyncio.get_running_loop()
    providers.answers = {(ANNA, good.id): good, (MALLORY, bad.id): answer}
    offers, began = [offer(ANNA, good), offer(MALLORY, bad)], loop.time()
    await providers.learner.fetch_all(offers)
    assert contracts().has_learned(good.capability)
    assert not contracts().has_learned(bad.capability)
    monkeypatch.setattr(loop, "time", lambda: began + seconds - 1)
    await providers.learner.fetch_all(offers)
    assert providers.asked[MALLORY, bad.id] == (1 if seconds else 2)
    providers.answers[MALLORY, bad.id] = bad
    monkeypatch.setattr(loop, "time", lambda: began + seconds + 10)
    await providers.learner.fetch_all(offers)
    assert contracts().has_learned(bad.capability)
    assert providers.asked[ANNA, good.id] == 1


BROKEN = {"properties": {"params": {}, "input": {"oneOf": 5}}}


@pytest.mark.parametrize(
    "output",
    [
        {},
        {"contract": None},
        {"contract": {**msgspec.to_builtins(contract("bad")), "request_schema": BROKEN}},
    ],
    ids=["nothing", "none", "schema"],
)
async def test_a_contract_that_cannot_be_read_is_a_failure_like_others(
    providers: Providers, output: dict[str, Any]
) -> None:
    good, bad = contract("good"), contract("bad")
    providers.answers = {(ANNA, good.id): good, (MALLORY, bad.id): output}
    for _ in range(2):
        await providers.learner.fetch_all([offer(MALLORY, bad), offer(ANNA, good)])
    assert contracts().has_learned(good.capability)
    assert not contracts().has_learned(bad.capability)
    assert providers.asked[MALLORY, bad.id] == 1
