"""Events into the tool loop and actions out of it: closed unions of frozen values.

Every event carries `now`, milliseconds since the epoch, because the loop has no clock. Actions are carried
out in the order in which they come; exactly one of a run's actions is terminal.

See: docs/protocol/agent.md#frames-of-a-run.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.agent.tools.types import ClientCallRequest, Decision, PendingApproval, ToolChoice

_SEALS: Final = ("signature", "called_by", "toolset")


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    now: int


class PassThrough(_Event, frozen=True, kw_only=True, tag="Display"):
    """A frame of the model that is passed through: `notice` or `progress`."""

    event: str
    data: dict[str, Any]


class TextDelta(_Event, frozen=True, kw_only=True, tag="Token"):
    """A piece of the answer."""

    text: str
    logprob: float | None = None


class VendorData(_Event, frozen=True, kw_only=True, tag="Kept"):
    """A part of a turn that some vendors require back unchanged with the transcript.

    `event` is `thought`, or `served` for the work of a tool of the vendor's own.
    """

    event: str
    data: dict[str, Any]


class CallDelta(_Event, frozen=True, kw_only=True, tag=True):
    """A piece of a call, for display; `id` as the model gave it, empty where it gave none."""

    id: str
    name: str
    arguments_delta: str


class CallComplete(_Event, frozen=True, kw_only=True, tag=True):
    """A complete call.

    `arguments` are as the model sent them; the loop checks that they are an object. `sealed` goes back with
    the call unchanged: `signature`, `called_by` and `toolset`, where the vendor gave them.
    """

    id: str
    name: str
    arguments: Any
    sealed: dict[str, str] = {}


class ModelDone(_Event, frozen=True, kw_only=True, tag=True):
    """The end of the model's turn; `meta` is the data of its `done` frame."""

    meta: dict[str, Any]


class ModelFailed(_Event, frozen=True, kw_only=True, tag=True):
    """The end of the model's turn by an error; `error` is the error object of the wire."""

    error: dict[str, Any]


ModelEvent = PassThrough | TextDelta | VendorData | CallDelta | CallComplete | ModelDone | ModelFailed


class Start(_Event, frozen=True, kw_only=True, tag=True):
    """The beginning of the run."""


class ToolProgress(_Event, frozen=True, kw_only=True, tag=True):
    """Progress of a dispatched call."""

    tool_call_id: str
    data: dict[str, Any]


class ToolReturned(_Event, frozen=True, kw_only=True, tag=True):
    """The result of a dispatched call: the reply's `output` and `meta`.

    With `cid`, the whole result of `size` bytes is stored under it, and `output` is the part for the model.
    `is_error`: the tool itself reported an error. `signed_by` and `entry` are the node and the call of the
    frame, where its provider has signed it.
    """

    tool_call_id: str
    output: Any
    meta: dict[str, Any]
    cid: str = ""
    size: int = 0
    is_error: bool = False
    signed_by: str = ""
    entry: str = ""


class ToolFailed(_Event, frozen=True, kw_only=True, tag=True):
    """The failure of a dispatched call, with an error code of the wire (timeouts included).

    `signed_by` and `entry` are as in `ToolReturned`; `unsent`: it failed before anything was sent.
    """

    tool_call_id: str
    code: str
    message: str
    signed_by: str = ""
    entry: str = ""
    unsent: bool = False


class DecisionMade(_Event, frozen=True, kw_only=True, tag="Decided"):
    """A person's decision about a call."""

    confirmation_id: str
    decision: Decision


class GrantUsed(_Event, frozen=True, kw_only=True, tag="Granted"):
    """The use `use` of a standing grant, taken for this call; no client can send this event."""

    confirmation_id: str
    grant: str
    use: int


class NotGranted(_Event, frozen=True, kw_only=True, tag=True):
    """No standing grant covers this call; a person decides."""

    confirmation_id: str


class Located(_Event, frozen=True, kw_only=True, tag=True):
    """The node `provider` that an effect on a single home is for, and its name `home`."""

    confirmation_id: str
    provider: str
    home: str


class NotLocated(_Event, frozen=True, kw_only=True, tag=True):
    """The home of an effect is ambiguous, or none offers it; the call is refused."""

    confirmation_id: str
    code: str
    message: str


class ClientAnswered(_Event, frozen=True, kw_only=True, tag=True):
    """The result of a tool that the client ran; with `is_error`, the text of its error."""

    tool_call_id: str
    content: Any
    is_error: bool = False


class Unanswered(_Event, frozen=True, kw_only=True, tag=True):
    """The client is not connected, or gave no result."""

    tool_call_id: str


class Resume(_Event, frozen=True, kw_only=True, tag=True):
    """The continuation of a saved run, by the process that saved it or another one.

    `decisions` and `answers` were given since it was saved, each with its own time.
    """

    decisions: tuple[DecisionMade, ...] = ()
    answers: tuple[ClientAnswered, ...] = ()


class Undecided(_Event, frozen=True, kw_only=True, tag=True):
    """No person could be reached, or none decided."""

    confirmation_id: str


class Tick(_Event, frozen=True, kw_only=True, tag=True):
    """Time has passed; sent when `ToolLoop.next_deadline` is reached."""


class Cancel(_Event, frozen=True, kw_only=True, tag=True):
    """The caller's request to end the run now."""


CallEvent = ToolProgress | ToolReturned | ToolFailed
PersonEvent = DecisionMade | Undecided
GrantEvent = GrantUsed | NotGranted
HomeEvent = Located | NotLocated
ClientEvent = ClientAnswered | Unanswered
AnswerEvent = PersonEvent | GrantEvent | HomeEvent | ClientEvent
Event = ModelEvent | CallEvent | AnswerEvent | Start | Resume | Tick | Cancel


class Emit(msgspec.Struct, frozen=True, tag=True):
    """Send this frame upstream."""

    event: str
    data: dict[str, Any]


class AskModel(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Send these messages to the model; one request is under way at a time."""

    messages: list[dict[str, Any]]
    tool_choice: ToolChoice


class Dispatch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run this call.

    `arguments_digest` is set where a person confirmed exactly this `body`, `grant` and `use` where a standing
    grant replaces that decision, `provider` where the person was shown the home that the call is for.
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
    """Request a decision about this call; `DecisionMade` or `Undecided` follows."""

    pending: PendingApproval


class AskGrant(msgspec.Struct, frozen=True, tag=True):
    """Look for a standing grant for this call; `GrantUsed` or `NotGranted` follows."""

    pending: PendingApproval


class AskHome(msgspec.Struct, frozen=True, tag=True):
    """Find the home that this effect is for; `Located` or `NotLocated` follows."""

    pending: PendingApproval


class AskClient(msgspec.Struct, frozen=True, tag=True):
    """Have the client run this call; `ClientAnswered` or `Unanswered` follows."""

    wanted: ClientCallRequest


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop working on this call; a later outcome is ignored."""

    tool_call_id: str


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The terminal action of an answered run.

    `message` is the assistant's, `done` the data of the `done` frame.
    """

    message: dict[str, Any]
    done: dict[str, Any]


class Suspend(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The terminal action of a run that waits for decisions or for a client.

    The run may also be returned after it acted, with the `results` of its turn.
    """

    text: str
    pending: list[PendingApproval]
    wanted: list[ClientCallRequest] = []
    results: list[dict[str, Any]] = []


class Fail(msgspec.Struct, frozen=True, tag=True):
    """The terminal action after a model error; `error` is the error object of the wire."""

    error: dict[str, Any]


Terminal = Finish | Suspend | Fail
Action = Emit | AskModel | Dispatch | AskPerson | AskGrant | AskHome | AskClient | Abort | Terminal


def model_event(event: str, data: dict[str, Any], now: int) -> ModelEvent | None:
    """Return the event for a frame of `llm.chat`; None for an unknown frame."""
    match event:
        case "token":
            return TextDelta(now=now, text=str(data.get("text", "")), logprob=data.get("logprob"))
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
            return VendorData(now=now, event=event, data=data)
        case "notice" | "progress":
            return PassThrough(now=now, event=event, data=data)
        case _:
            return None
