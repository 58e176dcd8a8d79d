"""Carries out one schedule: a run, what people say to it, what is killed, until it has come to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any, Final

from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.tools.types import Decision, Deny
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from tests.chaos import steps
from tests.chaos.executor_worker import decision
from tests.chaos.ledger import Ledger
from tests.chaos.line import Peer
from tests.chaos.plan import Call, Kill, Plan
from tests.chaos.world import World
from tests.helpers.waiting import wait_for

_ROUNDS: Final = 10
_ROUND_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 0.05
_SENT: Final = frozenset({"claimed", "completed", "outcome_unknown"})
_LATER: Final = frozenset({"partition", "timeout"})


class Schedule:
    """One plan in one world."""

    def __init__(self, plan: Plan, world: World, *, patience: float = _ROUND_SECONDS) -> None:
        self.plan = plan
        self.ledger = Ledger()
        self.struck: list[Kill] = []
        self._world = world
        self._patience = patience
        self._armed = list(plan.kills)
        self._seen: Counter[str] = Counter()
        self._executors: list[Peer] = []
        self._questions: dict[str, dict[str, Any]] = {}
        self._deciding: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._desks = world.desks(self._at_client)
        self._run = ""
        self._ends: list[str] = []
        self._saving: set[int] = set()
        self._resumers = 1
        self.over = False

    async def carry_out(self) -> None:
        """Until the run has ended; what is known then stands in `ledger`."""
        after = await self._world.place()
        self._world.answer = self._hear
        try:
            for _ in range(_ROUNDS):
                await self._round(resumers=self.plan.resumers if self._run else 1)
                if await self._over():
                    break
        finally:
            await self._leave()
        posts = await self._world.posts(after)
        self.ledger.posts = [title for title in posts if title.startswith(f"{self.plan.name}.")]
        self.over = True

    async def _leave(self) -> None:
        for peer in self._executors:
            if peer.alive:
                await peer.kill()
        for task in self._deciding.values():
            task.cancel()
        await asyncio.gather(*self._deciding.values(), return_exceptions=True)
        await self._world.settled()

    # --- rounds

    async def _round(self, resumers: int) -> None:
        """One or more processes begin the run, or take it up, and all come to an end."""
        self._ends, self._saving, self._executors = [], set(), []
        self._resumers = resumers
        forking = (self._world.executor(self.plan, self._run) for _ in range(resumers))
        self._executors = list(await asyncio.gather(*forking))
        ending = asyncio.gather(*(peer.gone.wait() for peer in self._executors))
        try:
            await asyncio.wait_for(ending, self._patience)
        except TimeoutError:
            self.ledger.troubles.append(f"nothing happened for {self._patience:g} s")
        for peer in self._executors:
            if peer.alive:
                await peer.kill()
        if self._ends.count("done") > 1:
            self.ledger.troubles.append("two processes drove the run to its end")

    async def _over(self) -> bool:
        """Whether the run has ended. Who decides elsewhere does so now; who says nothing at all lets it be
        cancelled in the end.
        """
        decided = self._decide_later()
        await asyncio.gather(*self._deciding.values())
        record = await self._record()
        if record is None:
            self._run = ""  # nothing of it is kept: the person asks again
            return False
        if not record.ended and "suspended" in self._ends and not decided:
            with contextlib.suppress(HearthNetError):
                record = await self._patiently(lambda: self._desks[0].cancel(self._run))
        if record.ended:
            self.ledger.ended = True
            for effect in record.effects:
                key = str(effect.asked.arguments["title"]).partition(",")[0]
                self.ledger.statuses[key] = effect.status
            messages = record.state.messages
            self.ledger.results = [str(one["content"])[:200] for one in messages if one["role"] == "tool"]
        return bool(record.ended)

    async def _record(self) -> Any:
        if not self._run:
            return None
        try:
            return (await self._patiently(lambda: self._desks[0].load(self._run))).record
        except HearthNetError as error:
            if error.code != "not_found":
                raise
            return None

    async def _patiently(self, question: Any) -> Any:
        """Asks until there is an answer: the server may be away."""
        end = asyncio.get_running_loop().time() + self._patience
        while True:
            try:
                return await question()
            except HearthNetError as error:
                if error.code not in _LATER or asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(_AGAIN_SECONDS)

    # --- what processes say

    async def _hear(self, peer: Peer, message: dict[str, Any]) -> None:
        if "run" in message and "step" not in message:
            self._run = message["run"]
        if "ended" in message:
            self._ends.append(message["ended"])
        if "error" in message:
            self._ends.append(message["error"].get("error", ""))
        if message.get("step") == steps.ASKED:
            self._note_question(message)
        if message.get("step") == steps.APPENDING:
            await self._check_claim(message)
        if "step" in message:
            await self._together(message["step"], peer)
            await self._reached(message["step"], peer)

    async def _together(self, step: str, peer: Peer) -> None:
        """Two that take a run up do so at once: the first save of each waits for that of the other."""
        if peer.role != "executor" or peer.pid in self._saving or not step.endswith(steps.UNSAVED):
            return
        self._saving.add(peer.pid)
        with contextlib.suppress(TimeoutError):
            await wait_for(self._all_save)

    def _all_save(self) -> bool:
        dead = sum(one.gone.is_set() and one.pid not in self._saving for one in self._executors)
        return len(self._saving) + dead >= self._resumers

    async def _at_client(self, step: str) -> None:
        await self._reached(step, None)

    async def _check_claim(self, message: dict[str, Any]) -> None:
        """An effect happens only where the run says, on the disk, that it was sent."""
        try:
            record = (await self._patiently(lambda: self._desks[1].load(message["run"]))).record
        except HearthNetError:
            effects = []
        else:
            effects = [one for one in record.effects if one.asked.client_id == message["client_id"]]
        if not any(effect.status in _SENT for effect in effects):
            self.ledger.troubles.append("an effect was sent without a claim")

    async def _reached(self, step: str, peer: Peer | None) -> None:
        """Kills what is to be killed at this step."""
        self._seen[step] += 1
        for kill in self._armed:
            if kill.step == step and self._seen[step] >= kill.nth:
                self._armed.remove(kill)
                if await self._strike(kill, peer):
                    self.struck.append(kill)
                else:
                    self._armed.append(kill)
                return

    async def _strike(self, kill: Kill, peer: Peer | None) -> bool:
        if kill.victim == "provider":
            return await self._world.kill_market(kill.delay)
        if kill.victim == "server":
            return await self._world.kill_server(kill.delay)
        own = peer if peer is not None and peer.role == "executor" else None
        victim = own or next((one for one in reversed(self._executors) if one.alive), None)
        if victim is None:
            return False
        await victim.kill()
        return True

    # --- people elsewhere

    def _note_question(self, question: dict[str, Any]) -> None:
        call = self.plan.calls[question["key"]]
        self.ledger.asked.add(call.key)
        self._questions[call.key] = question
        if call.how == "meanwhile":
            self._decide(call, question)

    def _decide_later(self) -> int:
        """Has everything decided that is to be decided after the run was left; how much that is."""
        wanted = [
            call for call in self.plan.calls.values() if call.how == "later" and call.key in self._questions
        ]
        return sum(self._decide(call, self._questions[call.key]) for call in wanted)

    def _decide(self, call: Call, question: dict[str, Any]) -> bool:
        """Has clients say their word about `question`, once; False where that was done, or there is none."""
        name = (question["run"], question["call"])
        if call.word == "silence" or name in self._deciding:
            return False
        self._deciding[name] = asyncio.create_task(self._say(call, question))
        return True

    async def _say(self, call: Call, question: dict[str, Any]) -> None:
        first, second = self._desks
        word = decision(call, {"category": "offer", "title": call.key, "body": "To lend."})
        if word is None:
            return
        if self.plan.late:
            await asyncio.sleep(max(0, question["expires_at"] + 1 - now_ms()) / 1000)
        other: Decision = Deny("somebody else says no") if call.voices == "against each other" else word
        if call.voices in ("two clients", "against each other"):
            await asyncio.gather(
                self._tell(first, call, question, word), self._tell(second, call, question, other)
            )
            return
        await self._tell(first, call, question, word)
        if call.voices == "twice":
            await self._tell(first, call, question, word)

    async def _tell(self, desk: SavedRuns, call: Call, question: dict[str, Any], word: Decision) -> None:
        """One client decides, and asks again until it is answered."""
        try:
            taken = await self._patiently(
                lambda: desk.decide(
                    question["run"], question["call"], word, via="client", shown=question["digest"]
                )
            )
        except HearthNetError as error:
            if error.code not in ("expired", "not_found", "bad_request"):
                self.ledger.troubles.append(f"a decision about {call.key}: {error.code}: {error.message}")
        else:
            self.ledger.tell(call.key, taken.signed.word)
