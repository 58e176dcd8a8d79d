"""The state of a run, and the tables of its transitions.

The whole run is one value, `RunState`, so that it can be saved and continued elsewhere. Two tables give all
transitions. A *step* is not an event: one event can cause none (a token), one (a call is complete) or
several (the last result of a turn arrives: the call is settled, the turn is settled, the next request is
sent).

See: docs/protocol/agent.md#run-states, docs/protocol/agent.md#call-status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from hearthnet.agent.tools.types import CallRecord, CallStatus, Effect, ToolChoice
from hearthnet.core.canonical_json import derived_id


def client_id_of(run: str, tool_call_id: str) -> str:
    """Return the idempotency key of a call: equal for its repetitions, else different."""
    return derived_id("client", run, tool_call_id)


def confirmation_id_of(run: str, tool_call_id: str) -> str:
    """Return the id of the question to a person about a call."""
    return derived_id("confirmation", run, tool_call_id)


class Phase(StrEnum):
    """The phase of a run."""

    READY = "ready"
    ASKING = "asking"
    WORKING = "working"
    SUSPENDED = "suspended"
    ENDED = "ended"


class RunStep(StrEnum):
    """The causes of a change of a run's phase."""

    STARTED = "started"
    RESUMED = "resumed"
    ANSWERED = "answered"
    CALLED = "called"
    SETTLED = "settled"
    PARKED = "parked"
    FAILED = "failed"
    CANCELLED = "cancelled"


TRANSITIONS: Final[dict[Phase, dict[RunStep, Phase]]] = {
    Phase.READY: {RunStep.STARTED: Phase.ASKING, RunStep.CANCELLED: Phase.ENDED},
    Phase.ASKING: {
        RunStep.RESUMED: Phase.ASKING,
        RunStep.CALLED: Phase.WORKING,
        RunStep.ANSWERED: Phase.ENDED,
        RunStep.FAILED: Phase.ENDED,
        RunStep.CANCELLED: Phase.ENDED,
    },
    Phase.WORKING: {
        RunStep.RESUMED: Phase.WORKING,
        RunStep.SETTLED: Phase.ASKING,
        RunStep.PARKED: Phase.SUSPENDED,
        RunStep.CANCELLED: Phase.ENDED,
    },
    Phase.SUSPENDED: {RunStep.RESUMED: Phase.WORKING, RunStep.CANCELLED: Phase.ENDED},
    Phase.ENDED: {},
}


class CallPhase(StrEnum):
    """The phase of one tool call."""

    PROPOSED = "proposed"
    PENDING = "pending"
    QUEUED = "queued"
    WANTED = "wanted"
    RUNNING = "running"
    SETTLED = "settled"


class CallStep(StrEnum):
    """The causes of a change of a call's phase."""

    REFUSED = "refused"
    ADMITTED = "admitted"
    SHOWN = "shown"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    DISPATCHED = "dispatched"
    HANDED = "handed"
    REPEATED = "repeated"
    RETURNED = "returned"
    ABANDONED = "abandoned"
    RECALLED = "recalled"


CALL_TRANSITIONS: Final[dict[CallPhase, dict[CallStep, CallPhase]]] = {
    CallPhase.PROPOSED: {
        CallStep.REFUSED: CallPhase.SETTLED,
        CallStep.ADMITTED: CallPhase.QUEUED,
        CallStep.SHOWN: CallPhase.PENDING,
    },
    CallPhase.PENDING: {
        CallStep.APPROVED: CallPhase.QUEUED,
        CallStep.DENIED: CallPhase.SETTLED,
        CallStep.EXPIRED: CallPhase.SETTLED,
        CallStep.ABANDONED: CallPhase.SETTLED,
    },
    CallPhase.QUEUED: {
        CallStep.DISPATCHED: CallPhase.RUNNING,
        CallStep.HANDED: CallPhase.WANTED,
        CallStep.RECALLED: CallPhase.SETTLED,
        CallStep.ABANDONED: CallPhase.SETTLED,
    },
    CallPhase.WANTED: {
        CallStep.RETURNED: CallPhase.SETTLED,
        CallStep.EXPIRED: CallPhase.SETTLED,
        CallStep.ABANDONED: CallPhase.SETTLED,
    },
    CallPhase.RUNNING: {
        CallStep.REPEATED: CallPhase.QUEUED,
        CallStep.RETURNED: CallPhase.SETTLED,
        CallStep.ABANDONED: CallPhase.SETTLED,
    },
    CallPhase.SETTLED: {},
}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a run.

    Times are in milliseconds; time in which only a person is waited for does not count as `wall_clock_ms`.
    `max_tokens` counts the tokens that the model reports, in and out together; the turn in which they are
    used up is the last but one.
    """

    max_iterations: int = 6
    max_calls: int = 24
    max_equal_calls: int = 3
    max_tokens: int = 1_000_000
    max_parallel: int = 4
    max_result_bytes: int = 32_768
    wall_clock_ms: int = 300_000
    patience_ms: int = 300_000
    confirmation_ttl_ms: int = 86_400_000


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a read for the model; `size` is in bytes, before it was cut."""

    content: str
    size: int
    truncated: bool


class CallState(msgspec.Struct, kw_only=True):
    """One tool call of the current turn.

    `id` is ours and unique in the run; `model_name` is safe to send back, and `sealed` goes back with it.
    `foreign`: its result holds words of others. `memory_key` is set where an equal call has the same result,
    `excessive` where it was made too often. `provider` is the node that an effect on a single home is for,
    `home` the name of that home; while `locating`, the home is being determined. `signed_by` and `entry` are
    the node and the call of the signed frame that ended it, `answered` its code, None where that frame does
    not say how the effect ended; `unsent`: it failed before anything was sent. `changes`: it is one of the
    effects that are listed; a person may be asked about others, too. `repeated`: it is an effect that an
    earlier process had sent.
    """

    id: str
    name: str
    model_name: str
    arguments: dict[str, Any]
    sealed: dict[str, str] = {}
    phase: CallPhase = CallPhase.PROPOSED
    capability: str = ""
    body: dict[str, Any] = {}
    client_id: str = ""
    arguments_digest: str = ""
    timeout_ms: int = 0
    effect: bool = False
    confirmation_id: str = ""
    shown_at: int = 0
    expires_at: int = 0
    wanted_until: int = 0
    undecided: bool = False
    edits: int = 0
    problem: str = ""
    dispatched_at: int = 0
    locating: bool = False
    provider: str = ""
    home: str = ""
    granting: bool = False
    untrusted: bool = False
    grant: str = ""
    use: int = 0
    foreign: bool = False
    memory_key: str = ""
    epoch: int = 0
    excessive: bool = False
    content: str = ""
    is_error: bool = False
    signed_by: str = ""
    entry: str = ""
    answered: str | None = None
    unsent: bool = False
    changes: bool = False
    repeated: bool = False

    @property
    def open(self) -> bool:
        """Return whether the call has no result yet."""
        return self.phase is not CallPhase.SETTLED

    @property
    def waits(self) -> bool:
        """Return whether the call waits for a person or the client."""
        return self.phase in (CallPhase.PENDING, CallPhase.WANTED)

    def step(self, step: CallStep) -> None:
        """Change the phase as the table allows."""
        self.phase = CALL_TRANSITIONS[self.phase][step]


class RunState(msgspec.Struct, kw_only=True):
    """The whole state of a run.

    `messages` is the transcript so far. `calls`, `text`, `thoughts`, `served` (each with the number of pieces
    of text before it) and `aliases` belong to the current turn. `repeats` counts equal calls; `memory` holds
    results of reads since the last effect, `epoch` counts the beginnings and ends of effects; `results` are
    the large ones, by CID, with their bytes. `granted` are the tools with standing grants, `denied` those
    that a person denied. `untrusted`: the model was shown words of others. `thread_kept` is the number of
    `messages` that the model's provider keeps. `follow_up`: a turn that acted is returned before the next
    request to the model; `returned` is the last turn for which that was done. `shown` are the tools that the
    model sees. `effects` are those that have ended; `listed`: all of them are there, as in no run that
    an earlier version saved.
    """

    run: str
    messages: list[dict[str, Any]]
    tool_choice: ToolChoice
    limits: Limits
    phase: Phase = Phase.READY
    iteration: int = 0
    closing: bool = False
    limit: str = ""
    calls: list[CallState] = []
    text: list[str] = []
    thoughts: list[dict[str, Any]] = []
    served: list[tuple[int, dict[str, Any]]] = []
    aliases: dict[str, str] = {}
    flooded: bool = False
    used_ids: set[str] = set()
    call_count: int = 0
    repeats: dict[str, int] = {}
    memory: dict[str, Remembered] = {}
    epoch: int = 0
    results: dict[str, int] = {}
    thread_kept: int = 0
    records: list[CallRecord] = []
    effects: list[Effect] = []
    listed: bool = False
    granted: list[str] = []
    denied: list[str] = []
    untrusted: bool = False
    follow_up: bool = False
    returned: int = 0
    shown: list[str] = []
    tokens_in: int = 0
    tokens_out: int = 0
    meta: dict[str, Any] = {}
    spent_ms: int = 0
    now: int = 0

    def step(self, step: RunStep) -> None:
        """Change the phase as the table allows."""
        self.phase = TRANSITIONS[self.phase][step]

    @property
    def busy(self) -> bool:
        """Return whether a machine is at work, and not only a person."""
        return self.phase is Phase.ASKING or any(
            call.phase is CallPhase.RUNNING or call.phase is CallPhase.QUEUED for call in self.calls
        )

    def record(self, call: CallState, status: CallStatus, size: int) -> CallRecord:
        """Record the end of `call`."""
        ms = max(0, self.now - call.dispatched_at) if call.dispatched_at else 0
        record = CallRecord(tool_call_id=call.id, name=call.name, status=status, ms=ms, bytes=size)
        self.records.append(record)
        return record


def new_run(
    run: str,
    messages: list[dict[str, Any]],
    tool_choice: ToolChoice,
    limits: Limits,
    granted: list[str] | None = None,
) -> RunState:
    """Return a run that has not started.

    Call ids in `messages` count as used, and tool results in them as untrusted. `granted` names the tools
    with standing grants.
    """
    used = {
        str(call.get("id", ""))
        for message in messages
        for call in message.get("tool_calls", ())
        if isinstance(call, dict)
    }
    return RunState(
        run=run,
        messages=list(messages),
        tool_choice=tool_choice,
        limits=limits,
        used_ids=used,
        listed=True,
        granted=granted or [],
        untrusted=any(message.get("role") == "tool" for message in messages),
    )
