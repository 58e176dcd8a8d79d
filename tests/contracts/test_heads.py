"""The heads that a home sends when it asks for what it lacks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.supervisor.nats.server_config import MAX_PAYLOAD

HEAD = "1:blake3:" + "a" * 64


def _heads(count: int) -> dict[str, Any]:
    return {ids.PREFIX + ids.b64(number.to_bytes(32, "big")): [HEAD] for number in range(count)}


@pytest.mark.req("ATTACK-28")
@pytest.mark.parametrize("name", ["community.sync", "community.join"])
def test_as_many_heads_as_a_frame_holds_are_asked_with(name: str) -> None:
    """Whoever asks to join under an invite is an author, let in or not: no home chooses their number."""
    one = len(msgspec.json.encode(_heads(2))) - len(msgspec.json.encode(_heads(1)))
    contract: Contract = next(contract for contract in contracts() if contract.name == name)
    given = contract.examples[0]["request"]["input"]
    contract.check_request({"params": {}, "input": {**given, "heads": _heads(MAX_PAYLOAD // one)}})
