"""What goes into the tool loop and what comes out: closed unions of frozen values.

Every event carries `now`, milliseconds since the epoch, because the loop has no clock. Actions are carried
out in the order they come; exactly one of a run's actions is terminal.

See: docs/protocol/agent.md#frames-of-a-run.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.tools.types import Decision, Pending, ToolChoice, Wanted

_SEALS: Final = ("signature", "called_by", "toolset")


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    now: int


# --- events: the model --------------------------------------------------------------------------------------


class Display(_Event, frozen=True, kw_only=True, tag=True):
    """A frame of the model that only passes through: `notice` or `progress`."""

    event: str
    data: dict[str, Any]


class Token(_Event, frozen=True, kw_only=True, tag=True):
    """A piece of the answer."""

    text: str
    logprob: float | None = None


class Kept(_Event, frozen=True, kw_only=True, tag=True):
    """What some vendors want back with the turn, unchanged: a `thought`, or what was `served` by a tool of
    the vendor's own.
    """

    event: str
    data: dict[str, Any]


class CallDelta(_Event, frozen=True, kw_only=True, tag=True):
    """A piece of a call, for display. `id` as the model gave it, empty where it gave none."""

    id: str
    name: str
    arguments_delta: str


class CallComplete(_Event, frozen=True, kw_only=True, tag=True):
    """A complete call.

    `arguments` is whatever the model sent; whether it is an object is the loop's to judge. `sealed` goes back
    with the call as it came: `signature`, `called_by` and `toolset`, where the vendor gave them.
    """

    id: str
    name: str
    arguments: Any
    sealed: dict[str, str] = {}


class ModelDone(_Event, frozen=True, kw_only=True, tag=True):
    """The model's turn is over. `meta` is the data of its `done` frame."""

    meta: dict[str, Any]


class ModelFailed(_Event, frozen=True, kw_only=True, tag=True):
    """The model's turn ended in an error; `error` is the error object of the wire."""

    error: dict[str, Any]


ModelEvent = Display | Token | Kept | CallDelta | CallComplete | ModelDone | ModelFailed

# --- events: everything else --------------------------------------------------------------------------------


class Start(_Event, frozen=True, kw_only=True, tag=True):
    """The run begins."""


class ToolProgress(_Event, frozen=True, kw_only=True, tag=True):
    """A dispatched call reports how far it is."""

    tool_call_id: str
    data: dict[str, Any]


class ToolReturned(_Event, frozen=True, kw_only=True, tag=True):
    """A dispatched call has its result: the reply's `output` and `meta`.

    With `cid` set, `output` is only what the model is shown of a result of `size` bytes that is kept there.
    `is_error`: the tool itself says that it failed.
    """

    tool_call_id: str
    output: Any
    meta: dict[str, Any]
    cid: str = ""
    size: int = 0
    is_error: bool = False


class ToolFailed(_Event, frozen=True, kw_only=True, tag=True):
    """A dispatched call failed with a wire code, `timeout` included."""

    tool_call_id: str
    code: str
    message: str


class Decided(_Event, frozen=True, kw_only=True, tag=True):
    """A person decided."""

    confirmation_id: str
    decision: Decision


class Granted(_Event, frozen=True, kw_only=True, tag=True):
    """A standing grant says yes: its use `use` was taken for this call. No client can say this."""

    confirmation_id: str
    grant: str
    use: int


class NotGranted(_Event, frozen=True, kw_only=True, tag=True):
    """No standing grant covers this call; a person is asked."""

    confirmation_id: str


class Located(_Event, frozen=True, kw_only=True, tag=True):
    """An effect on a single home is for the node `provider`, which people know as `home`."""

    confirmation_id: str
    provider: str
    home: str


class NotLocated(_Event, frozen=True, kw_only=True, tag=True):
    """It is not settled for which home an effect is meant, or none offers it: nobody is asked."""

    confirmation_id: str
    code: str
    message: str


class ClientAnswered(_Event, frozen=True, kw_only=True, tag=True):
    """The client ran a tool of its own: `content` is its result, or with `is_error` what went wrong."""

    tool_call_id: str
    content: Any
    is_error: bool = False


class Unanswered(_Event, frozen=True, kw_only=True, tag=True):
    """The client is not there, or did not answer."""

    tool_call_id: str


class Resume(_Event, frozen=True, kw_only=True, tag=True):
    """The run was saved, by this process or another one, and goes on here.

    `decisions` were made and `answers` given meanwhile, each at its own time.
    """

    decisions: tuple[Decided, ...] = ()
    answers: tuple[ClientAnswered, ...] = ()


class Undecided(_Event, frozen=True, kw_only=True, tag=True):
    """Nobody is there to ask, or nobody answered."""

    confirmation_id: str


class Tick(_Event, frozen=True, kw_only=True, tag=True):
    """Time has passed; sent when `ToolLoop.next_deadline` is reached."""


class Cancel(_Event, frozen=True, kw_only=True, tag=True):
    """The caller wants the run to end now."""


CallEvent = ToolProgress | ToolReturned | ToolFailed
PersonEvent = Decided | Undecided
GrantEvent = Granted | NotGranted
HomeEvent = Located | NotLocated
ClientEvent = ClientAnswered | Unanswered
AnswerEvent = PersonEvent | GrantEvent | HomeEvent | ClientEvent
Event = ModelEvent | CallEvent | AnswerEvent | Start | Resume | Tick | Cancel


# --- actions ------------------------------------------------------------------------------------------------


class Emit(msgspec.Struct, frozen=True, tag=True):
    """Send this frame upstream."""

    event: str
    data: dict[str, Any]


class AskModel(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Send the model these messages. One request is under way at a time."""

    messages: list[dict[str, Any]]
    tool_choice: ToolChoice
    iteration: int


class Dispatch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run this call. `arguments_digest` is set where a person confirmed exactly this `body`, `grant` and
    `use` where a standing grant stands for that, `provider` where it was shown which home it is for.
    """

    tool_call_id: str
    name: str
    capability: str
    body: dict[str, Any]
    client_id: str
    timeout_ms: int
    arguments_digest: str = ""
    grant: str = ""
    use: int = 0
    max_result_bytes: int = 0
    provider: str = ""


class AskPerson(msgspec.Struct, frozen=True, tag=True):
    """Ask whether this call may run; the answer comes back as `Decided` or `Undecided`."""

    pending: Pending


class AskGrant(msgspec.Struct, frozen=True, tag=True):
    """Look whether a standing grant covers this call; the answer comes back as `Granted` or `NotGranted`."""

    pending: Pending


class AskHome(msgspec.Struct, frozen=True, tag=True):
    """Look for which home this effect is; the answer comes back as `Located` or `NotLocated`."""

    pending: Pending


class AskClient(msgspec.Struct, frozen=True, tag=True):
    """Have the client run this call; its result comes back as `ClientAnswered`, or `Unanswered`."""

    wanted: Wanted


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop working on this call; an outcome that still comes is ignored."""

    tool_call_id: str


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Terminal: the answer is there. `message` is the assistant's, `done` the data of the `done` frame."""

    message: dict[str, Any]
    done: dict[str, Any]


class Suspend(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Terminal: the run waits for decisions that nobody here can make, or for a client; or it was given back
    after it acted, with the `results` of its turn.
    """

    run: str
    text: str
    pending: list[Pending]
    wanted: list[Wanted] = []
    results: list[dict[str, Any]] = []


class Fail(msgspec.Struct, frozen=True, tag=True):
    """Terminal: the model could not be heard out. `error` is the error object of the wire."""

    error: dict[str, Any]


Terminal = Finish | Suspend | Fail
Action = Emit | AskModel | Dispatch | AskPerson | AskGrant | AskHome | AskClient | Abort | Terminal


def model_event(event: str, data: dict[str, Any], now: int) -> ModelEvent | None:
    """What a frame of `llm.chat` stands for; None for a frame this version does not know."""
    match event:
        case "token":
            return Token(now=now, text=str(data.get("text", "")), logprob=data.get("logprob"))
        case "tool_call":
            return CallComplete(
                now=now,
                id=str(data.get("id") or ""),
                name=str(data.get("name", "")),
                arguments=data.get("arguments"),
                sealed={name: data[name] for name in _SEALS if isinstance(data.get(name), str)},
            )
        case "tool_call_delta":
            return CallDelta(
                now=now,
                id=str(data.get("id") or ""),
                name=str(data.get("name", "")),
                arguments_delta=str(data.get("arguments_delta", "")),
            )
        case "done":
            return ModelDone(now=now, meta=data)
        case "error":
            return ModelFailed(now=now, error=data)
        case "thought" | "served":
            return Kept(now=now, event=event, data=data)
        case "notice" | "progress":
            return Display(now=now, event=event, data=data)
        case _:
            return None
