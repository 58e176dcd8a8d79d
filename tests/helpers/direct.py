"""One call to one process, as no program of the bus sends it: unchecked, once, and the answer as it is."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.bus.calls.attempt import PendingReply, Request, parse_body, send_request
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.contract import Contract
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError

SECONDS = 60.0


class Unanswered(HearthNetError):
    """Nothing came back: the process is gone, or has nothing to say."""


async def ask(
    bus: Bus, view: OfferView, contract: Contract, body: Any, seconds: float = SECONDS
) -> dict[str, Any]:
    """The body of the answer; raises the error in it, and `Unanswered` where none comes.

    `body` is checked by nobody here; as bytes it goes out as it is. It is asked once, whatever comes.
    """
    key = body.get("input", {}).get("client_id", "") if isinstance(body, dict) else ""
    sent = cast("dict[str, Any]", msgspec.Raw(body) if isinstance(body, bytes) else body)
    request = Request(contract=contract, body=sent, idempotency_key=key if isinstance(key, str) else "")
    trace = bus.peer.traces.calling(contract.id, "")
    answer = PendingReply(bus.peer, view, ids.new_ulid())
    until = asyncio.get_running_loop().time() + seconds
    try:
        send_request(bus.peer, request, view, "call", answer.call_id, until, trace)
        try:
            frame = await answer.within(until)
        except HearthNetError as error:
            raise Unanswered(error.code, error.message) from error
        return parse_body(frame)
    finally:
        answer.forget()
        bus.peer.traces.end(trace)
