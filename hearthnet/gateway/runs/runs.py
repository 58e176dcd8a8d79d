"""Tool runs for clients of the gateway (docs/gateway.md, "Runs"; docs/decisions/0101).

    run = runs.open(client, body, hear)          # `hear` takes the frames of docs/tools.md
    outcome = await run.drive()                  # ... until it ends, or is suspended
    await runs.decide(client, run.run, call, Approve(), shown=digest, approval=signed, via="socket")

A run continues while its client is away, and waits for it where it needs a decision. All decisions go
through `decide`, from whichever connection they come: they are checked, stored once, and read from there by
the process that drives the run. After that the process may die: another one continues with `open_saved`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from hearthnet.agent.loop.state import Limits
from hearthnet.agent.persistence import run_view
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.run_record import RunRecord
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.persistence.saved_runs import SavedRuns, toolbox_of
from hearthnet.agent.runtime.client_authority import MODEL, ClientPrincipal
from hearthnet.agent.runtime.client_tools import ClientResult
from hearthnet.agent.runtime.driver import Outcome, ToolRun
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.ports import BusPort, Listener, ResultsPort, RunTool
from hearthnet.agent.runtime.result_store import HomeResults
from hearthnet.agent.runtime.settings import ToolSettings, tool_settings
from hearthnet.agent.tools.dynamic import dynamic_tools
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import Decision, Deny, ToolDefinition
from hearthnet.bus.bus import Bus
from hearthnet.bus.store import Store
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.clients import Client
from hearthnet.gateway.runs.client_presence import AWAY_SECONDS, ClientPresence
from hearthnet.gateway.runs.decision_body import NOTED, refused_fields
from hearthnet.gateway.runs.list_cache import RunListCache
from hearthnet.gateway.runs.principals import ClientsPort, RunPrincipals
from hearthnet.gateway.runs.requested_tools import told_names, tools_of
from hearthnet.gateway.runs.unsigned_approvals import ApprovalCache, ApprovalPresenter
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.service.effects.refusal_audit import Key, Refusals
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization import approval as approvals

MOST_AT_ONCE: Final = 32
"""The number of runs of one principal that are driven at a time."""
_DAY_MS: Final = 86_400_000


class GatewayRun:
    """One run that this gateway drives."""

    def __init__(
        self, run: ToolRun, presence: ClientPresence, hidden: list[str], ended: Callable[[], None]
    ) -> None:
        self._run = run
        self._ended = ended
        self._over = asyncio.Event()
        self.presence: Final = presence
        """The presence of the client; update it with `leave` and `come_back`."""
        self.hidden: Final = hidden
        """Requested tools that the client's scope does not cover."""

    @property
    def run(self) -> str:
        """The run's id."""
        return self._run.run

    def drive(self) -> asyncio.Task[Outcome]:
        """Start driving the run; the task raises as `ToolRun.drive`. Call it once."""
        task = asyncio.create_task(self._run.drive(), name=f"run {self.run}")
        # A callback, since a task that is cancelled before its first step would never count its end.
        task.add_done_callback(self._driven)
        return task

    def _driven(self, _task: asyncio.Task[Outcome]) -> None:
        self._over.set()
        self._ended()

    async def over(self) -> None:
        """Wait until the run is no longer driven."""
        await self._over.wait()

    def cancel(self) -> None:
        """End the run: `drive` returns with stop reason `cancelled` and the text so far."""
        self._run.cancel()


class GatewayRuns:
    """The runs of all clients of one gateway."""

    def __init__(
        self,
        bus: BusPort,
        clients: ClientsPort,
        store: RunStore,
        *,
        results: ResultsPort | None = None,
        limits: Limits | None = None,
        settings: Callable[[], ToolSettings] = ToolSettings,
        away_seconds: float = AWAY_SECONDS,
        clock: Callable[[], int] = now_ms,
        told: Callable[[list[str]], Awaitable[list[ToolDefinition]]] | None = None,
        to_close: tuple[Callable[[], Awaitable[None]], ...] = (),
    ) -> None:
        """Create the runs of a gateway.

        `settings` returns the owner's present settings, `limits` are the other limits of a run.
        `away_seconds` is the time for which a run waits for an absent client, `clock` returns milliseconds
        since the epoch.
        """
        self._bus = bus
        self._settings = settings
        self._store = store
        self._results = results
        # A run waits for as long as its client is present, not for a fixed time.
        self._limits = msgspec.structs.replace(limits or Limits(), patience_ms=_DAY_MS)
        self._away = away_seconds
        self._voters = RunPrincipals(bus, clients)
        node = bus.peer.identity.node_id
        origin = {"node": node, "community": bus.peer.community, "caller": node}
        self._refused, self._noting = Refusals(self._note, origin, "principal"), asyncio.Lock()
        self._clock = clock
        self._told = told or _nobody_tells
        self._to_close = to_close
        self._proposed = ApprovalCache()
        self._listed = RunListCache(store, self._clock)
        self._here: dict[tuple[str, str], GatewayRun] = {}

    @classmethod
    def of(cls, bus: Bus, home: Home, clients: ClientsPort) -> GatewayRuns:
        """Return the runs in the store of the node in `home`, connected at first use."""

        async def connect() -> Store:
            return await Store.connect(home, "gateway runs")

        store = StoredRuns(connect, bus.peer.identity, DiskGuard(home))
        results = HomeResults(home)
        return cls(
            bus,
            clients,
            store,
            results=results,
            settings=lambda: tool_settings(load_config(home).llm),
            told=lambda names: dynamic_tools(bus, names),
            to_close=(store.close, results.close),
        )

    async def close(self) -> None:
        """Write the counts of refusals and close the store."""
        await self._refused.close()
        for close in self._to_close:
            await close()

    # --- driven here

    async def begin(
        self,
        client: Client,
        body: Mapping[str, Any],
        hear: Listener,
        *,
        run_tool: RunTool | None = None,
        waits: bool = True,
        via: str = "gateway",
    ) -> GatewayRun:
        """Learn the contracts of foreign tools, then `open` a run.

        Raises:
            HearthNetError: `not_found` if no node offers such a tool; any error of `open`.
        """
        told = await self._learned(body)
        return self.open(client, body, hear, run_tool=run_tool, waits=waits, via=via, told=told)

    async def readying(self, client: Client, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the call of `llm.chat` by which the model only reads the beginning of a run.

        There is no answer (docs/decisions/0078). Raises as `begin`.
        """
        executor, request, _ = self._asked(client, body, await self._learned(body), "gateway")
        return executor.readying(request)

    async def _learned(self, body: Mapping[str, Any]) -> dict[str, ToolDefinition]:
        """Return the requested tools without installed contract, by capability."""
        names = told_names((body.get("input") or {}).get("tools"))
        return {tool.name: tool for tool in await self._told(names)} if names else {}

    def open(
        self,
        client: Client,
        body: Mapping[str, Any],
        hear: Listener,
        *,
        run_tool: RunTool | None = None,
        waits: bool = True,
        via: str = "gateway",
        told: Mapping[str, ToolDefinition] | None = None,
    ) -> GatewayRun:
        """Open a new run of `body`, a request of `llm.chat` with `input.tools` as in tool_list.py.

        `hear` receives its frames, `run_tool` has the client run its own tools. Without `waits` it is
        suspended as soon as it needs the client. `via` is recorded for its decisions.

        Raises:
            HearthNetError: `bad_request` and `not_found` for an invalid request or tool;
                `token_scope_insufficient` if the scope covers no model or none of the tools;
                `capacity_exceeded` for too many runs at once.
        """
        executor, request, hidden = self._asked(client, body, told, via)
        signing = self._signing(client, executor.toolbox)
        presence, ended = ClientPresence(self._away, run_tool), self._voters.begin(client, MOST_AT_ONCE)
        try:
            run = executor.open_run(
                request, stream_to=signing.hearing(hear, hidden), **presence.asked(waits=waits)
            )
        except BaseException:
            ended()
            raise
        return self._driven(client, run, presence, hidden, ended)

    def _asked(
        self, client: Client, body: Mapping[str, Any], told: Mapping[str, ToolDefinition] | None, via: str
    ) -> tuple[ToolExecutor, dict[str, Any], list[str]]:
        """Return the executor for `body`, the rest of `body`, and the tools outside the scope."""
        given = dict(body.get("input") or {})
        asked = tools_of(given.pop("tools", []), told)
        acting = self._voters.acting(client)
        if not acting.covers_named(MODEL):
            raise _not_covered(MODEL)
        executor = self._executor(acting, asked, via)
        shown = {tool.name for tool in executor.definitions}
        hidden = [tool.name for tool in asked if tool.name not in shown]
        if asked and not shown:
            raise _not_covered(", ".join(hidden))
        return executor, {"params": body.get("params") or {}, "input": given}, hidden

    async def open_saved(
        self,
        client: Client,
        run: str,
        hear: Listener,
        *,
        answers: Mapping[str, ClientResult] | None = None,
        run_tool: RunTool | None = None,
        waits: bool = True,
        via: str = "gateway",
    ) -> GatewayRun:
        """Take over a saved run of the client's; `answers` are the results of its own tools.

        Raises as `ToolExecutor.open_saved`, and `capacity_exceeded` for too many runs at once.
        """
        record = (await self._desk(client).load(run)).record
        if record.tools:
            self._settings().check()
        executor = self._executor(self._voters.acting(client), [], via)
        signing = self._signing(client, toolbox_of(record))
        presence, ended = ClientPresence(self._away, run_tool), self._voters.begin(client, MOST_AT_ONCE)
        try:
            opened = await executor.open_saved(
                run, answers=answers, stream_to=signing.hearing(hear, []), **presence.asked(waits=waits)
            )
        except BaseException:
            ended()
            raise
        return self._driven(client, opened, presence, [], ended)

    def _driven(
        self,
        client: Client,
        run: ToolRun,
        presence: ClientPresence,
        hidden: list[str],
        ended: Callable[[], None],
    ) -> GatewayRun:
        """Register and return the run that is driven here from now on."""
        name = client.principal, run.run

        def end() -> None:
            if self._here.get(name) is opened:
                del self._here[name]
            ended()

        opened = self._here[name] = GatewayRun(run, presence, hidden, end)
        return opened

    def _executor(self, acting: ClientPrincipal, tools: list[ToolDefinition], via: str) -> ToolExecutor:
        return self._settings().executor(
            self._bus,
            tools,
            limits=self._limits,
            store=self._store,
            via=via,
            results=self._results,
            acting_for=acting,
        )

    # --- kept

    async def listing(self, client: Client) -> list[dict[str, Any]]:
        """Return the client's runs of the last day, newest first, as `run_view.summary`."""
        return await self._listed.get(client, self._list)

    async def _list(self, client: Client) -> list[dict[str, Any]]:
        desk = self._desk(client)
        return [await self._summary(client, desk, record) for record in (await desk.listing()).runs]

    async def page(self, client: Client, run: str) -> dict[str, Any]:
        """Return a run with its calls and its conversation; raises as `SavedRuns.load`."""
        desk = self._desk(client)
        page = await desk.page(run)
        return {
            **await self._summary(client, desk, page.record),
            "calls": run_view.calls(page, self._clock()),
            "messages": page.record.state.messages,
        }

    async def preview(self, client: Client, run: str, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the call with these arguments as in `confirmation_required`, with `approval`.

        Raises as `SavedRuns.preview`.
        """
        desk = self._desk(client)
        asked = await desk.preview(run, call, arguments)
        toolbox = toolbox_of((await desk.load(run)).record)
        return await self._signing(client, toolbox).shown(msgspec.to_builtins(asked))

    async def decide(
        self,
        client: Client,
        run: str,
        call: str,
        decision: Decision,
        *,
        shown: str = "",
        approval: Mapping[str, Any] | None = None,
        via: str = "gateway",
    ) -> dict[str, Any]:
        """Store the client's decision, once; return the decision that counts.

        `shown` is the digest of the call as the client saw it, before an edit; a denial needs none.
        `repeated` is set where an earlier decision counts. A refused approval is recorded. Raises as
        `SavedRuns.decide`, and `bad_request` for a malformed approval.
        """
        self._voters.remember(client)
        desk = self._desk(client)
        try:
            signed = None if isinstance(decision, Deny) else _read(approval)
            taken = await desk.decide(run, call, decision, via=via, shown=shown, approval=signed)
        except HearthNetError as error:
            if error.code in NOTED and not isinstance(decision, Deny):
                self._refused.tick()
                key = Key(client.principal, str(error.details.get("rule", error.code)), error.code)
                written = self._refused.take(key, lambda: refused_fields(run, call, approval, via))
                if written is not None:
                    await asyncio.wait({written})
            raise
        return {"repeated": taken.repeated, **run_view.decision_view(taken.said)}

    async def cancel(self, client: Client, run: str) -> dict[str, Any]:
        """End the client's run in whichever process drives it; raises as `SavedRuns.cancel`."""
        desk = self._desk(client)
        driven = self._here.get((client.principal, run))
        if driven is None:
            return await self._summary(client, desk, await desk.cancel(run))
        driven.cancel()
        await driven.over()
        try:
            return await self._summary(client, desk, (await desk.load(run)).record)
        except HearthNetError as error:
            if error.code != "not_found":
                raise
            return {"run": run, "state": "ended"}  # a run without calls is not saved

    # --- parts

    async def _note(self, entry: AuditEntry) -> None:
        """Append a refusal; one at a time, since the store takes equal ones at the same place as one."""
        async with self._noting:
            await self._store.note(entry, await self._store.place())

    async def _summary(self, client: Client, desk: SavedRuns, record: RunRecord) -> dict[str, Any]:
        found = run_view.summary(record, await desk.waiting(record))
        if client.key and found["pending"]:
            signing = self._signing(client, toolbox_of(record))
            found["pending"] = await signing.all_shown(found["pending"])
        return found

    def _signing(self, client: Client, toolbox: Toolbox) -> ApprovalPresenter:
        return ApprovalPresenter(self._voters.voter(client), toolbox, self._proposed)

    def _desk(self, client: Client) -> SavedRuns:
        peer = self._bus.peer
        voter = self._voters.voter(client)
        return SavedRuns(self._store, peer.identity, peer.community, clock=self._clock, client=voter)


async def _nobody_tells(_names: list[str]) -> list[ToolDefinition]:
    return []


def _read(approval: Mapping[str, Any] | None) -> approvals.Approval | None:
    return None if approval is None else approvals.decode(dict(approval))


def _not_covered(what: str) -> HearthNetError:
    return HearthNetError("token_scope_insufficient", f"what you may do here does not cover {what}")
