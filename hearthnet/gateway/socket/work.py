"""The work behind a stream: a call of the mesh, made under the client's token.

    stream      the provider's own frames
    unary call  `result` {output, meta}, then `done` {}
    effect      for a client with a key first `confirmation_required`, the body to be sent, which it signs;
                a client without one approves by making the call

See: docs/protocol/gateway.md#confirmations.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final

import msgspec

from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.http.errors import as_hearthnet_error
from hearthnet.gateway.runs.calls import MeshCall, answer, approved, stream_frames
from hearthnet.gateway.socket.channel import Channel
from hearthnet.gateway.socket.frames import Confirm, ToolResult
from hearthnet.trust.authorization.approval import Approval

CANCELLED: Final = {"stop_reason": "cancelled"}
_NOT_SIGNED = "this takes your signed approval of exactly what is shown, or a no"


class CallWork:
    """One call of the mesh, put into a channel no faster than that takes it."""

    def __init__(self, channel: Channel, bus: Bus, client: Client, call: MeshCall) -> None:
        self._channel = channel
        self._bus = bus
        self._client = client
        self._call = call
        self._said: asyncio.Future[Confirm] = asyncio.get_running_loop().create_future()
        self._approval: Approval | None = None
        self.task = asyncio.create_task(self._run(), name=f"stream {channel.stream}")
        # A callback, since a task that is cancelled before its first step would never end the stream.
        self.task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Stop the call at the provider."""
        self.task.cancel()

    async def heard(self, frame: ToolResult | Confirm) -> None:
        """Handle a decision about the question. Errors of the approval are passed through.

        Raises:
            HearthNetError: `not_found` if there is no open question; `bad_request` for an edit (the client
                can make another call instead), and for a call without effect, which has no questions.
        """
        if not self._call.contract.side_effects:
            raise HearthNetError("bad_request", "this call asks its client nothing")
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

    def left(self) -> None:
        """Do nothing: the provider continues, as far as the channel has room."""

    def back(self) -> None:
        """Do nothing: the channel has the frames that were put since."""

    async def close(self) -> None:
        """Stop the call at the provider, and wait for its end."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def _run(self) -> None:
        channel, contract = self._channel, self._call.contract
        try:
            if contract.stream_schema is not None:
                async with aclosing(stream_frames(self._bus, self._call)) as frames:
                    async for frame in frames:
                        if channel.full:
                            await channel.room()
                        channel.put(frame["event"], frame["data"])
                return
            if contract.side_effects:
                self._approval = await self._approved(None)
                if self._approval is None and (await self._said).decision == "deny":
                    channel.put("done", {"stop_reason": "denied"})
                    return
            call = msgspec.structs.replace(self._call, approval=self._approval)
            channel.put("result", await answer(self._bus, call))
            channel.put("done", {})
        except Exception as error:
            channel.put("error", as_hearthnet_error(error).to_body())

    async def _approved(self, signed: dict[str, Any] | None) -> Approval | None:
        """Return the approval; None after sending the client the approval to sign."""
        found = await approved(self._bus, self._client, self._call.contract, self._call.body, signed)
        if isinstance(found, Approval):
            return found
        self._channel.put("confirmation_required", found)
        return None

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._channel.put("done", dict(CANCELLED))
