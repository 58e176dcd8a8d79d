"""Calls that wait for a person to decide, or for the client to run a tool of its own.

See: docs/protocol/agent.md#consent-to-effects, docs/protocol/agent.md#client-tools.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet.agent.loop.events import (
    Abort,
    Action,
    AnswerEvent,
    AskClient,
    AskGrant,
    AskHome,
    AskPerson,
    ClientAnswered,
    ClientEvent,
    DecisionMade,
    GrantEvent,
    GrantUsed,
    HomeEvent,
    Located,
    PersonEvent,
    Undecided,
)
from hearthnet.agent.loop.outcomes import Outcomes, unknown_outcome
from hearthnet.agent.loop.state import CallPhase, CallState, CallStep, RunState, confirmation_id_of
from hearthnet.agent.tools.providers import is_for_one_home, prepare_edited
from hearthnet.agent.tools.result_text import error_text
from hearthnet.agent.tools.toolbox import Prepared, Toolbox
from hearthnet.agent.tools.types import ClientCallRequest, Deny, Edit, PendingApproval

MAX_EDITS: Final = 5


class PendingCalls:
    """Requests to people and to the client, and their answers; their actions are appended to `out`."""

    def __init__(self, state: RunState, toolbox: Toolbox, outcomes: Outcomes, out: list[Action]) -> None:
        self._state = state
        self._toolbox = toolbox
        self._outcomes = outcomes
        self._out = out

    def on_answer(self, event: AnswerEvent) -> None:
        """Handle an answer, or the news that there is none."""
        if isinstance(event, PersonEvent):
            self._on_decision(event)
        elif isinstance(event, GrantEvent):
            self._on_grant(event)
        elif isinstance(event, HomeEvent):
            self._on_home(event)
        else:
            self._on_client_result(event)

    def show(self, call: CallState) -> None:
        """Have a person decide about `call`, unless a standing grant covers it."""
        state = self._state
        call.confirmation_id = confirmation_id_of(state.run, call.id)
        call.shown_at, call.undecided = state.now, False
        call.expires_at = call.expires_at or state.now + state.limits.confirmation_ttl_ms
        call.untrusted = state.untrusted
        call.locating = not call.provider and is_for_one_home(self._toolbox[call.name])
        if call.locating:
            self._out.append(AskHome(pending_of(self._state.run, call)))
        else:
            self._find_consent(call)

    def _pending_call(self, confirmation_id: str) -> CallState | None:
        pending = (call for call in self._state.calls if call.phase is CallPhase.PENDING)
        return next((call for call in pending if call.confirmation_id == confirmation_id), None)

    def _on_home(self, event: HomeEvent) -> None:
        """Set the home that one pending call is for; ignore any other call."""
        call = self._pending_call(event.confirmation_id)
        if call is None or not call.locating:
            return
        call.locating = False
        if isinstance(event, Located):
            call.provider, call.home = event.provider, event.home
            self._find_consent(call)
        else:
            self._outcomes.fail(call, CallStep.ABANDONED, "refused", error_text(event.code, event.message))

    def _find_consent(self, call: CallState) -> None:
        """Look for a standing grant where one may serve; ask a person otherwise."""
        call.granting = self._may_be_granted(call)
        if call.granting:
            self._out.append(AskGrant(pending_of(self._state.run, call)))
        else:
            self._ask(call)

    def _may_be_granted(self, call: CallState) -> bool:
        """Return whether a standing grant may serve `call`.

        A denial of the same tool, words of others in the run, and an invalid edit rule it out.
        """
        state = self._state
        has_grant = call.name in state.granted and call.name not in state.denied
        return has_grant and not state.untrusted and not call.problem

    def _on_grant(self, event: GrantEvent) -> None:
        """Handle the result of the search for a standing grant; ignore any other call."""
        call = self._pending_call(event.confirmation_id)
        if call is None or not call.granting:
            return
        call.granting = False
        if isinstance(event, GrantUsed) and self._may_be_granted(call):
            call.grant, call.use = event.grant, event.use
            call.step(CallStep.APPROVED)
            text = f"{call.name} runs without a question: a standing grant covers it (use {event.use})"
            self._outcomes.emit("notice", {"code": "grant_used", "text": text, "grant": event.grant})
        else:
            self._ask(call)

    def _ask(self, call: CallState) -> None:
        pending = pending_of(self._state.run, call)
        self._outcomes.report(call, "waiting")
        self._outcomes.emit("confirmation_required", msgspec.to_builtins(pending))
        self._out.append(AskPerson(pending))

    def _on_decision(self, event: PersonEvent) -> None:
        """Handle a decision about one pending call; ignore any other call."""
        call = self._pending_call(event.confirmation_id)
        if call is None or call.locating:
            return
        if isinstance(event, Undecided):
            call.undecided = True
        elif isinstance(event.decision, Deny):
            self._state.denied.append(call.name)
            reason = event.decision.reason
            self._deny(call, f"the user said no: {reason}" if reason else "the user said no")
        else:
            self._approve(call, event)

    def _approve(self, call: CallState, event: DecisionMade) -> None:
        if event.now >= call.expires_at:
            self._expire(call)
        elif isinstance(event.decision, Edit):
            self._edit(call, event.decision.arguments)
        else:
            call.step(CallStep.APPROVED)

    def _edit(self, call: CallState, arguments: dict[str, Any]) -> None:
        prepared = prepare_edited(self._toolbox[call.name], call.arguments, arguments, call.client_id)
        if isinstance(prepared, Prepared):
            call.arguments, call.body = arguments, prepared.body
            call.arguments_digest, call.problem = prepared.arguments_digest, ""
            call.step(CallStep.APPROVED)
            return
        call.edits += 1
        if call.edits > MAX_EDITS:
            self._deny(call, "the user's changes were not valid")
        else:
            call.problem = prepared
            self.show(call)

    def _deny(self, call: CallState, why: str) -> None:
        self._outcomes.fail(call, CallStep.DENIED, "denied", error_text("denied", why))

    def hand_out(self, call: CallState) -> None:
        """Hand `call` to the client to run."""
        state = self._state
        call.step(CallStep.HANDED)
        call.dispatched_at = call.dispatched_at or state.now
        if call.effect:
            self._outcomes.memory.forget()
        self.request_client(call)

    def request_client(self, call: CallState) -> None:
        """Request the result of a call that was handed out."""
        state = self._state
        call.shown_at, call.undecided = state.now, False
        call.expires_at = call.wanted_until = (
            call.wanted_until or state.now + state.limits.confirmation_ttl_ms
        )
        wanted = client_request_of(state.run, call)
        self._outcomes.report(call, "wanted")
        self._outcomes.emit("tool_wanted", msgspec.to_builtins(wanted))
        self._out.append(AskClient(wanted))

    def _on_client_result(self, event: ClientEvent) -> None:
        """Handle the result of a call that the client runs; ignore any other call."""
        call = next((c for c in self._state.calls if c.id == event.tool_call_id), None)
        if call is None or call.phase is not CallPhase.WANTED:
            return
        if not isinstance(event, ClientAnswered):
            call.undecided = True
        elif event.now >= call.expires_at:
            self._expire(call)
        else:
            call.foreign = True
            self._outcomes.finish(call, event.content, {}, is_error=event.is_error)

    def _expire(self, call: CallState) -> None:
        if call.phase is CallPhase.PENDING:
            text = error_text("confirmation_expired", "nobody decided in time; nothing was done")
            self._outcomes.fail(call, CallStep.EXPIRED, "expired", text)
        elif call.effect:
            text = unknown_outcome("the client gave no answer in time")
            self._outcomes.fail(call, CallStep.EXPIRED, "outcome_unknown", text)
        else:
            text = error_text("timeout", "the client gave no answer in time")
            self._outcomes.fail(call, CallStep.EXPIRED, "expired", text)
        self._out.append(Abort(call.id))

    def expire_overdue(self) -> None:
        """Expire calls whose time has passed, and stop waiting after `patience_ms`."""
        state = self._state
        for call in state.calls:
            if not call.waits:
                continue
            if state.now >= call.expires_at:
                self._expire(call)
            elif state.now >= call.shown_at + state.limits.patience_ms:
                call.undecided = True


def pending_of(run: str, call: CallState) -> PendingApproval:
    """Return the parts of `call` that a person must see, or has seen."""
    return PendingApproval(
        confirmation_id=call.confirmation_id,
        run=run,
        tool_call_id=call.id,
        name=call.name,
        capability=call.capability,
        arguments=call.arguments,
        body=call.body,
        arguments_digest=call.arguments_digest,
        client_id=call.client_id,
        expires_at=call.expires_at,
        problem=call.problem,
        untrusted=call.untrusted,
        provider=call.provider,
        home=call.home,
    )


def client_request_of(run: str, call: CallState) -> ClientCallRequest:
    """Return the parts of `call` that the client needs to run it."""
    return ClientCallRequest(
        run=run,
        tool_call_id=call.id,
        name=call.name,
        arguments=call.arguments,
        expires_at=call.expires_at,
    )
