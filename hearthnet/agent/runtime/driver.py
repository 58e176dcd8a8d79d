"""The driver of one run: carries out the loop's actions and feeds it events.

A stored run is saved at its decision points: before a person is shown a call, before an effect is sent (the
save is its claim), before the next request to the model, before the end is reported. Reads do not wait for
that (docs/decisions/0070).

Every piece of work is a task that ends by putting an event into a queue; only `drive` touches the loop.
When the run ends, all its tasks are cancelled and awaited, which cancels their work at the provider too.

See: docs/tools.md#the-parts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Unpack, assert_never

import msgspec

from hearthnet.agent.loop import usage
from hearthnet.agent.loop.events import (
    Abort,
    Action,
    AskClient,
    AskGrant,
    AskHome,
    AskModel,
    AskPerson,
    Cancel,
    ClientAnswered,
    DecisionMade,
    Dispatch,
    Emit,
    Event,
    Fail,
    Finish,
    Resume,
    Start,
    Suspend,
    Terminal,
    Tick,
    ToolProgress,
    Unanswered,
    Undecided,
)
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.persistence.checkpointer import TAKEN_OVER, Checkpointer
from hearthnet.agent.persistence.run_store import Stop
from hearthnet.agent.runtime import spans
from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.dispatch import Dispatcher
from hearthnet.agent.runtime.event_queue import EventQueue
from hearthnet.agent.runtime.model_turns import ModelClient
from hearthnet.agent.runtime.ports import BusPort, Clock, RunPorts
from hearthnet.agent.tools.types import ClientCallRequest, PendingApproval
from hearthnet.core import tasks
from hearthnet.core.errors import HearthNetError

_AT_ONCE: Final = 64
_MOST_TASKS: Final = 64
"""The number of tasks from which on ended ones are dropped."""
_UNSAVED: Final = frozenset({"capacity_exceeded", "payload_too_large"})
"""Errors after which a run that only reads continues without being saved."""
_log: Final = logging.getLogger(__name__)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run.

    `done` is the data of its last frame; where it is None, the run waits for `pending` and `wanted`, or was
    returned after it acted with the `results` of its turn. `message` is the assistant's; `messages` the whole
    transcript, each call with its result, ready for the next question.
    """

    run: str
    message: dict[str, Any]
    messages: list[dict[str, Any]]
    done: dict[str, Any] | None = None
    pending: list[PendingApproval] = []
    wanted: list[ClientCallRequest] = []
    results: list[dict[str, Any]] = []


class ToolRun:
    """One run; `drive` it once, `cancel` it from any task of the same event loop."""

    def __init__(
        self,
        loop: ToolLoop,
        bus: BusPort,
        dispatcher: Dispatcher,
        request: dict[str, Any],
        *,
        clock: Clock,
        checkpointer: Checkpointer | None = None,
        answers: Mapping[str, ClientResult] | None = None,
        **ports: Unpack[RunPorts],
    ) -> None:
        """Create a run; `request` is the body of `llm.chat` without messages and tool choice.

        The loop provides those for each turn. `checkpointer` saves the run; where it was saved before, the
        run is resumed, with the client's `answers`.
        """
        self._loop = loop
        self._bus = bus
        self._dispatcher = dispatcher
        self._model = ModelClient(bus, request, loop.state, clock, dispatcher.model_token)
        self._stream_to = ports.get("stream_to")
        self._decide = ports.get("decide")
        self._run_tool_of_client = ports.get("run_tool")
        self._clock = clock
        self._checkpointer = checkpointer
        self._answers = dict(answers or {})
        self._lost: HearthNetError | None = None
        self._unwatch: Stop | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._events = EventQueue(clock)
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._seq = 0

    @property
    def run(self) -> str:
        """The run's id."""
        return self._loop.state.run

    def cancel(self) -> None:
        """End the run: `drive` returns with stop reason `cancelled` and the text so far."""
        self._events.put(Cancel(now=self._clock.now_ms()))

    async def drive(self) -> Outcome:
        """Drive the run to its end. Raises the model's error and the errors of the listener.

        A stored run also ends with the errors of `Checkpointer.save`: it is then as it was saved last, and
        can be resumed.
        """
        record = None if self._checkpointer is None else self._checkpointer.record
        with spans.run_span(self._bus.peer, self.run, record):
            return await self._drive()

    async def _drive(self) -> Outcome:
        try:
            if self._checkpointer is not None and self._checkpointer.saved:
                await self._watch(self._checkpointer)
            actions = self._loop.feed(await self._opening())
            while True:
                ended = await self._carry_out(actions)
                if ended is not None:
                    return self._outcome(ended)
                actions = self._feed(await self._events.next(self._loop.next_deadline()))
        finally:
            self._events.close()
            await tasks.end(set(self._tasks))
            if self._unwatch is not None:
                await self._unwatch()

    async def _watch(self, checkpointer: Checkpointer) -> None:
        if self._unwatch is None:
            self._unwatch = await checkpointer.watch(self._check_store_soon)

    async def _opening(self) -> Event:
        checkpointer = self._checkpointer
        if checkpointer is None or not checkpointer.saved:
            return Start(now=self._clock.now_ms())
        decisions = tuple(await checkpointer.decisions())
        now = self._clock.now_ms()
        answers = tuple(
            ClientAnswered(now=now, tool_call_id=call, content=result.content, is_error=result.is_error)
            for call, result in self._answers.items()
        )
        return Resume(now=now, decisions=decisions, answers=answers)

    def _feed(self, event: Event) -> list[Action]:
        """Feed `event` and those that came since, so that simultaneous changes are saved once."""
        actions = self._feed_loop(event)
        for _ in range(_AT_ONCE):
            if not self._events:
                break
            actions += self._feed_loop(self._events.pop())
        if self._lost is not None:
            raise self._lost
        return actions

    def _feed_loop(self, event: Event) -> list[Action]:
        if isinstance(event, DecisionMade) and (asking := self._asking.pop(event.confirmation_id, None)):
            asking.cancel()  # it was decided elsewhere
        return self._loop.feed(event)

    async def _carry_out(self, actions: list[Action]) -> Terminal | None:
        """Start all work and then send the frames, so that a slow listener delays no tool.

        Only work that must be saved first waits for the save.
        """
        ended: Terminal | None = None
        frames: list[Emit] = []
        saved: list[Action] = []
        for action in actions:
            match action:
                case Emit():
                    frames.append(action)
                case Dispatch() if not action.arguments_digest:
                    self._spawn(self._run_tool(action), action.tool_call_id)
                case AskModel() | AskPerson() | AskGrant() | AskHome() | AskClient() | Dispatch():
                    saved.append(action)
                case Abort(tool_call_id=aborted):
                    self._stop(aborted)
                    saved.append(action)
                case Finish() | Suspend() | Fail():
                    ended = action
                case _:
                    assert_never(action)
        await self._save()
        if saved:
            self._begin_saved(saved, over=ended is not None)
        await self._send_frames(frames)
        return ended

    def _begin_saved(self, actions: list[Action], *, over: bool) -> None:
        """Start the work that only the process responsible for the run may do."""
        aborted = {action.tool_call_id for action in actions if isinstance(action, Abort)}
        for action in actions:
            if isinstance(action, AskModel) and not over:
                # A fast model waits for the loop.
                self._spawn(self._model.turn(action, self._events.put_bounded), "")
            elif isinstance(action, AskPerson) and action.pending.tool_call_id not in aborted:
                asking = self._spawn(self._ask_person(action.pending), action.pending.tool_call_id)
                self._asking[action.pending.confirmation_id] = asking
            elif isinstance(action, AskGrant) and action.pending.tool_call_id not in aborted:
                self._spawn(self._put(self._dispatcher.granted, action.pending), action.pending.tool_call_id)
            elif isinstance(action, AskHome) and action.pending.tool_call_id not in aborted:
                self._spawn(self._put(self._dispatcher.located, action.pending), action.pending.tool_call_id)
            elif isinstance(action, AskClient) and action.wanted.tool_call_id not in aborted:
                self._spawn(self._ask_client(action.wanted), action.wanted.tool_call_id)
            elif isinstance(action, Dispatch) and action.arguments_digest and not over:
                self._spawn(self._run_tool(action), action.tool_call_id)

    async def _save(self) -> None:
        """Save the run if it has reached a decision point."""
        checkpointer = self._checkpointer
        if checkpointer is None or not checkpointer.needs_save():
            return
        try:
            await self._watch(checkpointer)
            await checkpointer.save()
        except HearthNetError as error:
            if error.code not in _UNSAVED or any(call.effect for call in checkpointer.state.calls):
                raise
            checkpointer.skip()
            _log.warning("run %s goes on without being saved: %s", self.run, error.message)

    def _check_store_soon(self) -> None:
        self._spawn(self._check_store(), "")

    async def _check_store(self) -> None:
        """Take up decisions of other processes; end the driving if one has taken over the run."""
        checkpointer = self._checkpointer
        if checkpointer is None:
            return
        try:
            await checkpointer.check()
            for decided in await checkpointer.decisions():
                self._events.put(decided)
        except HearthNetError as error:
            if error.details.get("rule") != TAKEN_OVER:
                _log.warning("run %s: %s", self.run, error.message)
                return
            self._lost = error
            self._events.put(Tick(now=self._clock.now_ms()))

    async def _send_frames(self, frames: list[Emit]) -> None:
        for frame in frames:
            self._seq += 1
            if self._stream_to is not None:
                await self._stream_to({"event": frame.event, "data": frame.data, "seq": self._seq})

    def _outcome(self, ended: Terminal) -> Outcome:
        state = self._loop.state
        match ended:
            case Fail(error=error):
                raise HearthNetError.from_body(error)
            case Suspend(text=text, pending=pending, wanted=wanted, results=results):
                message = {"role": "assistant", "content": text}
                waits = Outcome(run=self.run, message=message, messages=state.messages, pending=pending)
                return msgspec.structs.replace(waits, wanted=wanted, results=results)
            case Finish(message=message, done=done):
                usage.count(self._bus.peer, state)
                return Outcome(run=self.run, message=message, messages=state.messages, done=done)
            case _:
                assert_never(ended)

    def _spawn(self, work: Coroutine[Any, Any, None], tool_call_id: str) -> asyncio.Task[None]:
        if len(self._tasks) >= _MOST_TASKS:
            self._tasks = {task: call for task, call in self._tasks.items() if not task.done()}
        task = asyncio.create_task(work)
        self._tasks[task] = tool_call_id
        return task

    def _stop(self, tool_call_id: str) -> None:
        for task, belongs_to in self._tasks.items():
            if belongs_to == tool_call_id:
                task.cancel()

    async def _run_tool(self, call: Dispatch) -> None:
        def on_progress(data: dict[str, Any]) -> None:
            now = self._clock.now_ms()
            self._events.put(ToolProgress(now=now, tool_call_id=call.tool_call_id, data=data))

        self._events.put(await self._dispatcher.outcome(call, on_progress))

    async def _ask_person(self, pending: PendingApproval) -> None:
        """Request a decision; an error counts as no answer, never as an approval.

        Where the run is stored, the decision is stored first; an earlier decision of another process counts.
        """
        decision = None
        try:
            if self._decide is not None:
                decision = await self._decide(pending)
            if decision is not None and self._checkpointer is not None:
                stored = await self._checkpointer.decide(pending, decision)
                if stored is not None:
                    self._events.put(stored)
                    return
        except Exception:
            _log.exception("asking about call %s of run %s broke", pending.tool_call_id, self.run)
        now, about = self._clock.now_ms(), pending.confirmation_id
        if decision is None:
            self._events.put(Undecided(now=now, confirmation_id=about))
        else:
            self._events.put(DecisionMade(now=now, confirmation_id=about, decision=decision))

    async def _put(
        self, find: Callable[[PendingApproval], Awaitable[Event]], pending: PendingApproval
    ) -> None:
        self._events.put(await find(pending))

    async def _ask_client(self, wanted: ClientCallRequest) -> None:
        """Have the client run a tool; an error counts as a client that is not connected."""
        result, about = None, wanted.tool_call_id
        try:
            if self._run_tool_of_client is not None:
                result = await self._run_tool_of_client(wanted)
        except Exception:
            _log.exception("the client broke at call %s of run %s", about, self.run)
        now = self._clock.now_ms()
        if result is None:
            self._events.put(Unanswered(now=now, tool_call_id=about))
        else:
            answer = ClientAnswered(
                now=now, tool_call_id=about, content=result.content, is_error=result.is_error
            )
            self._events.put(answer)
