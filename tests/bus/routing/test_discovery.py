"""Finds in progress: the answers that end them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hearthnet.bus.routing.discovery import FindRequest
from hearthnet.bus.routing.offer_registry import Registry
from hearthnet.contracts.registry import contracts
from hearthnet.core.times import now_ms
from hearthnet.protocol.offer import Notice, OfferRecord, encode
from hearthnet.trust.keys import Identity
from tests.helpers.waiting import wait_for

OWN, OTHER = (Identity(bytes([number]) * 32).node_id for number in (1, 2))


@pytest.mark.req("ATTACK-34")
@pytest.mark.asyncio
async def test_another_nodes_answer_does_not_stand_for_an_own_service() -> None:
    contract, now = contracts().get("market.post@1.0"), now_ms()
    record = OfferRecord(
        capability=contract.id,
        instance="bbbbbbbb",
        schema_hash=contract.schema_hash,
        params={},
        max_concurrent=1,
        in_flight=0,
        issued_at=now,
        expires_at=now + 20_000,
        service="market",
    )
    answered: list[set[str]] = []

    def silent(services: set[str]) -> bool:
        answered.append(set(services))
        return "market" not in services

    finding = FindRequest(OWN, Registry(OWN), silent, lists=True)

    def hears(sender: str) -> None:
        frame: Any = SimpleNamespace(
            header=SimpleNamespace(kind="offer", sender=sender), body=encode(Notice((record,)))
        )
        finding.on_frame(frame)

    hears(OTHER)
    await wait_for(lambda: bool(answered), what="the question whether an own service is silent")
    assert not finding.settled
    hears(OWN)
    await finding.wait(lambda: False, lambda: True)
    assert answered[-1] == {"market"}
    assert answered[0] == set()
