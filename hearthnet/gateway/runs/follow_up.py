"""The follow-up flow: a run for a client that sends one request per turn, without a socket.

    {"capability": "llm.chat", "body": ...}      -> {"requires_follow_up": true, "run", "pending", "wanted"}
    {"run", "decisions": {...}, "answers": {}}   -> the same again, or the answer

Each turn ends as soon as it needs the client, and is saved before the response is sent. A follow-up may be
repeated, also to another process: stored decisions stay, and an answer counts if its call still waits.

See: docs/protocol/gateway.md#follow-ups, docs/gateway.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hearthnet.agent.loop.happened import HAPPENED
from hearthnet.agent.runtime.driver import Outcome
from hearthnet.agent.runtime.ports import Listener
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.http.sse import end
from hearthnet.gateway.runs.calls import Frame, Frames
from hearthnet.gateway.runs.run import Follower, FollowUp, GatewayRun, RunRequest

if TYPE_CHECKING:
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway

VIA: Final = "http"
_ENDED: Final = "ended"
_MOST_WAITING: Final = 32


class FollowUps:
    """The runs of clients that send one request per turn."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._turns = RunDeduplicator()

    async def answer(self, client: Client, request: RunRequest) -> dict[str, Any]:
        """Run the next turn to its end; return the answer again if the run has ended.

        Raises the errors of `GatewayRuns.decide` and `GatewayRuns.open`.
        """
        if not isinstance(request, FollowUp):
            return await self._turn_response(
                client, await (await self._open(client, request, _unheard)).drive()
            )
        await self._decide(client, request)
        while True:
            opening = partial(self._open, client, request, _unheard)
            try:
                outcome, joined = await self._turns.outcome(client.principal, request.run, opening)
            except HearthNetError as error:
                return await self._repeated_response(client, request.run, error)
            # Where another request drove it, our answers were not used; use those that are still wanted.
            wanted = {one.tool_call_id for one in outcome.wanted} if joined else set()
            answers = {call: request.answers[call] for call in wanted & request.answers.keys()}
            if not answers:
                return await self._turn_response(client, outcome)
            request = msgspec.structs.replace(request, answers=answers)

    async def frames(self, client: Client, request: RunRequest) -> Frames:
        """Yield the frames of the next turn; yield the answer again if the run has ended."""
        if isinstance(request, FollowUp):
            await self._decide(client, request)
        try:
            async with aclosing(run_frames(partial(self._open, client, request))) as frames:
                async for frame in frames:
                    yield frame
        except HearthNetError as error:
            if not isinstance(request, FollowUp):
                raise
            response = await self._repeated_response(client, request.run, error)
            text = response["output"]["message"].get("content") or ""
            yield {"event": "token", "data": {"text": text}, "seq": 1}
            yield {"event": "done", "data": response["meta"], "seq": 2}

    async def _decide(self, client: Client, request: FollowUp) -> None:
        """Store the decisions, after all of them have been read."""
        for given in request.decisions.values():
            given.decided()
        for call, given in request.decisions.items():
            await self._gateway.runs.decide(client, request.run, call, given, VIA)

    async def _open(self, client: Client, request: RunRequest, hear: Listener) -> GatewayRun:
        return await self._gateway.runs.open(client, request, Follower(hear, waits=False, via=VIA))

    async def _turn_response(self, client: Client, outcome: Outcome) -> dict[str, Any]:
        """Return the response for the end of a turn: the answer, or its open calls."""
        response = {"run": outcome.run, "output": {"message": outcome.message}}
        if outcome.done is not None:
            return {"requires_follow_up": False, **response, "meta": outcome.done}
        page = await self._gateway.runs.page(client, outcome.run)
        wanted = msgspec.to_builtins(outcome.wanted)
        waits = {"pending": page["pending"], "wanted": wanted, HAPPENED: page[HAPPENED]}
        return {"requires_follow_up": True, **response, **waits}

    async def _repeated_response(self, client: Client, run: str, error: HearthNetError) -> dict[str, Any]:
        """Return the answer of a run that has ended, which may have been lost; else raise `error`."""
        if error.code != "bad_request":
            raise error
        page = await self._gateway.runs.page(client, run)
        if page["state"] != _ENDED:
            raise error
        said = [message for message in page["messages"] if message["role"] == "assistant"]
        message = said[-1] if said else {"role": "assistant", "content": ""}
        meta = {"run": run, "repeated": True, HAPPENED: page[HAPPENED]}
        return {"requires_follow_up": False, "run": run, "output": {"message": message}, "meta": meta}


async def _unheard(_frame: Frame) -> None:
    """Drop a frame: the client receives one answer and no frames."""


async def run_frames(opening: Callable[[Listener], Awaitable[GatewayRun]]) -> Frames:
    """Yield the frames of a run, from `iteration` to `done` or `suspended`; raises its error.

    Closing the frames early cancels the work behind them; a run that was saved can still be continued.
    """
    waiting: asyncio.Queue[Frame] = asyncio.Queue(_MOST_WAITING)
    run = await opening(waiting.put)
    driving = run.drive()
    taking: asyncio.Future[Frame] | None = None
    try:
        while not (driving.done() and waiting.empty()):
            taking = asyncio.ensure_future(waiting.get())
            await asyncio.wait((driving, taking), return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                await end(taking)
                continue
            frame = taking.result()
            if frame["event"] != "error":
                yield frame
        driving.result()
    finally:
        if taking is not None:
            await end(taking)
        await end(driving)


class RunDeduplicator:
    """The runs that are driven for such clients now, so that a repeated request runs once.

    A second request about a run that is being driven waits for the same outcome. The run is stopped when no
    request waits for it any more.
    """

    def __init__(self) -> None:
        self._going: dict[tuple[str, str], asyncio.Future[Outcome]] = {}
        self._waiters: dict[tuple[str, str], int] = {}

    async def outcome(
        self, principal: str, run: str, opening: Callable[[], Awaitable[GatewayRun]]
    ) -> tuple[Outcome, bool]:
        """Return the outcome of the turn, and whether another request began it."""
        key = principal, run
        joined = key in self._going
        if not joined:
            self._going[key] = asyncio.ensure_future(_driven(opening))
            self._waiters[key] = 0
        going = self._going[key]
        self._waiters[key] += 1
        try:
            return await asyncio.shield(going), joined
        finally:
            self._waiters[key] -= 1
            if not self._waiters[key]:
                del self._waiters[key], self._going[key]
                await end(going)


async def _driven(opening: Callable[[], Awaitable[GatewayRun]]) -> Outcome:
    return await (await opening()).drive()
