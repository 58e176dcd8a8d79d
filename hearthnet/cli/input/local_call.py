"""Calls at the node in a home, and those that only it serves, because they act with its key.

See: docs/protocol/admission.md#ladder.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.contracts.contract import Contract
    from hearthnet.core.node_state import NodeState

_RETRY_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.02
_T = TypeVar("_T")


def running_node(home: Home) -> NodeState | None:
    """Return the state of the node that runs in `home`, None if none does."""
    from hearthnet.core.node_state import read_node_state

    try:
        return read_node_state(home)
    except HearthNetError:
        return None


def on_bus(home: Home, work: Callable[[Bus], Awaitable[_T]], name: str = "cli") -> _T:
    """Return what `work` returns, given the bus of the node in `home`.

    Raises as `Bus.connect`: with exit status 3 if no node runs.
    """
    import asyncio

    from hearthnet.bus.bus import Bus

    async def connected() -> _T:
        async with await Bus.connect(home, name=name) as bus:
            return await work(bus)

    return asyncio.run(connected())


def call_node(home: Home, capability: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the output of `capability` with the input `fields`, which is checked before connecting."""
    from hearthnet.bus.bus import find_contract

    request = {"params": {}, "input": fields}
    find_contract(capability).check_request(request)

    async def called(bus: Bus) -> dict[str, Any]:
        return dict((await bus.call(capability, request)).output)

    return on_bus(home, called)


def call_local_node(home: Home, capability: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the output of `capability` with the input `fields`, from the node in `home`.

    A missing client_id is added. If the call made an event, this waits until the roster in `home` has it, so
    that the next command sees it, for some seconds at most. Raises the errors of the node, and one with exit
    status 3 if none runs.
    """
    from hearthnet.bus.bus import find_contract

    request = {"params": {}, "input": fields}
    fill_client_id(find_contract(capability), request)

    async def called(bus: Bus) -> dict[str, Any]:
        return dict((await bus.call(capability, request, node=bus.peer.node_id)).output)

    output = on_bus(home, called)
    if "event_id" in output:
        _wait_for(home, str(output["event_id"]).encode("utf-8"))
    return output


def _wait_for(home: Home, event_id: bytes) -> None:
    """Wait until the supervisor has stored the event."""
    import contextlib
    import time

    end = time.monotonic() + _RETRY_SECONDS
    with contextlib.suppress(OSError):
        while event_id not in home.roster.read_bytes() and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)


def fill_client_id(contract: Contract, request: Any) -> str:
    """Add a missing client_id to a call that happens once per client_id; return it, else ""."""
    from hearthnet.core.ids import new_ulid

    fields = request.get("input") if isinstance(request, dict) else None
    if contract.idempotent != "client_id" or not isinstance(fields, dict) or "client_id" in fields:
        return ""
    fields["client_id"] = new_ulid()
    return str(fields["client_id"])
