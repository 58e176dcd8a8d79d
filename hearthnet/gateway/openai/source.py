"""The source of a completion's frames: a model, a new run, or a continued run.

Without tools of the mesh, a completion is one call of `llm.chat`, and the model calls the client's own
tools. With them it is a run, which this API can continue in three ways: by `hearthnet.run`, by results of
calls that a run handed out, and by a conversation whose last answer names a waiting run.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.tools.builtin import builtin_tools
from hearthnet.bus import find_contract
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.openai.answer import run_and_call, run_named_in
from hearthnet.gateway.openai.request import OpenAIRequest
from hearthnet.gateway.runs.calls import Frames, MeshCall, stream_frames
from hearthnet.gateway.runs.follow_up import FollowUps
from hearthnet.gateway.runs.requested_tools import CHAT
from hearthnet.gateway.runs.run import FollowUp, NewRun

if TYPE_CHECKING:
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway

_RUN_ENDED: Final = frozenset({"not_found", "expired"})
_TEXT_SCHEMA: Final = {
    "type": "object",
    "required": ["input"],
    "properties": {"input": {"type": "string"}},
    "additionalProperties": False,
}


class Continued(NamedTuple):
    """The run that a request continues; `surely` where the request names it itself."""

    follow_up: FollowUp
    surely: bool


def continued(completion: OpenAIRequest) -> Continued | None:
    """Return the run that `completion` continues, None where it begins a new one."""
    answers = _answers(completion.body["input"]["messages"])
    if completion.run:
        own = {call: result for run, call, result in answers if run == completion.run}
        return Continued(FollowUp(completion.run, {}, own), surely=True)
    if answers and len({run for run, _, _ in answers}) == 1:
        return Continued(
            FollowUp(answers[0][0], {}, {call: result for _, call, result in answers}), surely=False
        )
    waits = run_named_in(completion.last_answer)
    if waits and not answers and completion.body["input"]["messages"][-1]["role"] == "user":
        return Continued(FollowUp(waits), surely=False)
    return None


def _answers(messages: list[dict[str, Any]]) -> list[tuple[str, str, ClientResult]]:
    """Return the results at the end of the conversation, by run and call.

    The list is empty if one of them is not of a run.
    """
    found = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        known = run_and_call(message["tool_call_id"])
        if known is None:
            return []
        found.append((*known, ClientResult(message["content"])))
    return found


class RunSource:
    """Opens the frames of completions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._follow_ups = FollowUps(gateway)

    async def frames(self, client: Client, completion: OpenAIRequest) -> tuple[Frames, bool]:
        """Return the frames, and whether they are of a run."""
        goes_on = continued(completion)
        if goes_on is not None:
            return self._going_on(client, completion, goes_on), True
        if completion.with_mesh:
            return self._follow_ups.frames(client, await self._with_tools(client, completion)), True
        client.check_covers(CHAT)
        body = {**completion.body, "input": {**completion.body["input"], "stream": True}}
        bus, token = self._gateway.bus, self._gateway.clients.token(client)
        node = bus.peer.node_id if completion.stored else ""
        return stream_frames(bus, MeshCall(find_contract(CHAT), body, token, node=node)), False

    async def _going_on(self, client: Client, completion: OpenAIRequest, goes_on: Continued) -> Frames:
        """Yield the frames of the run, or of a new one where the run no longer exists."""
        try:
            async with aclosing(self._follow_ups.frames(client, goes_on.follow_up)) as frames:
                async for frame in frames:
                    yield frame
            return
        except HearthNetError as error:
            if goes_on.surely or error.code not in _RUN_ENDED:
                raise
        request = await self._with_tools(client, completion)
        async with aclosing(self._follow_ups.frames(client, request)) as frames:
            async for frame in frames:
                yield frame

    async def _with_tools(self, client: Client, completion: OpenAIRequest) -> NewRun:
        """Return the request of a run, with tools of the mesh and the client's own."""
        client.check_covers(CHAT)
        given = dict(completion.body["input"])
        own = [_client_tool(tool) for tool in given.pop("tools", [])]
        mesh = completion.mesh_tools
        if mesh is None:
            mesh = list(offered_tools(await self._gateway.bus.offers()))
        return NewRun({**completion.body, "input": {**given, "tools": [*mesh, *own]}})


def offered_tools(views: Iterable[OfferView]) -> list[str]:
    """Return the built-in tools whose capability is offered now."""
    offered = {(view.capability.name, view.capability.major) for view in views}
    return [
        tool.name
        for tool in builtin_tools()
        if (tool.bound_capability, (tool.bound_version or (0, 0))[0]) in offered
    ]


def _client_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a client tool as a run takes it; a text is the only argument of its tool."""
    schema = _TEXT_SCHEMA if "text" in tool else tool["parameters_schema"]
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters_schema": schema}
