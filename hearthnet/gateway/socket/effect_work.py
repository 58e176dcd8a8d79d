"""A call with an effect that a client makes itself, without a model.

A client without a key approves by making the call. A client with a key is shown the body to be sent, as by
a run (`confirmation_required`), and signs it.

See: docs/protocol/gateway.md#confirmations.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hearthnet.bus.bus import Bus
from hearthnet.contracts import Contract
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.api.direct_effects import approved
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.socket.channel import Channel
from hearthnet.gateway.socket.frames import Confirm, ToolResult
from hearthnet.gateway.socket.work import BusWork
from hearthnet.trust.authorization.approval import Approval

_NOT_SIGNED = "this takes your signed approval of exactly what is shown, or a no"


class EffectWork(BusWork):
    """One effect, from the question to its result."""

    def __init__(
        self,
        channel: Channel,
        bus: Bus,
        client: Client,
        contract: Contract,
        body: dict[str, Any],
        token: str,
        timeout: float | None,
    ) -> None:
        self._bus = bus
        self._client = client
        self._contract = contract
        self._body = body
        self._said: asyncio.Future[Confirm] = asyncio.get_running_loop().create_future()
        self._approval: Approval | None = None
        self._token = token
        self._timeout = timeout
        super().__init__(channel, self._work)

    async def heard(self, frame: ToolResult | Confirm) -> None:
        """Handle a decision about the question. Errors of the approval are passed through.

        Raises:
            HearthNetError: `not_found` if there is no open question; `bad_request` for an edit (the client
                can make another call instead).
        """
        if isinstance(frame, ToolResult) or self._said.done() or not self._client.key:
            raise HearthNetError("not_found", "nothing is asked here")
        if frame.decision == "edit":
            raise HearthNetError("bad_request", "a call of your own is not edited; make another one")
        if frame.decision == "approve":
            if frame.approval is None:
                raise HearthNetError("unauthorized", _NOT_SIGNED, details={"rule": "approval"})
            self._approval = await self._approved(frame.approval)
        if not self._said.done():
            self._said.set_result(frame)

    async def _approved(self, signed: dict[str, Any] | None) -> Approval | None:
        """Return the approval; None after sending the client the approval to sign."""
        found = await approved(self._bus, self._client, self._contract, self._body, signed)
        if isinstance(found, Approval):
            return found
        self._channel.put("confirmation_required", found)
        return None

    async def _work(self, channel: Channel) -> None:
        self._approval = await self._approved(None)
        if self._approval is None and (await self._said).decision == "deny":
            channel.put("done", {"stop_reason": "denied"})
            return
        reply = await self._bus.call(
            self._contract.id,
            self._body,
            token=self._token,
            approval=self._approval,
            timeout_seconds=self._timeout,
        )
        channel.put("result", {**reply.body, "provider": reply.provider})
        channel.put("done", {})
