"""The public types of tool calls, decisions and waiting calls.

See: docs/protocol/agent.md#tool-definitions.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

ToolChoice = str | dict[str, str]
"""`auto`, `none`, `required`, or `{"name": tool}`."""


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool that the model may call.

    `parameters_schema` is the JSON Schema of the arguments, closed. `bound_capability` and `bound_version`
    say what runs when it is called; where both are None, the client runs it. `side_effects` may tighten what
    the capability's contract says, never loosen it. `bound_params` are members of the call that the model
    neither sees nor sets (docs/protocol/agent.md#from-a-contract). `provider` is the node that carries out
    its calls, and no other does; empty where any node may, or where that is settled call by call.
    """

    name: str
    description: str
    parameters_schema: dict[str, Any]
    bound_capability: str | None
    bound_version: tuple[int, int] | None
    side_effects: bool
    bound_params: dict[str, Any] = {}
    provider: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """A model's request to run a tool.

    `arguments` is one flat object, as the tool's schema has it.
    """

    id: str
    name: str
    arguments: dict[str, Any]


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a call.

    `content` is an object, or text; the text of an error begins with its code and a colon.
    """

    tool_call_id: str
    name: str
    content: str | dict[str, Any]
    is_error: bool


class Approve(msgspec.Struct, frozen=True, tag_field="decision", tag="approve"):
    """The approval of exactly the call that was shown."""


class Deny(msgspec.Struct, frozen=True, tag_field="decision", tag="deny"):
    """The denial of a call; the model receives the reason."""

    reason: str = ""


class Edit(msgspec.Struct, frozen=True, tag_field="decision", tag="edit"):
    """The approval of a call with these arguments (flat, as in the tool's schema) instead."""

    arguments: dict[str, Any]


Decision = Approve | Deny | Edit


class PendingApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a person; the data of `confirmation_required`.

    `arguments` are the flat ones that may be edited; `body` is the complete `{params, input}` that would be
    sent, bound params and the derived `client_id` included, and `arguments_digest` covers exactly that.
    `expires_at` is in milliseconds since the epoch. `problem` says why the call is shown again, after an edit
    that was not valid. `untrusted`: the run has read words of others, which may have led the model.
    `provider` is the node that carries it out, `home` the name of that home for people; both are empty for an
    effect on a log that the community shares.
    """

    confirmation_id: str
    run: str
    tool_call_id: str
    name: str
    capability: str
    arguments: dict[str, Any]
    body: dict[str, Any]
    arguments_digest: str
    client_id: str
    expires_at: int
    problem: str = ""
    untrusted: bool = False
    provider: str = ""
    home: str = ""


class ClientCallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call that only the client can run; the data of `tool_wanted`.

    Its result must come before `expires_at`, in milliseconds since the epoch.
    """

    run: str
    tool_call_id: str
    name: str
    arguments: dict[str, Any]
    expires_at: int


CallStatus = Literal[
    "completed", "cached", "failed", "refused", "denied", "expired", "cancelled", "outcome_unknown"
]
"""The end of a call.

In this order: it ran; an equal one had run; it ran and failed; it was not valid or over budget; a person
denied it; no decision came in time; it was stopped; it was sent, has a side effect, and no answer came.
"""

CallStanding = Literal["pending", "waiting", "wanted", "running"] | CallStatus
"""The status of a call.

In this order: complete and not yet checked; shown to a person; handed to the client; sent; or its end.
"""


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a run's list of calls, in its `done` frame.

    `ms` is the time from dispatch to result, 0 if it never ran.
    """

    tool_call_id: str
    name: str
    status: CallStatus
    ms: int
    bytes: int


EffectState = Literal["done", "waiting", "refused", "unknown", "nothing"]
"""The state of an effect that a model asked for, by signed records; `nothing` where it asked for none.

In this order: its provider signed that it was done; it was not sent yet; it was never sent, or its provider
signed that it was not done; it was sent, and there is no signed record of its end.
"""


class Effect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of what happened.

    `home` is the node that signed its end, or for which it is; `entry` the id of the call in that frame and
    in the audit log of that node.
    """

    state: EffectState
    tool_call_id: str = ""
    name: str = ""
    capability: str = ""
    home: str = ""
    entry: str = ""


class ToolError(Exception):
    """Raised by `ToolExecutor.dispatch` for a call that first needs a decision.

    `pending` describes the call. A signal inside the process, not an error of the wire.
    """

    code: Final = "requires_confirmation"

    def __init__(self, pending: PendingApproval) -> None:
        super().__init__(self.code)
        self.pending = pending
