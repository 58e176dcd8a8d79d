"""Tool runs for clients of the gateway (docs/gateway.md, "Runs"; docs/decisions/0101).

    run = await runs.open(client, NewRun(body), Follower(hear))    # `hear` takes the frames of docs/tools.md
    outcome = await run.drive()                                    # ... until it ends, or is suspended
    await runs.decide(client, run.run, call, decision, via="socket")
    await runs.cancel(client, run.run)

The socket, HTTP and OpenAI's API adapt to this (docs/decisions/0189).

A run continues while its client is away, and waits for it where it needs a decision. All decisions go
through `decide`, from whichever connection they come: they are checked, stored once, and read from there by
the process that drives the run. After that the process may die: another one continues with a `FollowUp`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from hearthnet.agent.devices.other_devices import OtherDevices
from hearthnet.agent.loop.happened import HAPPENED, happened
from hearthnet.agent.loop.state import Limits
from hearthnet.agent.persistence import run_view
from hearthnet.agent.persistence.jetstream_store import StoredRuns
from hearthnet.agent.persistence.run_record import RunRecord
from hearthnet.agent.persistence.run_store import RunStore
from hearthnet.agent.persistence.saved_runs import SavedRuns, toolbox_of
from hearthnet.agent.runtime.client_authority import ClientPrincipal
from hearthnet.agent.runtime.driver import ToolRun
from hearthnet.agent.runtime.executor import ToolExecutor
from hearthnet.agent.runtime.ports import BusPort, ResultsPort
from hearthnet.agent.runtime.result_store import HomeResults
from hearthnet.agent.runtime.settings import ToolSettings, tool_settings
from hearthnet.agent.tools.dynamic import dynamic_tools
from hearthnet.agent.tools.providers import for_home
from hearthnet.agent.tools.toolbox import Toolbox
from hearthnet.agent.tools.types import Deny, ToolDefinition
from hearthnet.bus.bus import Bus
from hearthnet.bus.store import Store
from hearthnet.contracts.namespaces import refuse_home_only
from hearthnet.core.config_loader import load_config
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.auth.clients import Client, Clients, scope_error
from hearthnet.gateway.runs.principals import ApprovalCache, ApprovalPresenter, RunPrincipals
from hearthnet.gateway.runs.requested_tools import CHAT, provider_defined_names, tools_of
from hearthnet.gateway.runs.run import (
    AWAY_SECONDS,
    NOTED,
    ClientPresence,
    DecisionBody,
    Follower,
    GatewayRun,
    NewRun,
    RunRequest,
    refused_fields,
)
from hearthnet.gateway.runs.run_list import DeviceRuns, RunListCache
from hearthnet.service.effects.jetstream_records import DiskGuard
from hearthnet.service.effects.refusal_audit import Key, Refusals
from hearthnet.trust.audit_chain import AuditEntry
from hearthnet.trust.authorization import approval as approvals

MOST_AT_ONCE: Final = 32
"""The number of runs of one principal that are driven at a time."""
_DAY_MS: Final = 86_400_000


class GatewayRuns:
    """The runs of all clients of one gateway."""

    def __init__(
        self,
        bus: BusPort,
        clients: Clients,
        store: RunStore,
        *,
        results: ResultsPort | None = None,
        limits: Limits | None = None,
        settings: Callable[[], ToolSettings] = ToolSettings,
        away_seconds: float = AWAY_SECONDS,
        clock: Callable[[], int] = now_ms,
        fetch_tools: Callable[[dict[str, str]], Awaitable[list[ToolDefinition]]] | None = None,
        devices: OtherDevices | None = None,
        to_close: tuple[Callable[[], Awaitable[None]], ...] = (),
    ) -> None:
        """Create the runs of a gateway.

        `settings` returns the owner's present settings, `limits` are the other limits of a run.
        `away_seconds` is the time for which a run waits for an absent client, `clock` returns milliseconds
        since the epoch. `fetch_tools` gets the provider, or an empty text, of each capability without
        installed contract.
        """
        self._bus = bus
        self._settings = settings
        self._store = store
        self._results = results
        # A run waits for as long as its client is present, not for a fixed time.
        self._limits = msgspec.structs.replace(limits or Limits(), patience_ms=_DAY_MS)
        self._away = away_seconds
        self._principals = RunPrincipals(bus, clients)
        node = bus.peer.identity.node_id
        origin = {"node": node, "community": bus.peer.community, "caller": node}
        self._refused, self._noting = Refusals(self._note, origin, "principal"), asyncio.Lock()
        self._clock = clock
        self._fetch_tools = fetch_tools or _no_tools
        self._devices = DeviceRuns(devices)
        self._to_close = to_close
        self._proposed = ApprovalCache()
        self._listed = RunListCache(store, self._clock)
        self._here: dict[tuple[str, str], GatewayRun] = {}

    @classmethod
    def of(cls, bus: Bus, home: Home, clients: Clients) -> GatewayRuns:
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
            fetch_tools=lambda providers: dynamic_tools(bus, providers, providers),
            devices=OtherDevices(home, bus),
            to_close=(store.close, results.close),
        )

    async def close(self) -> None:
        """Write the counts of refusals and close the store."""
        await self._refused.close()
        for close in self._to_close:
            await close()

    async def open(self, client: Client, request: RunRequest, follower: Follower) -> GatewayRun:
        """Open a new run, or take over a saved one of the client's, to be driven here.

        The decisions of a follow-up are not stored by this, but by `decide`.

        Raises:
            HearthNetError: `bad_request` and `not_found` for an invalid request or tool;
                `token_scope_insufficient` if the scope covers no model or none of the tools;
                `capacity_exceeded` for too many runs at once; for a saved run as `ToolExecutor.open_saved`.
        """
        opening: Callable[..., ToolRun | Awaitable[ToolRun]]
        if isinstance(request, NewRun):
            executor, chat, hidden = await self._prepare(client, request.body, follower.via)
            toolbox, opening = executor.toolbox, partial(executor.open_run, chat)
        else:
            record = (await self._saved_runs(client).load(request.run)).record
            if record.tools:
                self._settings().check()
            executor, hidden = self._executor(self._principals.acting(client), [], follower.via), []
            toolbox = toolbox_of(record)
            opening = partial(executor.open_saved, request.run, answers=request.answers)
        presence, run_tool = ClientPresence(self._away), follower.run_tool
        ended = self._principals.begin(client, MOST_AT_ONCE)
        try:
            run = opening(
                stream_to=self._signing(client, toolbox).hearing(follower.hear, hidden),
                decide=presence.decide if follower.waits else None,
                run_tool=None if run_tool is None else presence.while_here(run_tool),
            )
            return self._driven(client, run if isinstance(run, ToolRun) else await run, presence, ended)
        except BaseException:
            ended()
            raise

    async def prewarming(self, client: Client, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the call of `llm.chat` by which the model only reads the beginning of a run.

        There is no answer (docs/decisions/0078). Raises as `open`.
        """
        executor, request, _ = await self._prepare(client, body, "gateway")
        return executor.prewarm_request(request)

    async def _learned(self, client: Client, tools: Any) -> tuple[dict[str, ToolDefinition], list[str]]:
        """Return the requested tools without installed contract, by capability.

        Names outside the client's scope are returned apart: nothing is sent about them.
        """
        names = provider_defined_names(tools)
        for name in names:
            refuse_home_only(name)
        uncovered = [name for name in names if not client.scope.covers_name(name)]
        fetched = await self._fetch_tools({one: names[one] for one in names if one not in uncovered})
        return {tool.name: tool for tool in fetched}, uncovered

    async def _for_homes(self, tools: list[ToolDefinition]) -> list[ToolDefinition]:
        """Return `tools` with those whose effect is on a single home as this one's, where it offers them."""
        if not any(tool.side_effects and tool.bound_capability and not tool.provider for tool in tools):
            return tools
        own, offers = self._bus.peer.identity.node_id, await self._bus.offers()
        return [for_home(tool, offers, own) for tool in tools]

    async def _prepare(
        self, client: Client, body: Mapping[str, Any], via: str
    ) -> tuple[ToolExecutor, dict[str, Any], list[str]]:
        """Return the executor for `body`, the rest of `body`, and the tools outside the scope."""
        client.check_covers(CHAT)
        given = dict(body.get("input") or {})
        requested = given.pop("tools", [])
        learned, hidden = await self._learned(client, requested)
        tools = await self._for_homes(tools_of(requested, learned, hidden))
        executor = self._executor(self._principals.acting(client), tools, via)
        shown = {tool.name for tool in executor.definitions}
        hidden += [tool.name for tool in tools if tool.name not in shown]
        if hidden and not shown:
            raise scope_error(", ".join(hidden))
        return executor, {"params": body.get("params") or {}, "input": given}, hidden

    def _driven(
        self, client: Client, run: ToolRun, presence: ClientPresence, ended: Callable[[], None]
    ) -> GatewayRun:
        """Register and return the run that is driven here from now on."""
        name = client.principal, run.run

        def end() -> None:
            if self._here.get(name) is opened:
                del self._here[name]
            ended()

        opened = self._here[name] = GatewayRun(run, presence, end)
        return opened

    def _executor(self, acting: ClientPrincipal, tools: list[ToolDefinition], via: str) -> ToolExecutor:
        return ToolExecutor(
            self._bus,
            tools,
            **self._settings().limits_of(tools),
            limits=self._limits,
            store=self._store,
            via=via,
            results=self._results,
            acting_for=acting,
        )

    async def listing(self, client: Client) -> list[dict[str, Any]]:
        """Return the client's runs of the last day, newest first, as `run_view.summary`.

        For a page of the owner, those that were copied from the person's other nodes follow, with `device`.
        """
        found = await self._listed.get(client, self._list)
        return found + await self._devices.listing(client, {run["run"] for run in found})

    async def take(self, client: Client, run: str) -> dict[str, Any]:
        """Take a run over from another node of the owner; return its page. Raises as `DeviceRuns.take`."""
        peer = self._bus.peer
        await self._devices.take(client, SavedRuns(self._store, peer.identity, peer.community), run)
        return await self.page(client, run)

    async def _list(self, client: Client) -> list[dict[str, Any]]:
        saved = self._saved_runs(client)
        return [await self._summary(client, saved, record) for record in (await saved.listing()).runs]

    async def page(self, client: Client, run: str) -> dict[str, Any]:
        """Return a run with its calls and its conversation; raises as `SavedRuns.load`."""
        saved = self._saved_runs(client)
        page = await saved.page(run)
        return {
            **await self._summary(client, saved, page.record),
            "calls": run_view.calls(page, self._clock()),
            "messages": page.record.state.messages,
            HAPPENED: happened(page.record.state),
        }

    async def preview(self, client: Client, run: str, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the call with these arguments as in `confirmation_required`, with `approval`.

        Raises as `SavedRuns.preview`.
        """
        saved = self._saved_runs(client)
        pending = await saved.preview(run, call, arguments)
        toolbox = toolbox_of((await saved.load(run)).record)
        return await self._signing(client, toolbox).with_template(msgspec.to_builtins(pending))

    async def decide(
        self, client: Client, run: str, call: str, given: DecisionBody, via: str = "gateway"
    ) -> dict[str, Any]:
        """Store the client's decision, once; return the decision that counts.

        `repeated` is set where an earlier decision counts. A refused approval is recorded. Raises as
        `SavedRuns.decide`, and `bad_request` for a malformed decision or approval.
        """
        decision = given.decided()
        denied = isinstance(decision, Deny)
        self._principals.remember(client)
        saved = self._saved_runs(client)
        try:
            signed = None if denied or given.approval is None else approvals.decode(given.approval)
            taken = await saved.decide(run, call, decision, via=via, shown=given.shown, approval=signed)
        except HearthNetError as error:
            if error.code in NOTED and not denied:
                self._refused.tick()
                key = Key(client.principal, str(error.details.get("rule", error.code)), error.code)
                written = self._refused.record(key, lambda: refused_fields(run, call, given.approval, via))
                if written is not None:
                    await asyncio.wait({written})
            raise
        return {"repeated": taken.repeated, **run_view.decision_view(taken.signed)}

    async def cancel(self, client: Client, run: str) -> dict[str, Any]:
        """End the client's run in whichever process drives it; raises as `SavedRuns.cancel`."""
        saved = self._saved_runs(client)
        driven = self._here.get((client.principal, run))
        if driven is None:
            return await self._summary(client, saved, await saved.cancel(run))
        driven.cancel()
        await driven.over()
        try:
            return await self._summary(client, saved, (await saved.load(run)).record)
        except HearthNetError as error:
            if error.code != "not_found":
                raise
            return {"run": run, "state": "ended"}  # a run without calls is not saved

    async def _note(self, entry: AuditEntry) -> None:
        """Append a refusal; one at a time, since the store takes equal ones at the same place as one."""
        async with self._noting:
            await self._store.append_audit(entry, await self._store.audit_position())

    async def _summary(self, client: Client, saved: SavedRuns, record: RunRecord) -> dict[str, Any]:
        found = run_view.summary(record, await saved.waiting(record))
        if client.key and found["pending"]:
            try:
                toolbox = toolbox_of(record)
            except HearthNetError:
                return found  # its tools have changed: nothing of it is signed any more
            found["pending"] = await self._signing(client, toolbox).with_templates(found["pending"])
        return found

    def _signing(self, client: Client, toolbox: Toolbox) -> ApprovalPresenter:
        return ApprovalPresenter(self._principals.approver(client), toolbox, self._proposed)

    def _saved_runs(self, client: Client) -> SavedRuns:
        peer = self._bus.peer
        approver = self._principals.approver(client)
        return SavedRuns(self._store, peer.identity, peer.community, clock=self._clock, client=approver)


async def _no_tools(_providers: dict[str, str]) -> list[ToolDefinition]:
    return []
