"""A tool loop on the bench: its clock in hand, its actions kept, and asserts that every test may use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from hearthnet.agent.loop.events import (
    Action,
    AskHome,
    AskModel,
    AskPerson,
    CallComplete,
    CallDelta,
    Cancel,
    ClientAnswered,
    DecisionMade,
    Dispatch,
    Emit,
    Event,
    Fail,
    Finish,
    GrantUsed,
    Located,
    ModelDone,
    ModelFailed,
    NotGranted,
    PassThrough,
    Start,
    Suspend,
    Terminal,
    TextDelta,
    Tick,
    ToolFailed,
    ToolProgress,
    ToolReturned,
    Unanswered,
    Undecided,
    model_event,
)
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.state import Limits, new_run
from hearthnet.agent.tools.builtin import builtin_names, builtin_tools
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import Decision, ToolChoice, ToolDefinition
from hearthnet.trust.keys import Identity

PROVIDER = Identity(b"p" * 32).node_id
RUN = "01JZZZZZZZZZZZZZZZZZZZZZ77"
EPOCH = 1_790_000_000_000
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "How do I make rainwater safe?"}]
QUERY = {"query": "rainwater"}
POST = {"category": "offer", "title": "Water filter", "body": "I can lend it."}
LOOK = ToolDefinition(
    "look_at_screen",
    "Says what the user sees.",
    {"type": "object", "properties": {"part": {"type": "string"}}, "additionalProperties": False},
    None,
    None,
    False,
)
OPEN = msgspec.structs.replace(LOOK, name="open_page", description="Opens a page.", side_effects=True)
TOOLBOX = Toolbox([*builtin_tools(builtin_names(), {"search_corpus": {"corpus": "system"}}), LOOK, OPEN])
_A = TypeVar("_A")


def located(loop: ToolLoop, event: Event) -> list[Action]:
    """The actions that `event` causes where the home of each effect is settled at once."""
    actions = loop.feed(event)
    for ask in of(AskHome, actions):
        actions.remove(ask)
        about = ask.pending.confirmation_id
        home = Located(now=event.now, confirmation_id=about, provider=PROVIDER, home="Kitchen")
        actions += loop.feed(home)
    return actions


class Bench:
    """A loop with the built-in tools; every method feeds one event and returns the actions it caused."""

    def __init__(
        self,
        limits: Limits | None = None,
        choice: ToolChoice = "auto",
        messages: list[dict[str, Any]] | None = None,
        *,
        start: bool = True,
        granted: list[str] | None = None,
        locates: bool = True,
    ) -> None:
        state = new_run(RUN, messages or QUESTION, choice, limits or Limits(), granted)
        self.loop = ToolLoop(state, TOOLBOX)
        self.now = EPOCH
        self.actions: list[Action] = []
        self.locates = locates
        if start:
            self.feed(Start(now=self.now))

    def feed(self, event: Event) -> list[Action]:
        actions = located(self.loop, event) if self.locates else self.loop.feed(event)
        self.actions += actions
        return actions

    def token(self, text: str) -> list[Action]:
        return self.feed(TextDelta(now=self.now, text=text))

    def delta(self, call_id: str, name: str, text: str) -> list[Action]:
        return self.feed(CallDelta(now=self.now, id=call_id, name=name, arguments_delta=text))

    def call(self, name: str, arguments: Any, call_id: str = "") -> list[Action]:
        return self.feed(CallComplete(now=self.now, id=call_id, name=name, arguments=arguments))

    def heard(self, event: str, data: dict[str, Any]) -> list[Action]:
        """One frame as `llm.chat` sends it."""
        frame = model_event(event, data, self.now)
        assert frame is not None
        return self.feed(frame)

    def display(self, event: str, data: dict[str, Any]) -> list[Action]:
        return self.feed(PassThrough(now=self.now, event=event, data=data))

    def model_done(self, stop_reason: str = "end", **meta: Any) -> list[Action]:
        return self.feed(ModelDone(now=self.now, meta={"stop_reason": stop_reason, **meta}))

    def model_failed(self, code: str = "timeout") -> list[Action]:
        return self.feed(ModelFailed(now=self.now, error={"error": code, "message": "no model"}))

    def progress(self, call_id: str, **data: Any) -> list[Action]:
        return self.feed(ToolProgress(now=self.now, tool_call_id=call_id, data=data))

    def returned(self, call_id: str, output: Any, **meta: Any) -> list[Action]:
        return self.feed(ToolReturned(now=self.now, tool_call_id=call_id, output=output, meta=meta))

    def failed(self, call_id: str, code: str, message: str = "it broke") -> list[Action]:
        return self.feed(ToolFailed(now=self.now, tool_call_id=call_id, code=code, message=message))

    def decided(self, confirmation_id: str, decision: Decision) -> list[Action]:
        return self.feed(DecisionMade(now=self.now, confirmation_id=confirmation_id, decision=decision))

    def undecided(self, confirmation_id: str) -> list[Action]:
        return self.feed(Undecided(now=self.now, confirmation_id=confirmation_id))

    def granted(self, confirmation_id: str, grant: str = "g", use: int = 1) -> list[Action]:
        return self.feed(GrantUsed(now=self.now, confirmation_id=confirmation_id, grant=grant, use=use))

    def not_granted(self, confirmation_id: str) -> list[Action]:
        return self.feed(NotGranted(now=self.now, confirmation_id=confirmation_id))

    def answered(self, call_id: str, content: Any, *, is_error: bool = False) -> list[Action]:
        answer = ClientAnswered(now=self.now, tool_call_id=call_id, content=content, is_error=is_error)
        return self.feed(answer)

    def unanswered(self, call_id: str) -> list[Action]:
        return self.feed(Unanswered(now=self.now, tool_call_id=call_id))

    def later(self, ms: int) -> list[Action]:
        self.now += ms
        return self.feed(Tick(now=self.now))

    def cancel(self) -> list[Action]:
        return self.feed(Cancel(now=self.now))

    # --- what has been done

    @property
    def ended(self) -> Terminal | None:
        terminal = [action for action in self.actions if isinstance(action, Finish | Suspend | Fail)]
        assert len(terminal) <= 1, "more than one end"
        return terminal[0] if terminal else None

    def asked_model(self) -> AskModel:
        """The latest request to the model."""
        return of(AskModel, self.actions)[-1]

    def results(self) -> list[dict[str, Any]]:
        """The tool messages of the latest request to the model."""
        return [message for message in self.asked_model().messages if message["role"] == "tool"]

    def frames(self, event: str) -> list[dict[str, Any]]:
        """The data of every frame of this kind, in order."""
        return [action.data for action in of(Emit, self.actions) if action.event == event]


def of(kind: type[_A], actions: Iterable[object]) -> list[_A]:
    """The actions of one kind."""
    return [action for action in actions if isinstance(action, kind)]


def only(kind: type[_A], actions: Iterable[object]) -> _A:
    """The one action of this kind."""
    found = of(kind, actions)
    assert len(found) == 1, f"{len(found)} of {kind.__name__} in {actions}"
    return found[0]


def dispatched(actions: Iterable[object]) -> list[str]:
    """The ids of the calls sent, in order."""
    return [action.tool_call_id for action in of(Dispatch, actions)]


def asked(actions: Iterable[object]) -> AskPerson:
    """The one question to a person."""
    return only(AskPerson, actions)


def paired(messages: list[dict[str, Any]]) -> None:
    """Every call is answered by exactly one tool message after its own, in order; no id is used twice."""
    seen: set[str] = set()
    position = 0
    while position < len(messages):
        message = messages[position]
        assert message["role"] != "tool", f"a result without its call: {message}"
        position += 1
        for call in message.get("tool_calls", ()):
            assert call["id"] not in seen, f"{call['id']} is used twice"
            seen.add(call["id"])
            assert messages[position]["role"] == "tool", f"{call['id']} has no result"
            assert messages[position]["tool_call_id"] == call["id"], "results are out of order"
            position += 1
