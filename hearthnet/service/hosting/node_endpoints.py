"""The methods that every process has for nodes: its own contracts, and the traces of its calls.

They are those of contracts/node.contract@1.0.json and contracts/node.trace.list@1.0.json. The first is built
into every service with contracts of its own, the second into every service. Both are left out of the lists
of offers: their callers know the processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hearthnet.bus.calls.contract_fetch import CONTRACT
from hearthnet.bus.session.session import Session
from hearthnet.bus.session.tracing import UNTRACED
from hearthnet.core.errors import HearthNetError
from hearthnet.service.authoring.function_capability import NoParams
from hearthnet.service.call import Call, Reply
from hearthnet.service.decorators import Offer, capability
from hearthnet.telemetry.names import WORKED
from hearthnet.telemetry.span import SpanRecord


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


class TraceRequest(msgspec.Struct, frozen=True):
    """The input."""

    after: int
    limit: int
    trace: str = ""
    capability: str = ""
    code: str = ""

    def wants(self, entry: SpanRecord) -> bool:
        """Return whether `entry` matches the filters."""
        return (
            entry.trace.startswith(self.trace)
            and self.capability in ("", entry.capability, entry.capability.partition("@")[0])
            and self.code in ("", entry.code or WORKED)
        )


class TraceEndpoint:
    """The library's method that every service has."""

    OFFER: Final = Offer(capability=UNTRACED)

    def __init__(self, peer: Session, service: str) -> None:
        self._peer = peer
        self._service = service

    @capability(UNTRACED)
    async def list(self, call: Call[NoParams, TraceRequest]) -> Reply:
        """Return the newest matching entries, oldest first."""
        asked, traces = call.input, self._peer.traces
        found = deque((each for each in traces.after(asked.after) if asked.wants(each[1])), asked.limit)
        return Reply(
            {
                "service": self._service,
                "instance": self._peer.instance,
                "newest": traces.count,
                "steps": [_step(number, entry) for number, entry in found],
            }
        )


def _step(number: int, entry: SpanRecord) -> dict[str, Any]:
    return {
        "number": number,
        "at": (entry.epoch_ns + entry.began_ns) // 1000,
        "side": entry.side,
        "capability": entry.capability,
        "peer": entry.peer,
        "call": entry.call,
        "trace": entry.trace,
        "span": entry.span,
        "parent": entry.parent,
        "handler": entry.handler,
        "run": entry.run,
        "code": entry.code or WORKED,
        "ms": entry.took_ns / 1e6,
        "handler_ms": entry.handler_took_ns / 1e6,
        "bytes_in": entry.bytes_in,
        "bytes_out": entry.bytes_out,
        "attempts": entry.attempts,
        "frames": entry.frames,
    }
