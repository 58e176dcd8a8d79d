"""What happened: the state of each effect that was asked for, by signed records alone.

No words are read, neither the model's nor a provider's: an effect is done where its provider has signed the
reply that says so, and nowhere else.

See: docs/protocol/agent.md#what-happened.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.agent.loop.state import CallPhase, CallState, RunState
from hearthnet.agent.tools.types import CallStatus, Effect, EffectState, PendingApproval
from hearthnet.core.errors import HearthNetError

HAPPENED: Final = "happened"
"""The member of frames and answers that has the list."""
LOST: Final = frozenset({"timeout", "partition"})
"""Codes after which the caller cannot say whether an effect happened; the provider may know."""
UNSURE: Final = LOST | {"outcome_unknown", "internal_error"}
"""The codes of `LOST` and those of a provider that cannot say either
(hearthnet/service/effects/exactly_once.py).
"""
_UNSENT: Final[frozenset[str]] = frozenset({"refused", "denied", "expired", "cancelled"})
"""Ends of calls that were sent to nobody."""


def happened(state: RunState) -> list[dict[str, Any]]:
    """Return what happened in a run so far: each effect once, those that have ended first."""
    waiting = [
        effect_of(call, "unknown" if call.repeated or call.phase is CallPhase.RUNNING else "waiting")
        for call in state.calls
        if call.changes and call.open
    ]
    return [*map(as_json, [*state.effects, *waiting])] or nothing()


def nothing() -> list[dict[str, Any]]:
    """Return what happened where no effect was asked for."""
    return [as_json(Effect(state="nothing"))]


def ended(call: CallState, status: CallStatus) -> Effect:
    """Return the effect of `call`, which ended with `status`."""
    is_unsent = (status in _UNSENT or call.unsent) and not call.repeated
    return effect_of(call, "refused" if is_unsent else outcome_of(call.entry, call.answered))


def unsigned(asked: PendingApproval, status: str) -> Effect:
    """Return the effect that a person was asked about, which ended with `status` in a run without a list."""
    return Effect(
        state="refused" if status in _UNSENT else "unknown",
        tool_call_id=asked.tool_call_id,
        name=asked.name,
        capability=asked.capability,
        home=asked.provider,
    )


def outcome_of(entry: str, code: str | None) -> EffectState:
    """Return the state of an effect that was sent.

    `entry` is the id of the call in the frame that its provider has signed, empty without one. `code` is the
    wire code in that frame, empty for a success, None where it does not say how the effect ended.
    """
    if not entry or code is None or code in UNSURE:
        return "unknown"
    return "refused" if code else "done"


def of_call(capability: str, home: str, entry: str, code: str | None = "") -> list[dict[str, Any]]:
    """Return what happened by one call of an effect without a model; see `outcome_of`."""
    return [as_json(Effect(state=outcome_of(entry, code), capability=capability, home=home, entry=entry))]


def of_error(capability: str, error: HearthNetError) -> list[dict[str, Any]]:
    """Return what happened by one call of an effect that failed with `error`."""
    return of_call(capability, error.signed_by, error.entry, error.code)


def with_list(error: HearthNetError, found: list[dict[str, Any]]) -> HearthNetError:
    """Return `error` with a list; a new one, since several calls may have failed with the same error."""
    copy = HearthNetError.from_body(error.to_body())
    copy.details = {**error.details, HAPPENED: found}
    return copy


def stripped(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a provider sent without a list of its own."""
    if HAPPENED not in data:
        return data
    return {name: value for name, value in data.items() if name != HAPPENED}


def unsent(capability: str) -> list[dict[str, Any]]:
    """Return what happened by a call of an effect that was sent to nobody."""
    return [as_json(Effect(state="refused", capability=capability))]


def effect_of(call: CallState, state: EffectState) -> Effect:
    """Return the effect of `call` in this state."""
    return Effect(
        state=state,
        tool_call_id=call.id,
        name=call.name,
        capability=call.capability,
        home=call.signed_by or call.provider,
        entry=call.entry,
    )


def as_json(effect: Effect) -> dict[str, Any]:
    """Return an effect as JSON, without members that are empty."""
    found: dict[str, Any] = msgspec.to_builtins(effect)
    return found
