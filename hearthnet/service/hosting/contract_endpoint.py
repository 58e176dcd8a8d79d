"""The method that supplies a process's own contracts (contracts/node.contract@1.0.json).

Built into every service with such contracts, and left out of the lists of offers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.core.errors import HearthNetError
from hearthnet.service.call import Call, Reply
from hearthnet.service.decorators import Offer, capability

CONTRACT: Final = "node.contract@1.0"


class NoParams(msgspec.Struct, frozen=True):
    """Empty params."""


class ContractRequest(msgspec.Struct, frozen=True):
    """The input."""

    capability: str


class ContractEndpoint:
    """The library's method for contracts of a service.

    `find` returns the output for a capability that is offered to a node now: its contract, and `signed` for
    one of a package.
    """

    OFFER: Final = Offer(capability=CONTRACT)

    def __init__(self, find: Callable[[str, str], dict[str, Any] | None]) -> None:
        self._find = find

    @capability(CONTRACT)
    async def get_contract(self, call: Call[NoParams, ContractRequest]) -> Reply:
        """Return one contract, whole."""
        found = self._find(call.input.capability, call.caller)
        if found is None:
            raise HearthNetError("not_found", f"{call.input.capability} is not offered by this process now")
        return Reply(found)
