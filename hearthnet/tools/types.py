"""What tool calls are made of: the public types, decisions, and what waits for one.

See: docs/protocol/agent.md#tool-definitions.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

ToolChoice = str | dict[str, str]
"""`auto`, `none`, `required`, or `{"name": tool}`."""

REQUIRES_CONFIRMATION: Final = "requires_confirmation"


class ToolDefinition(msgspec.Struct, frozen=True):
    """A tool the model may call.

    `parameters_schema` is the JSON Schema of the arguments, closed. `bound_capability` and `bound_version`
    say what runs when it is called; where both are None, the client runs it. `side_effects` may tighten what
    the capability's contract says, never loosen it. `bound_params` are members of the call that the model
    neither sees nor sets (docs/protocol/agent.md#from-a-contract).
    """

    name: str
    description: str
    parameters_schema: dict[str, Any]
    bound_capability: str | None
    bound_version: tuple[int, int] | None
    side_effects: bool
    bound_params: dict[str, Any] = {}


class Prepared(msgspec.Struct, frozen=True):
    """A call that may be sent: its complete body, and that body's digest where a person must confirm it."""

    body: dict[str, Any]
    arguments_digest: str


class ToolCall(msgspec.Struct, frozen=True):
    """A model's request to run a tool. `arguments` is one flat object, as the tool's schema has it."""

    id: str
    name: str
    arguments: dict[str, Any]


class ToolResult(msgspec.Struct, frozen=True):
    """What came of a call.

    `content` is an object, or text; the text of an error begins with its code and a colon.
    """

    tool_call_id: str
    name: str
    content: str | dict[str, Any]
    is_error: bool


class Approve(msgspec.Struct, frozen=True, tag_field="decision", tag="approve"):
    """Yes to exactly what was shown."""


class Deny(msgspec.Struct, frozen=True, tag_field="decision", tag="deny"):
    """No. The model is told, with the reason."""

    reason: str = ""


class Edit(msgspec.Struct, frozen=True, tag_field="decision", tag="edit"):
    """Yes, but with these arguments (flat, as the tool's schema has them) instead of the model's."""

    arguments: dict[str, Any]


Decision = Approve | Deny | Edit


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a person, and all that the person must see; the data of `confirmation_required`.

    `arguments` are the flat ones that may be edited; `body` is the complete `{params, input}` that would be
    sent, bound params and the derived `client_id` included, and `arguments_digest` covers exactly that.
    `expires_at` is in milliseconds since the epoch. `problem` says why the question comes again, after an
    edit that was not valid. `untrusted`: the run has read what others wrote, which may have led the model.
    `provider` is the node that an effect on a single home is for, `home` that home's name for people; both
    are empty for an effect on the community.
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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool of the client's own, which only the client can run; the data of `tool_wanted`.

    It is answered with its result before `expires_at`, in milliseconds since the epoch.
    """

    run: str
    tool_call_id: str
    name: str
    arguments: dict[str, Any]
    expires_at: int


CallStatus = Literal[
    "completed", "cached", "failed", "refused", "denied", "expired", "cancelled", "outcome_unknown"
]
"""How a call ended: it ran; an equal one had run; it ran and failed; it was not valid or over budget; a
person said no; nobody said anything in time; it was stopped; it was sent, has a side effect, and no
answer came.
"""

CallStanding = Literal["pending", "waiting", "wanted", "running"] | CallStatus
"""Where a call stands: complete and judged next; shown to a person; handed to the client;
sent; or how it ended."""


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what a run did, in its `done` frame.

    `ms` is the time from dispatch to result, 0 if it never ran.
    """

    tool_call_id: str
    name: str
    status: CallStatus
    ms: int
    bytes: int


class ToolError(Exception):
    """A signal of `ToolExecutor.dispatch`: this call must not run before a person confirmed `pending`.

    Not an error of the wire: it never leaves the process.
    """

    def __init__(self, code: str, pending: Pending) -> None:
        super().__init__(code)
        self.code = code
        self.pending = pending
