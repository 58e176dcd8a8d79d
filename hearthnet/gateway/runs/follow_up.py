"""The follow-up flow: a run for a client without a socket.

    {"capability": "llm.chat", "body": ...}      -> {"requires_follow_up": true, "run", "pending", "wanted"}
    {"run", "decisions": {...}, "answers": {}}   -> the same again, or the answer

Each turn ends as soon as it needs the client, and is saved before the response is sent. A follow-up may be
repeated, also to another process: stored decisions stay, and an answer counts if its call still waits.

See: docs/protocol/gateway.md#follow-ups, docs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.driver import Outcome
from hearthnet.core.errors import HearthNetError
from hearthnet.gateway.runs.decision_body import DecisionBody
from hearthnet.gateway.runs.one_shot import Frames, RunDeduplicator, run_frames

if TYPE_CHECKING:
    from hearthnet.agent.runtime.ports import Listener
    from hearthnet.gateway.auth.clients import Client
    from hearthnet.gateway.context import Gateway
    from hearthnet.gateway.runs.runs import GatewayRun

VIA: Final = "http"
_ENDED: Final = "ended"


class FollowUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Decisions, and the results of the client's own tools, by tool call id."""

    run: str
    decisions: dict[str, DecisionBody] = {}
    answers: dict[str, ClientResult] = {}


class FollowUps:
    """The runs of clients that send one request per turn."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._turns = RunDeduplicator()

    async def begin(self, client: Client, body: dict[str, Any]) -> dict[str, Any]:
        """Run the first turn of a new run."""
        return await self._told(client, await (await self._open(client, body, _unheard)).drive())

    def begin_frames(self, client: Client, body: dict[str, Any]) -> Frames:
        """Run the first turn of a new run and yield its frames."""

        async def opening(hear: Listener) -> GatewayRun:
            return await self._open(client, body, hear)

        return run_frames(opening)

    async def go_on(self, client: Client, follow_up: FollowUp) -> dict[str, Any]:
        """Run the next turn to its end; return the answer again if the run has ended.

        Raises the errors of the decisions and of `GatewayRuns.open_saved`.
        """
        await self.decide(client, follow_up)
        run, answers = follow_up.run, follow_up.answers
        while True:
            opening = partial(self._saved, client, run, answers, _unheard)
            try:
                outcome, joined = await self._turns.outcome(client.principal, run, opening)
            except HearthNetError as error:
                return await self._told_again(client, run, error)
            # Where another request drove it, our answers were not used; use those that are still wanted.
            wanted = {one.tool_call_id for one in outcome.wanted} if joined else set()
            answers = {call: answers[call] for call in wanted & answers.keys()}
            if not answers:
                return await self._told(client, outcome)

    async def go_on_frames(self, client: Client, follow_up: FollowUp) -> Frames:
        """Yield the frames of the next turn; yield the answer again if the run has ended."""
        await self.decide(client, follow_up)
        opening = partial(self._saved, client, follow_up.run, follow_up.answers)
        try:
            async with aclosing(run_frames(opening)) as frames:
                async for frame in frames:
                    yield frame
        except HearthNetError as error:
            told = await self._told_again(client, follow_up.run, error)
            text = told["output"]["message"].get("content") or ""
            yield {"event": "token", "data": {"text": text}, "seq": 1}
            yield {"event": "done", "data": told["meta"], "seq": 2}

    async def decide(self, client: Client, follow_up: FollowUp) -> None:
        """Store the decisions, after all of them have been read."""
        words = {call: given.decided() for call, given in follow_up.decisions.items()}
        for call, given in follow_up.decisions.items():
            await self._gateway.runs.decide(
                client,
                follow_up.run,
                call,
                words[call],
                shown=given.shown,
                approval=given.approval,
                via=VIA,
            )

    async def _open(self, client: Client, body: dict[str, Any], hear: Listener) -> GatewayRun:
        return await self._gateway.runs.begin(client, body, hear, waits=False, via=VIA)

    async def _saved(
        self, client: Client, run: str, answers: Mapping[str, ClientResult], hear: Listener
    ) -> GatewayRun:
        opened: GatewayRun = await self._gateway.runs.open_saved(
            client, run, hear, answers=answers, waits=False, via=VIA
        )
        return opened

    async def _told(self, client: Client, outcome: Outcome) -> dict[str, Any]:
        """Return the response for the end of a turn: the answer, or its open calls."""
        told = {"run": outcome.run, "output": {"message": outcome.message}}
        if outcome.done is not None:
            return {"requires_follow_up": False, **told, "meta": outcome.done}
        page = await self._gateway.runs.page(client, outcome.run)
        wanted = msgspec.to_builtins(outcome.wanted)
        return {"requires_follow_up": True, **told, "pending": page["pending"], "wanted": wanted}

    async def _told_again(self, client: Client, run: str, error: HearthNetError) -> dict[str, Any]:
        """Return the answer of a run that has ended, which may have been lost; else raise `error`."""
        if error.code != "bad_request":
            raise error
        page = await self._gateway.runs.page(client, run)
        if page["state"] != _ENDED:
            raise error
        said = [message for message in page["messages"] if message["role"] == "assistant"]
        message = said[-1] if said else {"role": "assistant", "content": ""}
        meta = {"run": run, "repeated": True}
        return {"requires_follow_up": False, "run": run, "output": {"message": message}, "meta": meta}


async def _unheard(_frame: dict[str, Any]) -> None:
    """Drop a frame: the client receives one answer and no frames."""
