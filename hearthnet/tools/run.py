"""One run, driven: carries out what the loop wants and feeds it what happens (tools.md, "Shape").

Every piece of work is a task that ends by putting an event into the queue; only `drive` touches the loop.
When the run ends, however it ends, all its tasks are cancelled and waited for, which cancels their work at
the provider too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final, assert_never

import msgspec

from hearthnet import ids
from hearthnet.errors import HearthNetError
from hearthnet.tools.dispatch import Dispatcher
from hearthnet.tools.events import (
    Abort,
    Action,
    AskClient,
    AskModel,
    AskPerson,
    Cancel,
    ClientAnswered,
    Decided,
    Dispatch,
    Emit,
    Event,
    Fail,
    Finish,
    ModelDone,
    ModelEvent,
    ModelFailed,
    Start,
    Suspend,
    Terminal,
    Tick,
    ToolProgress,
    Unanswered,
    Undecided,
    model_event,
)
from hearthnet.tools.loop import ToolLoop
from hearthnet.tools.ports import BusPort, Clock, Decide, Listener, RunTool
from hearthnet.tools.types import Pending, Wanted

CHAT: Final = "llm.chat@2.0"
_MOST_WAITING: Final = 32
_log: Final = logging.getLogger("hearthnet.tools")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended: `done` is the data of its last frame, or `pending` says whom it waits for.

    `message` is the assistant's; `messages` the whole transcript, each call with its result, ready for
    the next question.
    """

    run: str
    message: dict[str, Any]
    messages: list[dict[str, Any]]
    done: dict[str, Any] | None = None
    pending: list[Pending] = []
    wanted: list[Wanted] = []


class ToolRun:
    """One run. `drive` it once; `cancel` it from any task of the same event loop."""

    def __init__(
        self,
        loop: ToolLoop,
        bus: BusPort,
        dispatcher: Dispatcher,
        request: dict[str, Any],
        *,
        stream_to: Listener | None,
        decide: Decide | None,
        run_tool: RunTool | None = None,
        clock: Clock,
    ) -> None:
        """`request` is the body of `llm.chat`; messages and tool choice are the loop's, turn by turn."""
        self._loop = loop
        self._bus = bus
        self._dispatcher = dispatcher
        self._request = request
        self._stream_to = stream_to
        self._decide = decide
        self._run_tool_of_client = run_tool
        self._clock = clock
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._room = asyncio.Semaphore(_MOST_WAITING)
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._seq = 0

    @property
    def run(self) -> str:
        """The run's id."""
        return self._loop.state.run

    def cancel(self) -> None:
        """Ends the run: `drive` returns with stop reason `cancelled` and what was said so far."""
        self._events.put_nowait(Cancel(now=self._clock.now_ms()))

    async def drive(self) -> Outcome:
        """Runs to the end. Raises the model's error where it had one, and what the listener raises."""
        try:
            actions = self._loop.feed(Start(now=self._clock.now_ms()))
            while True:
                ended = await self._carry_out(actions)
                if ended is not None:
                    return self._outcome(ended)
                actions = self._loop.feed(await self._next_event())
        finally:
            await self._stop_all()

    async def _next_event(self) -> Event:
        due = self._loop.next_deadline()
        now = self._clock.now_ms()
        if due is not None and due <= now:
            return Tick(now=now)
        try:
            async with asyncio.timeout(None if due is None else (due - now) / 1000):
                event = await self._events.get()
        except TimeoutError:
            return Tick(now=self._clock.now_ms())
        if isinstance(event, ModelEvent):
            self._room.release()
        return event

    async def _carry_out(self, actions: list[Action]) -> Terminal | None:
        """Starts all work first and tells the listener then, so that a slow listener holds no tool up."""
        ended = None
        for action in actions:
            match action:
                case AskModel():
                    self._spawn(self._talk(action), "")
                case AskPerson() | AskClient():
                    self._ask_for(action)
                case Dispatch():
                    self._spawn(self._run_tool(action), action.tool_call_id)
                case Abort(tool_call_id=aborted):
                    self._stop(aborted)
                case Finish() | Suspend() | Fail():
                    ended = action
                case Emit():
                    continue
                case _:
                    assert_never(action)
        for action in actions:
            if isinstance(action, Emit):
                await self._tell(action)
        return ended

    async def _tell(self, frame: Emit) -> None:
        self._seq += 1
        if self._stream_to is not None:
            await self._stream_to({"event": frame.event, "data": frame.data, "seq": self._seq})

    def _outcome(self, ended: Terminal) -> Outcome:
        state = self._loop.state
        match ended:
            case Fail(error=error):
                raise HearthNetError.from_body(error)
            case Suspend(text=text, pending=pending, wanted=wanted):
                message = {"role": "assistant", "content": text}
                return Outcome(
                    run=self.run, message=message, messages=state.messages, pending=pending, wanted=wanted
                )
            case Finish(message=message, done=done):
                return Outcome(run=self.run, message=message, messages=state.messages, done=done)
            case _:
                assert_never(ended)

    def _ask_for(self, action: AskPerson | AskClient) -> None:
        if isinstance(action, AskPerson):
            self._spawn(self._ask(action.pending), action.pending.tool_call_id)
        else:
            self._spawn(self._ask_client(action.wanted), action.wanted.tool_call_id)

    # --- work

    def _spawn(self, work: Coroutine[Any, Any, None], tool_call_id: str) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = tool_call_id
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _stop(self, tool_call_id: str) -> None:
        for task, belongs_to in self._tasks.items():
            if belongs_to == tool_call_id:
                task.cancel()

    async def _stop_all(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _talk(self, request: AskModel) -> None:
        """One turn of the model, frame by frame; at most `_MOST_WAITING` frames wait for the loop."""
        try:
            async with self._bus.stream(CHAT, self._chat_body(request), run=self.run) as stream:
                async for frame in stream:
                    event = model_event(frame.event, frame.data, self._clock.now_ms())
                    if event is None:
                        continue
                    await self._hear(event)
                    if isinstance(event, ModelDone | ModelFailed):
                        return
            error = HearthNetError("partition", "the model's stream ended before it was done; ask again")
        except HearthNetError as raised:
            error = raised
        except Exception:
            incident = ids.new_ulid()
            _log.exception("the model's turn in run %s broke [%s]", self.run, incident)
            error = HearthNetError("internal_error", f"unexpected; look in the log for {incident}")
        await self._hear(ModelFailed(now=self._clock.now_ms(), error=error.to_body()))

    async def _hear(self, event: ModelEvent) -> None:
        await self._room.acquire()
        self._events.put_nowait(event)

    def _chat_body(self, request: AskModel) -> dict[str, Any]:
        given = {**self._request["input"], "messages": request.messages, "stream": True}
        if "tools" in given:
            given["tool_choice"] = request.tool_choice
        return {**self._request, "input": given}

    async def _run_tool(self, call: Dispatch) -> None:
        def on_progress(data: dict[str, Any]) -> None:
            now = self._clock.now_ms()
            self._events.put_nowait(ToolProgress(now=now, tool_call_id=call.tool_call_id, data=data))

        self._events.put_nowait(await self._dispatcher.outcome(call, on_progress))

    async def _ask(self, pending: Pending) -> None:
        """A broken question counts as no answer, never as a yes."""
        decision = None
        try:
            if self._decide is not None:
                decision = await self._decide(pending)
        except Exception:
            _log.exception("asking about call %s of run %s broke", pending.tool_call_id, self.run)
        now, about = self._clock.now_ms(), pending.confirmation_id
        if decision is None:
            self._events.put_nowait(Undecided(now=now, confirmation_id=about))
        else:
            self._events.put_nowait(Decided(now=now, confirmation_id=about, decision=decision))

    async def _ask_client(self, wanted: Wanted) -> None:
        """A client that breaks counts as one that is not there."""
        result, about = None, wanted.tool_call_id
        try:
            if self._run_tool_of_client is not None:
                result = await self._run_tool_of_client(wanted)
        except Exception:
            _log.exception("the client broke at call %s of run %s", about, self.run)
        now = self._clock.now_ms()
        if result is None:
            self._events.put_nowait(Unanswered(now=now, tool_call_id=about))
        else:
            answer = ClientAnswered(
                now=now, tool_call_id=about, content=result.content, is_error=result.is_error
            )
            self._events.put_nowait(answer)
