"""A saved run as JSON, for the command line and the clients of a gateway."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from hearthnet.agent.loop import limits
from hearthnet.agent.loop.transcript import limit_note
from hearthnet.agent.persistence.decision_log import SignedDecision
from hearthnet.agent.persistence.run_record import EffectRecord, RunRecord
from hearthnet.agent.persistence.saved_runs import RunDetails, status_of
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.trust.audit_chain import AuditEntry

_MOST_OF_A_QUESTION: Final = 280
_OF_AN_EFFECT: Final = ("proposed_at", "claimed_at", "ended_at", "result", "grant", "use")


def summary(record: RunRecord, asked: list[PendingApproval]) -> dict[str, Any]:
    """Return the run as a line of a list.

    `asked` are the calls without a decision. Times are in milliseconds since the epoch.
    """
    return {
        "run": record.run,
        "principal": record.principal,
        "state": record.state.phase.value,
        "question": question(record),
        "started_at": record.started_at,
        "saved_at": record.saved_at,
        "expires_at": record.expires_at,
        "untrusted": record.state.untrusted,
        "pending": msgspec.to_builtins(asked),
    }


def question(record: RunRecord) -> str:
    """Return the beginning of the user's last message.

    The loop's note about a limit, which is a user message too, is skipped.
    """
    state = record.state
    note = limit_note(limits.limit_text(state.limit, state.limits)) if state.limit else None
    questions = [message for message in state.messages if message.get("role") == "user" and message != note]
    content = questions[-1].get("content", "") if questions else ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return text[:_MOST_OF_A_QUESTION]


def calls(page: RunDetails, now_ms: int) -> list[dict[str, Any]]:
    """Return each call with its proposal, decision, execution and result."""
    return [_call(effect, page, now_ms) for effect in page.record.effects]


def _call(effect: EffectRecord, page: RunDetails, now_ms: int) -> dict[str, Any]:
    one = page.decisions.get(effect.asked.confirmation_id)
    entries = executed(effect, page)
    began = next((entry for entry in entries if entry.kind == "began"), None)
    ended = next((entry for entry in entries if entry.kind == "ended"), None)
    return {
        **msgspec.to_builtins(effect.asked),
        "status": status_of(effect, one, now_ms),
        **{name: getattr(effect, name) for name in _OF_AN_EFFECT},
        "decided": None if one is None else decision_view(one),
        "executed": began and {"entry": began.sequence, "digest": began.digest},
        "outcome": ended and {"entry": ended.sequence, "code": ended.code, "hash": ended.outcome},
    }


def executed(effect: EffectRecord, page: RunDetails) -> list[AuditEntry]:
    """Return the entries of this node's audit log about the call itself."""
    key = effect.asked.client_id
    began = {entry.sequence for entry in page.log if entry.kind == "began" and entry.idempotency_key == key}
    return [
        entry
        for entry in page.log
        if entry.sequence in began or (entry.kind == "ended" and entry.began in began)
    ]


def decision_view(one: SignedDecision) -> dict[str, Any]:
    """Return a decision: its word, principal, way, time and approval."""
    fields = ("run", "tool_call_id", "capability", "shown", "digest", "by", "via", "time")
    decision: dict[str, Any] = msgspec.to_builtins(one.decision)
    approval = "" if one.signed_approval is None else one.signed_approval.id
    return {
        "word": one.word,
        **decision,
        **{name: getattr(one, name) for name in fields},
        "approval": approval,
    }
