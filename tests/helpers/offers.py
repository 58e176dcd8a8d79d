"""Waiting for offers, as a process of the mesh lists them."""

from __future__ import annotations

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from tests.helpers.waiting import wait_for

_SECONDS = 30


async def offered(bus: Bus, capability: str, count: int = 1) -> list[OfferView]:
    """The offers of `capability`, by capability, node and process, once there are `count` of them.

    A list says who has answered so far; on a busy machine somebody may be later.
    """

    async def all_there() -> list[OfferView] | None:
        views = await bus.offers(capability)
        return views if len(views) == count else None

    return await wait_for(all_there, _SECONDS, f"{count} offers of {capability}")
