"""Tool runs for clients of the gateway (docs/gateway.md, "Runs"; docs/decisions/0101).

    run = runs.open(client, body, hear)          # `hear` takes the frames of docs/tools.md
    outcome = await run.drive()                  # ... until it ends, or is suspended
    await runs.decide(client, run.run, call, Approve(), shown=digest, approval=signed, via="socket")

A run goes on while its client is away, and waits for it where it is asked. What the client says goes through
`decide` alone, whichever of its connections it comes by: it is checked, written down once, and heard from
there by whoever drives the run. Then the process may die: another one goes on with `open_saved`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from hearthnet.errors import HearthNetError
from hearthnet.gateway.presence import AWAY_SECONDS, Presence
from hearthnet.gateway.tool_list import tools_of
from hearthnet.times import now_ms
from hearthnet.tools import run_view
from hearthnet.tools.acting import MODEL, ActingFor, Voter
from hearthnet.tools.client import ClientResult
from hearthnet.tools.desk import RunDesk, toolbox_of
from hearthnet.tools.executor import ToolExecutor
from hearthnet.tools.ports import BusPort, Listener, ResultsPort, RunTool
from hearthnet.tools.run import Outcome, ToolRun
from hearthnet.tools.run_record import RunRecord
from hearthnet.tools.run_store import RunStore
from hearthnet.tools.state import Limits
from hearthnet.tools.toolbox import Toolbox
from hearthnet.tools.types import Decision, Pending
from hearthnet.trust import approval as approvals
from hearthnet.trust.token import Scope

MOST_AT_ONCE: Final = 32
"""So many runs of one principal are driven at a time."""
_DAY_MS: Final = 86_400_000
_MOST_SEEN: Final = 2048


class ClientPort(Protocol):
    """The part of `clients.Client` that runs use."""

    @property
    def principal(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def scope(self) -> Scope: ...


class ClientsPort(Protocol):
    """The part of `clients.Clients` that runs use."""

    def token(self, client: Any) -> str: ...


class GatewayRun:
    """One run that this gateway drives."""

    def __init__(
        self, run: ToolRun, presence: Presence, hidden: list[str], ended: Callable[[], None]
    ) -> None:
        self._run = run
        self._ended = ended
        self.presence: Final = presence
        self.hidden: Final = hidden
        """Tools that the client asked for and its scope does not cover."""

    @property
    def run(self) -> str:
        """The run's id."""
        return self._run.run

    async def drive(self) -> Outcome:
        """Runs to the end, or until it is suspended; raises as `ToolRun.drive`. Called once."""
        try:
            return await self._run.drive()
        finally:
            self._ended()

    def cancel(self) -> None:
        """Ends the run: `drive` returns with stop reason `cancelled` and what was said so far."""
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
        away_seconds: float = AWAY_SECONDS,
    ) -> None:
        """`away_seconds` is how long a question waits for a client that is gone."""
        self._bus = bus
        self._clients = clients
        self._store = store
        self._results = results
        # A question waits for its client, and not for a time.
        self._limits = msgspec.structs.replace(limits or Limits(), patience_ms=_DAY_MS)
        self._away = away_seconds
        self._driven: Counter[str] = Counter()
        self._seen: dict[tuple[str, str], ClientPort] = {}

    # --- driven here

    def open(
        self,
        client: ClientPort,
        body: Mapping[str, Any],
        hear: Listener,
        *,
        run_tool: RunTool | None = None,
        waits: bool = True,
        via: str = "gateway",
    ) -> GatewayRun:
        """A new run of `body`, a request of `llm.chat` whose `input.tools` are as tool_list.py has them.

        `hear` gets its frames, `run_tool` has the client run its own tools. Without `waits` it is suspended
        as soon as it needs the client. `via` says on record how its decisions are given.

        Raises `bad_request` and `not_found` for a request or tools that cannot be, `token_scope_insufficient`
        where the scope covers no model, or none of the tools, `capacity_exceeded` for too many runs at once.
        """
        given = dict(body.get("input") or {})
        asked = tools_of(given.pop("tools", []))
        acting = self._acting(client)
        if not acting.covers_named(MODEL):
            raise _not_covered(MODEL)
        executor = self._executor(acting, asked, via)
        shown = {tool.name for tool in executor.definitions}
        hidden = [tool.name for tool in asked if tool.name not in shown]
        if asked and not shown:
            raise _not_covered(", ".join(hidden))
        presence = Presence(self._away, run_tool)
        ended = self._begin(client)
        try:
            run = executor.open_run(
                {"params": body.get("params") or {}, "input": given},
                stream_to=self._hearing(client, hear, executor.toolbox, hidden),
                decide=presence.decide if waits else None,
                run_tool=None if run_tool is None else presence.run_tool,
            )
        except BaseException:
            ended()
            raise
        return GatewayRun(run, presence, hidden, ended)

    async def open_saved(
        self,
        client: ClientPort,
        run: str,
        hear: Listener,
        *,
        answers: Mapping[str, ClientResult] | None = None,
        run_tool: RunTool | None = None,
        waits: bool = True,
        via: str = "gateway",
    ) -> GatewayRun:
        """A saved run of the client's, taken over and gone on with; `answers` are its own tools' results.

        Raises what `ToolExecutor.open_saved` does, `capacity_exceeded` for too many runs at once.
        """
        record = (await self._desk(client).load(run)).record
        executor = self._executor(self._acting(client), [], via)
        presence = Presence(self._away, run_tool)
        ended = self._begin(client)
        try:
            opened = await executor.open_saved(
                run,
                answers=answers,
                stream_to=self._hearing(client, hear, toolbox_of(record), []),
                decide=presence.decide if waits else None,
                run_tool=None if run_tool is None else presence.run_tool,
            )
        except BaseException:
            ended()
            raise
        return GatewayRun(opened, presence, [], ended)

    def _begin(self, client: ClientPort) -> Callable[[], None]:
        """Counts a run of the client's; what it returns is called when the run is driven no more."""
        principal = client.principal
        if self._driven[principal] >= MOST_AT_ONCE:
            raise HearthNetError(
                "capacity_exceeded", f"{MOST_AT_ONCE} runs of yours are under way; wait for one, or cancel it"
            )
        self._driven[principal] += 1

        def end() -> None:
            self._driven[principal] -= 1
            if not self._driven[principal]:
                del self._driven[principal]

        return end

    def _executor(self, acting: ActingFor, tools: list[Any], via: str) -> ToolExecutor:
        return ToolExecutor(
            self._bus,
            tools,
            limits=self._limits,
            max_iterations=self._limits.max_iterations,
            max_parallel=self._limits.max_parallel,
            store=self._store,
            via=via,
            results=self._results,
            acting_for=acting,
        )

    def _hearing(self, client: ClientPort, hear: Listener, toolbox: Toolbox, hidden: list[str]) -> Listener:
        """`hear`, told besides what the client signs to say yes, and first of the tools it does not get."""
        voter = self._voter(client)
        before = len(hidden) > 0

        async def heard(frame: dict[str, Any]) -> None:
            nonlocal before
            if before:
                before = False
                await hear({"event": "notice", "data": _hidden_notice(hidden), "seq": 1})
            event, data = frame["event"], frame["data"]
            frame = {**frame, "seq": frame["seq"] + (len(hidden) > 0)}
            if event == "confirmation_required":
                frame = {**frame, "data": await self._to_sign(voter, toolbox, data)}
            elif event == "suspended":
                pending = [await self._to_sign(voter, toolbox, one) for one in data["pending"]]
                frame = {**frame, "data": {**data, "pending": pending}}
            await hear(frame)

        return heard

    # --- kept

    async def listing(self, client: ClientPort) -> list[dict[str, Any]]:
        """The client's runs of the last day, newest first, as `run_view.summary` has them."""
        desk = self._desk(client)
        return [await self._summary(client, desk, record) for record in (await desk.listing()).runs]

    async def page(self, client: ClientPort, run: str) -> dict[str, Any]:
        """All that is known of a run, its conversation too; `not_found` where the client has none such."""
        desk = self._desk(client)
        page = await desk.page(run)
        return {
            **await self._summary(client, desk, page.record),
            "calls": run_view.calls(page, now_ms()),
            "messages": page.record.state.messages,
        }

    async def preview(
        self, client: ClientPort, run: str, call: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """The call as it would be sent with these arguments, as `confirmation_required` shows it; with what
        the client signs to approve it. Raises as `RunDesk.preview`.
        """
        desk = self._desk(client)
        asked = await desk.preview(run, call, arguments)
        toolbox = toolbox_of((await desk.load(run)).record)
        return await self._to_sign(self._voter(client), toolbox, msgspec.to_builtins(asked))

    async def decide(
        self,
        client: ClientPort,
        run: str,
        call: str,
        decision: Decision,
        *,
        shown: str,
        approval: Mapping[str, Any] | None = None,
        via: str = "gateway",
    ) -> dict[str, Any]:
        """Writes down what the client decided, once: the word, who, how, when, and `repeated` where the word
        of somebody faster stands. `shown` is the digest of what the client saw, before an edit.

        Raises as `RunDesk.decide`, `bad_request` for what is no approval.
        """
        self._remember(client)
        signed = None if approval is None else approvals.decode(dict(approval))
        taken = await self._desk(client).decide(run, call, decision, via=via, shown=shown, approval=signed)
        return {"repeated": taken.repeated, **run_view.said(taken.said)}

    async def cancel(self, client: ClientPort, run: str) -> dict[str, Any]:
        """Ends the client's run, whoever drives it; raises as `RunDesk.cancel`."""
        desk = self._desk(client)
        return await self._summary(client, desk, await desk.cancel(run))

    # --- parts

    async def _summary(self, client: ClientPort, desk: RunDesk, record: RunRecord) -> dict[str, Any]:
        asked = await desk.waiting(record)
        found = run_view.summary(record, asked)
        if client.key and asked:
            found["pending"] = await self._all_to_sign(client, record, asked)
        return found

    async def _all_to_sign(
        self, client: ClientPort, record: RunRecord, asked: Iterable[Pending]
    ) -> list[dict[str, Any]]:
        try:
            toolbox = toolbox_of(record)
        except HearthNetError as error:
            return [
                {**msgspec.to_builtins(one), "approval": None, "approval_problem": error.message}
                for one in asked
            ]
        voter = self._voter(client)
        return [await self._to_sign(voter, toolbox, msgspec.to_builtins(one)) for one in asked]

    async def _to_sign(self, voter: Voter, toolbox: Toolbox, asked: dict[str, Any]) -> dict[str, Any]:
        """What waits, with the unsigned approval where its client has a key."""
        if not voter.key:
            return asked
        try:
            wanted = await voter.to_sign(toolbox[asked["name"]], msgspec.convert(asked, Pending))
        except HearthNetError as error:
            return {**asked, "approval": None, "approval_problem": error.message}
        if wanted is None:
            return {**asked, "approval": None}
        unsigned = wanted.as_json()
        del unsigned["signature"]
        return {**asked, "approval": unsigned}

    def _voter(self, client: ClientPort) -> Voter:
        peer = self._bus.peer
        return Voter(client.principal, client.key, peer.identity.node_id, peer.community, self._bus)

    def _desk(self, client: ClientPort) -> RunDesk:
        peer = self._bus.peer
        return RunDesk(self._store, peer.identity, peer.community, client=self._voter(client))

    def _acting(self, client: ClientPort) -> ActingFor:
        self._remember(client)

        def token(approver: str) -> str:
            who = client if not approver else self._seen.get((client.principal, approver))
            if who is None:
                raise HearthNetError(
                    "unauthorized", "another client of yours approved this; go on with the run there"
                )
            return self._clients.token(who)

        return ActingFor(client.principal, client.key, client.scope, token)

    def _remember(self, client: ClientPort) -> None:
        if client.key:
            self._seen.pop((client.principal, client.key), None)
            self._seen[client.principal, client.key] = client
            if len(self._seen) > _MOST_SEEN:
                del self._seen[next(iter(self._seen))]


def _hidden_notice(hidden: list[str]) -> dict[str, Any]:
    return {"code": "tools_hidden", "text": f"what you may do here does not cover: {', '.join(hidden)}"}


def _not_covered(what: str) -> HearthNetError:
    return HearthNetError("token_scope_insufficient", f"what you may do here does not cover {what}")
