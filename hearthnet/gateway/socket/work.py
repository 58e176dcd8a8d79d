"""The work behind a stream: a call of the mesh under the client's token, or a tool run.

    stream      the provider's own frames
    unary call  `result` {output, meta}, then `done` {}
    effect      for a client with a key first `confirmation_required`, the body to be sent, which it signs;
                a client without one approves by making the call
    run         the frames of docs/tools.md; an edit by a client with a key takes two frames: the first has
                the new arguments and is answered with `confirmation_edited`, the second has the approval

See: docs/protocol/gateway.md#confirmations.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final

import msgspec

from hearthnet.agent.loop.happened import HAPPENED, of_call, unsent, with_list
from hearthnet.agent.runtime.client_tools import ClientTools
from hearthnet.agent.runtime.driver import Outcome
from hearthnet.bus.bus import Bus
from hearthnet.core.errors import HearthNetError, Unavailable
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.http.errors import as_hearthnet_error
from hearthnet.gateway.runs.calls import MeshCall, answer, approved, stream_frames
from hearthnet.gateway.runs.run import Follower, GatewayRun, RunRequest
from hearthnet.gateway.runs.runs import GatewayRuns
from hearthnet.gateway.socket.channel import Channel
from hearthnet.gateway.socket.frames import Confirm, ToolResult
from hearthnet.trust.authorization.approval import Approval

CANCELLED: Final[dict[str, Any]] = {"stop_reason": "cancelled"}
_NOT_SIGNED = "this takes your signed approval of exactly what is shown, or a no"


class CallWork:
    """One call of the mesh, put into a channel no faster than that takes it."""

    def __init__(self, channel: Channel, bus: Bus, client: Client, call: MeshCall) -> None:
        self._channel = channel
        self._bus = bus
        self._client = client
        self._call = call
        self._decided: asyncio.Future[Confirm] = asyncio.get_running_loop().create_future()
        self._approval: Approval | None = None
        self.task = asyncio.create_task(self._run(), name=f"stream {channel.stream}")
        # A callback, since a task that is cancelled before its first step would never end the stream.
        self.task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Stop the call at the provider."""
        self.task.cancel()

    async def handle(self, frame: ToolResult | Confirm) -> None:
        """Handle a decision about the question. Errors of the approval are passed through.

        Raises:
            HearthNetError: `not_found` if there is no open question; `bad_request` for an edit (the client
                can make another call instead), and for a call without effect, which has no questions.
        """
        if not self._call.contract.side_effects:
            raise HearthNetError("bad_request", "this call asks its client nothing")
        if isinstance(frame, ToolResult) or self._decided.done() or not self._client.key:
            raise HearthNetError("not_found", "nothing is asked here")
        if frame.decision == "edit":
            raise HearthNetError("bad_request", "a call of your own is not edited; make another one")
        if frame.decision == "approve":
            if frame.approval is None:
                raise HearthNetError("unauthorized", _NOT_SIGNED, rule="approval")
            self._approval = await self._approved(frame.approval)
        if not self._decided.done():
            self._decided.set_result(frame)

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
                try:
                    self._approval = await self._approved(None)
                except HearthNetError as error:
                    raise with_list(error, unsent(contract.id)) from error
                if self._approval is None and (await self._decided).decision == "deny":
                    channel.put("done", {"stop_reason": "denied", HAPPENED: unsent(contract.id)})
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
        if not task.cancelled():
            return
        contract, end = self._call.contract, dict(CANCELLED)
        if contract.side_effects:
            end[HAPPENED] = unsent(contract.id) if self._approval is None else of_call(contract.id, "", "")
        self._channel.put("done", end)


VIA: Final = "socket"
_GATEWAY_ENDS: Final = Unavailable("the gateway ends; resume the run", rule="provider_stopping")


class RunWork:
    """One run that a client follows."""

    def __init__(self, runs: GatewayRuns, client: Client, channel: Channel) -> None:
        self._tools = ClientTools()
        self._runs = runs
        self._client = client
        self._channel = channel
        self._run: GatewayRun | None = None
        self._pending: dict[str, str] = {}
        """The tool call of each question."""

    async def _hear(self, frame: dict[str, Any]) -> None:
        """Pass on a frame of the run."""
        event, data = frame["event"], frame["data"]
        if event == "confirmation_required":
            self._pending[data["confirmation_id"]] = data["tool_call_id"]
        if self._channel.full:
            await self._channel.room()
        self._channel.put(event, data)

    async def begin(self, request: RunRequest) -> asyncio.Task[Outcome]:
        """Open the run and start driving it; raises as `GatewayRuns.open`."""
        run = await self._runs.open(self._client, request, Follower(self._hear, self._tools, via=VIA))
        self._run, self._channel.run = run, run.run
        task = run.drive()
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Outcome]) -> None:
        error = _GATEWAY_ENDS if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._channel.put("error", as_hearthnet_error(error).to_body())

    def cancel(self) -> None:
        """End the run; its last frame reports that."""
        if self._run is not None:
            self._run.cancel()

    def left(self) -> None:
        """Note that the client is away: the run continues, and waits a while for decisions."""
        if self._run is not None:
            self._run.presence.leave()

    def back(self) -> None:
        """Note that the client is connected again."""
        if self._run is not None:
            self._run.presence.come_back()

    async def close(self) -> None:
        """Leave the run as it is: it continues without a follower, and its result is stored."""

    async def handle(self, frame: ToolResult | Confirm) -> None:
        """Handle a result of a client tool, or a decision. Errors of the run are passed through.

        Raises:
            HearthNetError: `not_found` for a call or question that is unknown here.
        """
        if isinstance(frame, ToolResult):
            self._tools.give(frame.tool_call_id, frame.content, is_error=frame.is_error)
            return
        call = self._pending.get(frame.confirmation_id)
        if call is None:
            raise HearthNetError("not_found", f"no question {frame.confirmation_id[:80]!r} was asked here")
        if frame.decision == "edit" and self._client.key and frame.approval is None:
            edited = await self._runs.preview(self._client, self._channel.run, call, frame.arguments or {})
            self._channel.put("confirmation_edited", edited)
            return
        taken = await self._runs.decide(self._client, self._channel.run, call, frame, VIA)
        if taken["repeated"]:
            self._channel.put("notice", {"code": "decided_before", "tool_call_id": call, **taken})
