"""One question from the command line: connection, run, output and exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from hearthnet.agent.devices.other_devices import OtherDevices
from hearthnet.agent.loop.happened import HAPPENED
from hearthnet.agent.persistence.saved_runs import SavedRuns
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.grant_store import GrantBook
from hearthnet.agent.runtime.ports import Listener
from hearthnet.agent.runtime.result_store import HomeResults
from hearthnet.agent.runtime.settings import ToolSettings, tool_settings
from hearthnet.agent.tools.builtin import UNAVAILABLE
from hearthnet.agent.tools.dynamic import dynamic_tools
from hearthnet.agent.tools.types import PendingApproval
from hearthnet.bus.bus import Bus
from hearthnet.cli.input import settings_file
from hearthnet.cli.input.confirm import Person
from hearthnet.cli.input.options import CommandSettings
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import one_line
from hearthnet.cli.workflows.question_plan import ModelOffer, Offered, Plan
from hearthnet.cli.workflows.run_commands import check_visible, open_run_store
from hearthnet.cli.workflows.run_printer import UNKNOWN, Show
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import (
    INTERRUPTED,
    OK,
    OTHER,
    REFUSED,
    UNCONFIRMED,
    HearthNetError,
    Unavailable,
    exit_code,
)
from hearthnet.core.home import Home
from hearthnet.core.node_state import starting_services

if TYPE_CHECKING:
    from hearthnet.agent.runtime.driver import Outcome, ToolRun

_PATIENCE_SECONDS: Final = 6.0
_AGAIN_SECONDS: Final = 0.5
_BEFORE: Final = frozenset({"iteration", "notice", "progress", "error"})
"""Frames that come before the first output of a model."""
_NO_ANSWER: Final = {
    "max_tokens": "there is no answer: the model reached its limit of tokens before it said anything; ask "
    "for less, or ask another model with --model",
    "end": "there is no answer: the model ended without saying anything; ask again in other words, or "
    "ask another model with --model",
}
"""Messages for a run without an answer, by stop reason."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question and its options on the command line; `node` is the one whose tools are named."""

    text: str
    corpus: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None
    yes_to: tuple[str, ...] = ()
    node: str = ""


async def ask(home: Home, question: Question, settings: CommandSettings) -> int:
    """Ask `question` at the node in `home`; return the exit code.

    Errors of the model are passed through; of several that were tried, that of the last.

    Raises:
        HearthNetError: `not_found` for an unknown corpus, tool, model or capability.
    """
    async with (
        await Bus.connect(home, name="cli ask") as bus,
        open_run_store(home, bus.peer.identity) as runs,
    ):
        tools = tool_settings(load_config(home).llm)
        offered, plan = await _plan(bus, home, question, tools)
        person = Person(
            bus.peer.node_id, plan.tools, question.yes_to, can_ask=not settings.frames, chosen=question.node
        )
        grants = GrantBook(home.standing_grants)
        results = HomeResults(home)
        executor = ToolExecutor(
            bus,
            list(plan.tools),
            **tools.limits_of(plan.tools),
            store=runs,
            via="ask",
            grants=grants,
            results=results,
        )

        async def opened(hear: Listener) -> ToolRun:
            request = plan.request(question.text)
            return executor.open_run(request, stream_to=hear, decide=person.decide)

        failed: list[str] = []
        instead = ""
        async with results:
            while True:
                run = Run(settings, plan, instead=instead)
                try:
                    return await run.drive(bus, opened)
                except HearthNetError as error:
                    free = question.model is None and not run.begun
                    other = offered.instead(error, plan, failed) if free else None
                    if other is None:
                        explained = offered.explained(error, plan, failed)
                        raise _none_answered(explained, failed, plan) if free else explained from error
                    instead = f"{error.message}; {other.name} answers instead"
                    failed.append(plan.model.name)
                    plan = replace(plan, model=other, notices=())


def _none_answered(error: HearthNetError, failed: list[str], plan: Plan) -> HearthNetError:
    """Return `error` of the last model, with the names of all that were tried if there are several."""
    if not failed:
        return error
    tried = one_line(", ".join([*failed, plan.model.name]))
    return HearthNetError(
        error.code,
        f"no model answered (tried: {tried}): {error.message}",
        details=error.details,
        retry_after_ms=error.retry_after_ms,
        alt=error.alt,
    )


async def resume(home: Home, run: str, settings: CommandSettings) -> int:
    """Continue the saved run `run` of the node in `home` as `ask` does; return the exit code.

    A run of another device of the person is taken over first. Raises what `ToolExecutor.open_saved` and
    `OtherDevices.bring_here` raise, and errors of the model.
    """
    async with (
        await Bus.connect(home, name="cli ask") as bus,
        open_run_store(home, bus.peer.identity) as runs,
    ):
        saved = SavedRuns(runs, bus.peer.identity, bus.peer.community)
        if device := await OtherDevices(home, bus).bring_here(saved, run):
            terminal.info(f"taken over from {device}")
        record = (await saved.load(run)).record
        check_visible(home, record)
        plan = Plan(await _offer(bus, record.request["params"]), tuple(record.tools), "auto")
        person = Person(bus.peer.node_id, plan.tools, (), can_ask=not settings.frames)
        grants = GrantBook(home.standing_grants)
        results = HomeResults(home)
        limits = tool_settings(load_config(home).llm).limits_of(plan.tools)
        executor = ToolExecutor(bus, [], **limits, store=runs, via="runs", grants=grants, results=results)

        async def opened(hear: Listener) -> ToolRun:
            return await executor.open_saved(run, stream_to=hear, decide=person.decide)

        waiting = [effect.asked.tool_call_id for effect in record.effects if not effect.ended_at]
        known = {call.id: (call.name, call.arguments) for call in record.state.calls}
        async with results:
            return await Run(settings, plan, dict.fromkeys(waiting, ("", "")), known).drive(bus, opened)


async def _offer(bus: Bus, params: dict[str, Any]) -> ModelOffer:
    """Return the present offer of a saved run's model; its name alone if it is not offered."""
    offers = (ModelOffer(view.params) for view in await bus.offers("llm.chat"))
    return next((offer for offer in offers if params.get("model") in offer.names), ModelOffer(params))


async def _plan(bus: Bus, home: Home, question: Question, tools: ToolSettings) -> tuple[Offered, Plan]:
    """Return the offers, and the model and tools chosen from them.

    It waits a few seconds for offers of services that are starting.
    """
    last = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
    while True:
        # Read before the offers: a service that starts in between is then in both.
        starting = starting_services(home)
        connected = settings_file.model_names(home)
        late = asyncio.get_running_loop().time() >= last
        try:
            own = bus.peer.node_id
            defined = [name for name in question.tools if is_provider_defined(name)]
            fetched = await dynamic_tools(bus, defined, dict.fromkeys(defined, question.node))
            views = await bus.offers()
            roster = bus.peer.roster
            offered = Offered(views, own, home.config_file, connected, tools, fetched, question.node, roster)
            names = [name.partition("@")[0] if is_provider_defined(name) else name for name in question.tools]
            plan = offered.plan(question.corpus, names, question.model)
            if late or not (plan.notices and starting):
                return offered, plan
        except HearthNetError as error:
            if error.code != "not_found" or not starting:
                raise
            if late:
                reason = f"{error.message} ({', '.join(starting)} is starting: try again in a moment)"
                raise Unavailable(reason, rule="provider_starting") from error
        await asyncio.sleep(_AGAIN_SECONDS)


@dataclass
class Run:
    """One run of the tool loop with its listeners."""

    settings: CommandSettings
    plan: Plan
    effects: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The calls that a person had to decide about, with the status and text of their results."""
    known: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """Name and arguments of calls that an earlier process has shown."""
    instead: str = ""
    """The reason why this model answers in place of another one."""
    begun: bool = False
    """Set when the model has produced text or a call."""
    spoken: bool = False
    """Set when the model has produced text."""

    async def drive(self, bus: Bus, opened: Callable[[Listener], Awaitable[ToolRun]]) -> int:
        """Run to the end and return the exit code; SIGINT and SIGTERM cancel."""
        show = Show(self.plan, self.known)
        if not self.settings.frames:
            show.opening()

        async def hear(frame: dict[str, Any]) -> None:
            self._note(frame)
            if frame["event"] == "error":
                show.failed(frame["data"])
                return  # `drive` raises it, and another model may still answer
            if self.settings.frames:
                terminal.json_line({"event": frame["event"], "data": frame["data"]})
            else:
                show.frame(frame["event"], frame["data"])

        if self.instead:
            await hear({"event": "notice", "data": {"code": "other_model", "text": self.instead}})
        for text in self.plan.notices:
            await hear({"event": "notice", "data": {"code": UNAVAILABLE, "text": text}})
        run = await opened(hear)
        try:
            with _cancelled_by_signals(run):
                outcome = await run.drive()
        except HearthNetError as error:
            if HAPPENED not in error.details and self.spoken:
                # As where the store is lost: there is no list, and the words may look like one.
                error.details = {**error.details, HAPPENED: UNKNOWN}
            raise
        finally:
            if not self.settings.frames:
                show.ending()
        return self._exit_code(outcome)

    def _note(self, frame: dict[str, Any]) -> None:
        data = frame["data"]
        self.begun = self.begun or frame["event"] not in _BEFORE
        self.spoken = self.spoken or frame["event"] == "token"
        if frame["event"] == "confirmation_required":
            self.effects[data["tool_call_id"]] = ("", "")
        elif frame["event"] == "tool_result" and data["tool_call_id"] in self.effects:
            self.effects[data["tool_call_id"]] = (data["status"], str(data["content"]))

    def _exit_code(self, outcome: Outcome) -> int:
        if outcome.pending:
            for pending in outcome.pending:
                terminal.error(_how_to_go_on(pending))
            return UNCONFIRMED
        if outcome.done is not None and outcome.done["stop_reason"] == "cancelled":
            return INTERRUPTED
        codes = [_code_of_effect(status, text) for status, text in self.effects.values()]
        if problem := self._no_answer(outcome):
            terminal.error(problem)
            codes.append(OTHER)
        return next((code for code in codes if code != OK), OK)

    def _no_answer(self, outcome: Outcome) -> str:
        """Return the message for a missing answer; none is required after a completed effect."""
        done = outcome.done
        if done is None or str(outcome.message.get("content") or "").strip():
            return ""
        effects = {tool.name for tool in self.plan.tools if tool.side_effects}
        acted = any(one["name"] in effects and one["status"] == "completed" for one in done["tools"])
        return "" if acted and done["stop_reason"] == "end" else _NO_ANSWER.get(done["stop_reason"], "")


def _code_of_effect(status: str, text: str) -> int:
    """Return the exit code for an effect: whether it happened, else the reason why not."""
    if status == "completed":
        return OK
    if status in {"denied", "expired"}:
        return REFUSED
    return exit_code(text.partition(":")[0]) if status == "failed" else OTHER


def _how_to_go_on(pending: PendingApproval) -> str:
    name, run = pending.capability.partition("@")[0], pending.run
    return (
        f"{pending.capability} needs a yes, and nobody was there to give it: nothing was sent. Within a day: "
        f"hearthnet runs approve {run} {one_line(pending.tool_call_id)}, then: hearthnet runs resume {run} "
        f"(or ask again in a terminal, or with --yes-to {name})"
    )


@contextlib.contextmanager
def _cancelled_by_signals(run: ToolRun) -> Iterator[None]:
    """Cancel the run at the first SIGINT or SIGTERM; the second one ends this process."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
        run.cancel()

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
