"""Execution of tools for a model: single calls or a whole conversation.

    executor = ToolExecutor(bus, builtin_tools(["search_corpus"], {"search_corpus": {"corpus": "system"}}))
    message = await executor.run_chat_with_tools(body, stream_to=show)

The executor works for the node whose bus it uses: it mints that node's run tokens and signs its approvals.
It signs an approval only after a decision: by `decide`, in its store, or by a call of `dispatch_confirmed`.

With a `store` its runs survive the process: waiting calls are decided from anywhere, and any process of the
node resumes them (docs/decisions/0070).

See: docs/tools.md#a-run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from hearthnet.agent.loop.approvals import pending_of
from hearthnet.agent.loop.call_machine import UNKNOWN, dispatch_of
from hearthnet.agent.loop.events import ToolReturned
from hearthnet.agent.loop.loop import ToolLoop
from hearthnet.agent.loop.outcomes import failure
from hearthnet.agent.loop.state import CallState, Limits, RunState, client_id_of, confirmation_id_of, new_run
from hearthnet.agent.persistence.checkpointer import Checkpointer
from hearthnet.agent.persistence.run_record import RunRecord, contracts_digest, dynamic_contracts
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.persistence.saved_runs import check_open, toolbox_of
from hearthnet.agent.runtime.authority import Scopes
from hearthnet.agent.runtime.client_authority import ClientPrincipal
from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.dispatch import Dispatcher
from hearthnet.agent.runtime.driver import Outcome, ToolRun
from hearthnet.agent.runtime.grant_store import GrantBook
from hearthnet.agent.runtime.model_turns import pop_thread_length, prewarm
from hearthnet.agent.runtime.ports import BusPort, Clock, ResultsPort, RunPorts
from hearthnet.agent.runtime.run_principal import RunPrincipal
from hearthnet.agent.tools.providers import at_named_home, home_in, home_of, prepare_edited, provider_of
from hearthnet.agent.tools.result_text import READ_RESULT, error_text
from hearthnet.agent.tools.selection import first_choice, offered_tools
from hearthnet.agent.tools.toolbox import DEFAULT_TOOL_SECONDS, BoundTool, ReaderTool, Toolbox, natives
from hearthnet.agent.tools.types import (
    Approve,
    Decision,
    Deny,
    Edit,
    ToolCall,
    ToolDefinition,
    ToolError,
    ToolResult,
)
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms


class ToolExecutor:
    """The tools of one conversation, with the means to run them."""

    def __init__(
        self,
        bus: BusPort,
        tools: list[ToolDefinition],
        *,
        max_iterations: int = 6,
        per_tool_timeout_seconds: float = DEFAULT_TOOL_SECONDS,
        max_parallel: int = 4,
        limits: Limits | None = None,
        store: RunStore | None = None,
        via: str = "decide",
        grants: GrantBook | None = None,
        results: ResultsPort | None = None,
        acting_for: ClientPrincipal | None = None,
        follow_up: bool = False,
    ) -> None:
        """Create an executor for `tools`.

        `max_iterations` and `max_parallel` replace those of `limits`. `results` stores results that are too
        large for the model, which can then read them in parts. `grants` are the owner's standing grants;
        without them each side effect needs a decision. `acting_for` is the client of these runs, where it is
        not the node's owner: only tools within its scope are declared, and the owner's grants do not serve
        it. `store` keeps its runs for a day; `via` is recorded there for decisions that `decide` returns.
        `follow_up`: a turn that acted is returned before the next request to the model (`requires_follow_up`
        with its `results`); `resume` sends that request.

        Raises:
            HearthNetError: `bad_request` for a tool that cannot be offered and for `follow_up` without a
                store; `not_found` for a tool bound to an unknown capability.
        """
        if follow_up and store is None:
            raise HearthNetError("bad_request", "a turn is given back where it is kept: give it a store")
        self._follow_up = follow_up
        self._bus = bus
        self._principal = RunPrincipal(bus, acting_for)
        self._toolbox = self._principal.toolbox([at_named_home(tool, bus.peer) for tool in tools])
        self._scopes = _scopes(self._toolbox)
        self._store = store
        self._via = via
        self._per_tool_seconds = per_tool_timeout_seconds
        self._limits = msgspec.structs.replace(
            limits or Limits(), max_iterations=max_iterations, max_parallel=max_parallel
        )
        self._grants = None if self._principal.has_client else grants
        self._results = results
        self._clock = Clock()
        self._run = ids.new_ulid()
        self._shown_homes: dict[tuple[str, str], str] = {}
        self._dispatcher = self._new_dispatcher(self._run, self._toolbox)

    @property
    def toolbox(self) -> Toolbox:
        """The tools of its runs."""
        return self._toolbox

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The tools as they were declared, without those outside the client's scope."""
        return [tool.definition for tool in self._toolbox]

    async def dispatch(self, call: ToolCall) -> ToolResult:
        """Run one call that has no side effects; errors are returned in the result.

        Raises:
            ToolError: `requires_confirmation` for a call with side effects: show its `pending`, then call
                `dispatch_confirmed`. The loop does all of this by itself.
        """
        return await self._run_call(call, call.arguments, is_confirmed=False)

    async def dispatch_confirmed(self, call: ToolCall, decision: Decision | None = None) -> ToolResult:
        """Run one call that a person has decided about; without `decision` it is approved."""
        decision = decision or Approve()
        if isinstance(decision, Deny):
            return _error(call, error_text("denied", decision.reason or "the user said no"))
        arguments = decision.arguments if isinstance(decision, Edit) else call.arguments
        return await self._run_call(call, arguments, is_confirmed=True)

    async def _run_call(self, call: ToolCall, arguments: dict[str, Any], *, is_confirmed: bool) -> ToolResult:
        tool = self._toolbox.find(call.name)
        if tool is None or isinstance(tool, ReaderTool):  # a single call has no results to read
            return _error(call, error_text(UNKNOWN, self._toolbox.unknown(call.name).message))
        if not isinstance(tool, BoundTool):
            return _error(call, error_text("bad_request", "only the client can run its own tool"))
        client_id = client_id_of(self._run, call.id)
        prepared = prepare_edited(tool, call.arguments, arguments, client_id)
        if isinstance(prepared, str):
            return _error(call, prepared)
        provider, peer = "", self._bus.peer
        if named := home_in(tool, arguments):
            # A name may mean another home by the time of the yes.
            provider = self._shown_homes.pop((call.id, named), "") if is_confirmed else ""
            try:
                own = peer.identity.node_id
                provider = provider or await provider_of(tool, self._bus, own, peer, named)
            except HearthNetError as error:
                return _error(call, error_text(error.code, error.message))
        state = CallState(
            id=call.id,
            name=tool.definition.name,
            model_name=tool.safe_name,
            arguments=call.arguments,
            capability=tool.capability,
            body=prepared.body,
            client_id=client_id,
            arguments_digest=prepared.arguments_digest,
            provider=provider,
            home=home_of(peer, provider) if provider else "",
            confirmation_id=confirmation_id_of(self._run, call.id),
            expires_at=self._clock.now_ms() + self._limits.confirmation_ttl_ms,
        )
        if tool.effect and not is_confirmed:
            if named:
                self._shown_homes[call.id, named] = provider
            raise ToolError(pending_of(self._run, state))
        dispatch = dispatch_of(state, tool.timeout_ms(self._per_tool_seconds))
        outcome = await self._dispatcher.outcome(dispatch, lambda _progress: None)
        if isinstance(outcome, ToolReturned):
            return ToolResult(call.id, call.name, outcome.output, outcome.is_error)
        return _error(call, failure(tool.effect, outcome.code, outcome.message)[1])

    async def run_chat_with_tools(
        self,
        chat_request_body: dict[str, Any],
        **ports: Unpack[RunPorts],
    ) -> dict[str, Any]:
        """Alternate between the model and its tools until it answers; return the last message.

        `stream_to` receives each frame `{"event", "data", "seq"}`. `decide` is called for every call with
        side effects, `run_tool` for each call of a client tool. Without them, or where they return None, the
        message has the text so far, with `requires_follow_up`, `run`, `pending` and `wanted`
        (docs/protocol/agent.md#done). Raises the model's error where there is no answer.
        """
        run = self.open_run(chat_request_body, **ports)
        return _answer(await run.drive())

    async def resume(
        self,
        run: str,
        decisions: Mapping[str, Decision] | None = None,
        answers: Mapping[str, ClientResult] | None = None,
        **ports: Unpack[RunPorts],
    ) -> dict[str, Any]:
        """Continue a saved run as `run_chat_with_tools` does; raises as `open_saved`."""
        opened = await self.open_saved(run, decisions, answers, **ports)
        return _answer(await opened.drive())

    async def prewarm(self, chat_request_body: dict[str, Any]) -> None:
        """Let the model read these messages and tools, or the tools alone, without an answer.

        A conversation that begins with them then starts faster. Errors of the model are passed through.
        """
        await prewarm(self._bus, self.prewarm_request(chat_request_body), self._dispatcher.model_token())

    def prewarm_request(self, chat_request_body: dict[str, Any]) -> dict[str, Any]:
        """Return the body of `llm.chat` for `prewarm`, with the tools as a run shows them."""
        fields = dict(chat_request_body.get("input") or {})
        messages = fields.pop("messages", None) or [{"role": "user", "content": ""}]
        choice = first_choice(self._toolbox, fields.pop("tool_choice", "auto"))
        if len(self._toolbox):
            fields["tools"] = natives(offered_tools(self._toolbox, messages, choice))
            fields["tool_choice"] = choice
        kept = pop_thread_length(fields, messages)
        if "thread_id" in fields:
            fields["thread_length"] = kept
        params = dict(chat_request_body.get("params") or {})
        return {"params": params, "input": {**fields, "messages": messages[kept:], "max_tokens": 0}}

    def open_run(
        self,
        chat_request_body: dict[str, Any],
        **ports: Unpack[RunPorts],
    ) -> ToolRun:
        """Return a run that has not begun: `drive` returns its outcome, `cancel` ends it.

        Raises:
            HearthNetError: `bad_request` for a body without messages; `not_found` for a demanded tool that is
                not declared.
        """
        fields = dict(chat_request_body.get("input") or {})
        messages = fields.pop("messages", None)
        if not isinstance(messages, list) or not messages:
            raise HearthNetError(
                "bad_request", "the request has no messages", details={"path": "/input/messages"}
            )
        choice = first_choice(self._toolbox, fields.pop("tool_choice", "auto"))
        offered = offered_tools(self._toolbox, messages, choice)
        if offered:
            fields["tools"] = natives(offered)
        kept = pop_thread_length(fields, messages)
        request = {"params": dict(chat_request_body.get("params") or {}), "input": fields}
        granted = self._grants.names() if self._grants is not None else []
        state = new_run(ids.new_ulid(), messages, choice, self._limits, granted)
        state.thread_kept, state.follow_up = kept, self._follow_up
        state.shown = [tool.definition.name for tool in offered]
        # The content of a thread is unknown here, and may hold words of others.
        state.untrusted |= state.thread_kept > 0
        checkpointer = None
        if self._store is not None:
            checkpointer = self._checkpointer(self._store, self._record(state, request), self._toolbox)
        loop = ToolLoop(state, self._toolbox, self._per_tool_seconds)
        return ToolRun(
            loop,
            self._bus,
            self._new_dispatcher(state.run, self._toolbox),
            request,
            clock=self._clock,
            checkpointer=checkpointer,
            **ports,
        )

    async def open_saved(
        self,
        run: str,
        decisions: Mapping[str, Decision] | None = None,
        answers: Mapping[str, ClientResult] | None = None,
        **ports: Unpack[RunPorts],
    ) -> ToolRun:
        """Take over a saved run, with its own tools and limits, and return it to be driven.

        `decisions`, by tool call id, are made before it is taken over; earlier decisions stay. `answers` are
        the client's results of its own tools. Errors of `SavedRuns.decide` are passed through.

        Raises:
            HearthNetError: `not_found` if the run is not stored; `invalid_signature` if it was altered;
                `bad_request` if it has ended or another process took it over first; `expired` if it is too
                old; `schema_mismatch` if its tools have changed.
        """
        if self._store is None:
            raise HearthNetError("bad_request", "this executor keeps no runs; give it a store")
        saved = self._principal.saved_runs(self._store)
        for call, decision in (decisions or {}).items():
            await saved.decide(run, call, decision, via=self._via)
        record, revision = await saved.load(run)
        self._principal.check(record)
        check_open(record, now_ms())
        toolbox = toolbox_of(record)
        checkpointer = self._checkpointer(self._store, record, toolbox, revision)
        await checkpointer.save()
        await checkpointer.notify()
        return ToolRun(
            ToolLoop(record.state, toolbox, record.per_tool_seconds),
            self._bus,
            self._new_dispatcher(run, toolbox),
            record.request,
            clock=self._clock,
            checkpointer=checkpointer,
            answers=answers,
            **ports,
        )

    def _record(self, state: RunState, request: dict[str, Any]) -> RunRecord:
        owner = self._bus.peer.identity.node_id
        return RunRecord(
            run=state.run,
            owner=owner,
            principal=self._principal.principal,
            key=self._principal.key,
            by_owner=self._principal.is_owner,
            state=state,
            request=request,
            tools=[tool.definition for tool in self._toolbox],
            contracts=contracts_digest(self._toolbox),
            told=dynamic_contracts(self._toolbox),
            per_tool_seconds=self._per_tool_seconds,
            started_at=now_ms(),
            via=self._via,
        )

    def _checkpointer(
        self, store: RunStore, record: RunRecord, toolbox: Toolbox, revision: int = 0
    ) -> Checkpointer:
        record.via = self._via
        record.by_owner = record.by_owner and self._principal.is_owner
        # The owner has no key to replace it: emptied, it would let a client without a key approve.
        if self._principal.has_client:
            record.key = self._principal.key
        decision_log = self._principal.saved_runs(store).decision_log
        return Checkpointer(store, self._bus.peer.identity, decision_log, toolbox, record, revision)

    def _new_dispatcher(self, run: str, toolbox: Toolbox) -> Dispatcher:
        authority = self._principal.authority(run, lambda: self._scopes_of(toolbox), self._store)
        # Where a declared tool has the reader's name, the model could not read a stored result.
        results = self._results if isinstance(toolbox.find(READ_RESULT), ReaderTool) else None
        whose = self._principal.principal
        return Dispatcher(self._bus, toolbox, authority, run, self._clock, self._grants, results, whose)

    def _scopes_of(self, toolbox: Toolbox) -> Scopes:
        return self._scopes if toolbox is self._toolbox else _scopes(toolbox)


def _scopes(toolbox: Toolbox) -> Scopes:
    return Scopes(tool for tool in toolbox if isinstance(tool, BoundTool))


def _answer(outcome: Outcome) -> dict[str, Any]:
    if outcome.done is not None:
        return outcome.message
    asked = {
        "pending": msgspec.to_builtins(outcome.pending),
        "wanted": msgspec.to_builtins(outcome.wanted),
    }
    if outcome.results:
        asked["results"] = outcome.results
    return {**outcome.message, "requires_follow_up": True, "run": outcome.run, **asked}


def _error(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, text, True)
