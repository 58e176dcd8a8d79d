"""A tool run behind a stream: frames to the client, answers from it (docs/tools.md).

An edit by a client with a key takes two frames. The first has the new arguments and is answered with
`confirmation_edited`, the call to be signed; the second has the approval.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from hearthnet.agent.runtime.client_tools import ClientTools
from hearthnet.agent.runtime.driver import Outcome
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.http.errors import as_hearthnet_error
from hearthnet.gateway.runs.run import Follower, GatewayRun, RunRequest
from hearthnet.gateway.runs.runs import GatewayRuns
from hearthnet.gateway.socket.channel import Channel
from hearthnet.gateway.socket.frames import Confirm, ToolResult

VIA: Final = "socket"
_GATEWAY_ENDS: Final = HearthNetError(
    "partition", "the gateway ends; resume the run", details={"rule": "provider_stopping"}
)


class RunWork:
    """One run that a client follows."""

    def __init__(self, runs: GatewayRuns, client: Client, channel: Channel) -> None:
        self._tools = ClientTools()
        self._runs = runs
        self._client = client
        self._channel = channel
        self._run: GatewayRun | None = None
        self._asked: dict[str, str] = {}
        """The tool call of each question."""

    async def _hear(self, frame: dict[str, Any]) -> None:
        """Pass on a frame of the run."""
        event, data = frame["event"], frame["data"]
        if event == "confirmation_required":
            self._asked[data["confirmation_id"]] = data["tool_call_id"]
        if self._channel.full:
            await self._channel.room()
        self._channel.put(event, data)

    async def begin(self, asked: RunRequest) -> asyncio.Task[Outcome]:
        """Open the run and start driving it; raises as `GatewayRuns.open`."""
        run = await self._runs.open(self._client, asked, Follower(self._hear, self._tools, via=VIA))
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

    async def heard(self, frame: ToolResult | Confirm) -> None:
        """Handle a result of a client tool, or a decision. Errors of the run are passed through.

        Raises:
            HearthNetError: `not_found` for a call or question that is unknown here.
        """
        if isinstance(frame, ToolResult):
            self._tools.give(frame.tool_call_id, frame.content, is_error=frame.is_error)
            return
        call = self._asked.get(frame.confirmation_id)
        if call is None:
            raise HearthNetError("not_found", f"no question {frame.confirmation_id[:80]!r} was asked here")
        if frame.decision == "edit" and self._client.key and frame.approval is None:
            edited = await self._runs.preview(self._client, self._channel.run, call, frame.arguments or {})
            self._channel.put("confirmation_edited", edited)
            return
        taken = await self._runs.decide(self._client, self._channel.run, call, frame, VIA)
        if taken["repeated"]:
            self._channel.put("notice", {"code": "decided_before", "tool_call_id": call, **taken})
