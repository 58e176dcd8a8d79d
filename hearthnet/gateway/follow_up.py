"""The follow-up flow: a run for a client without a socket.

    {"capability": "llm.chat", "body": ...}      -> {"requires_follow_up": true, "run", "pending", "wanted"}
    {"run", "decisions": {...}, "answers": {}}   -> the same again, or the answer

Each turn ends as soon as it needs the client, and is saved before it says so. A follow-up may be sent again,
also to another process: decisions stand once they are written down, an answer counts where its call still
waits.

See: docs/protocol/gateway.md#follow-ups, docs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet.gateway.turns import Frames, Turns, run_frames
from hearthnet.tools.client import ClientResult
from hearthnet.tools.run import Outcome
from hearthnet.tools.types import Approve, Decision, Deny, Edit

if TYPE_CHECKING:
    from hearthnet.gateway.app import Gateway
    from hearthnet.gateway.clients import Client
    from hearthnet.gateway.runs import GatewayRun
    from hearthnet.tools.ports import Listener

VIA: Final = "http"
_ENDED: Final = "ended"


class Decided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the client says about one call: a word, what it saw (`arguments_digest`), what it signed."""

    decision: str
    shown: str = ""
    arguments: dict[str, Any] | None = None
    reason: str = ""
    approval: dict[str, Any] | None = None

    @property
    def word(self) -> Decision:
        """The decision; `bad_request` where it is none."""
        if self.decision == "approve":
            return Approve()
        if self.decision == "deny":
            return Deny(self.reason)
        if self.decision == "edit" and self.arguments is not None:
            return Edit(self.arguments)
        raise HearthNetError(
            "bad_request",
            "a decision is approve, deny, or edit with arguments",
            details={"path": "/decisions", "rule": "enum"},
        )


class FollowUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a run goes on: decisions and the results of the client's own tools, by tool call id."""

    run: str
    decisions: dict[str, Decided] = {}
    answers: dict[str, ClientResult] = {}


class FollowUps:
    """The runs of clients that ask once and go."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._turns = Turns()

    async def begin(self, client: Client, body: dict[str, Any]) -> dict[str, Any]:
        """The first turn of a new run."""
        return await self._told(client, await (await self._open(client, body, _unheard)).drive())

    def begin_frames(self, client: Client, body: dict[str, Any]) -> Frames:
        """The first turn of a new run, as frames."""

        async def opening(hear: Listener) -> GatewayRun:
            return await self._open(client, body, hear)

        return run_frames(opening)

    async def go_on(self, client: Client, follow_up: FollowUp) -> dict[str, Any]:
        """The next turn, to its end; where the run has ended, its answer once more.

        Raises what deciding raises, and what `GatewayRuns.open_saved` does.
        """
        await self.decide(client, follow_up)
        run, answers = follow_up.run, follow_up.answers
        while True:
            opening = partial(self._saved, client, run, answers, _unheard)
            try:
                outcome, joined = await self._turns.outcome(client.principal, run, opening)
            except HearthNetError as error:
                return await self._told_again(client, run, error)
            # Where another request drove it, our answers have not gone in; what is still wanted, they give.
            wanted = {one.tool_call_id for one in outcome.wanted} if joined else set()
            answers = {call: answers[call] for call in wanted & answers.keys()}
            if not answers:
                return await self._told(client, outcome)

    async def go_on_frames(self, client: Client, follow_up: FollowUp) -> Frames:
        """The next turn as frames; where the run has ended, its answer once more."""
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
        """Writes down its decisions; all have been read before the first one is."""
        words = {call: given.word for call, given in follow_up.decisions.items()}
        for call, given in follow_up.decisions.items():
            word = words[call]
            # A no needs no look at what it refuses.
            shown = None if isinstance(word, Deny) and not given.shown else given.shown
            await self._gateway.runs.decide(
                client, follow_up.run, call, word, shown=shown, approval=given.approval, via=VIA
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
        """How a turn ended: the answer, or what it needs, with what there is to sign."""
        told = {"run": outcome.run, "output": {"message": outcome.message}}
        if outcome.done is not None:
            return {"requires_follow_up": False, **told, "meta": outcome.done}
        page = await self._gateway.runs.page(client, outcome.run)
        wanted = msgspec.to_builtins(outcome.wanted)
        return {"requires_follow_up": True, **told, "pending": page["pending"], "wanted": wanted}

    async def _told_again(self, client: Client, run: str, error: HearthNetError) -> dict[str, Any]:
        """The answer of a run that has ended, which a client may not have heard; else raises `error`."""
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
    """Who asks for one answer hears no frames."""
