"""Calls that only the own node serves: they act with its key (resolutions.md 62, 63)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hearthnet.config import Home


def ask_own(home: Home, capability: str, given: dict[str, Any]) -> dict[str, Any]:
    """The output of `capability` with the input `given`, from the node that runs in `home` itself.

    A call that happens once per client_id gets one where it has none. Raises what the node raises, and with
    exit status 3 where none runs.
    """
    import asyncio

    return asyncio.run(_ask(home, capability, given))


async def _ask(home: Home, capability: str, given: dict[str, Any]) -> dict[str, Any]:
    from hearthnet.bus import Bus, find_contract
    from hearthnet.cli.call import fill_client_id

    request = {"params": {}, "input": given}
    fill_client_id(find_contract(capability), request)
    async with await Bus.connect(home, name="cli") as bus:
        reply = await bus.call(capability, request, node=bus.peer.node_id)
        return dict(reply.output)
