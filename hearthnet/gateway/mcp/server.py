"""The MCP server, on the MCP library: listing, calls, questions and notifications.

One `McpSide` serves all MCP clients of this process; `caller_of` returns the caller of a request. Two errors
are answered as JSON-RPC, all others are results with `isError`:

unknown tool                 -32602  (2025-11-25 and 2026-07-28, Tools, Error handling)
missing client capability    -32021  (2026-07-28; earlier protocols have no number of their own for it)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from hearthnet import __version__
from hearthnet.agent.loop.happened import nothing, of_call, of_error, stripped, unsent
from hearthnet.agent.runtime.stream_collector import Answered, collect
from hearthnet.agent.tools.names import unknown_tool
from hearthnet.agent.tools.providers import home_of, provider_of
from hearthnet.bus.bus import Bus
from hearthnet.bus.calls import contract_fetch
from hearthnet.bus.calls.attempt import CallOptions
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.namespaces import is_provider_defined
from hearthnet.contracts.registry import contracts
from hearthnet.core import ids
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.gateway.api.capabilities import is_for_clients
from hearthnet.gateway.http.errors import as_hearthnet_error
from hearthnet.gateway.mcp import client_forms, elicitation, span
from hearthnet.gateway.mcp.caller import Caller, OwnerCaller
from hearthnet.gateway.mcp.client_forms import Context
from hearthnet.gateway.mcp.tools import (
    UNLISTED,
    McpTool,
    OtherHomesTool,
    tool_failure,
    tool_result,
    tools_of,
)
from hearthnet.gateway.runs.calls import bound_to
from hearthnet.telemetry.span import SpanRecord
from hearthnet.trust.authorization.approval import ANY_PROVIDER
from hearthnet.trust.authorization.authority import SELF

_log = logging.getLogger(__name__)
WATCH_SECONDS: Final = 2.0
"""The interval between looks at the offers, once a client has listed the tools."""
_CONFIRM: Final = "confirm"
_INSTRUCTIONS: Final = (
    "Tools of a HearthNet mesh: what the computers of a community can do. What has an effect is shown to a "
    "person first, and happens only with a yes."
)
_Answer = types.CallToolResult | types.InputRequiredResult


class McpSide:
    """The tools of the mesh for MCP clients."""

    def __init__(self, bus: Bus, caller_of: Callable[[Any], Caller]) -> None:
        self._bus = bus
        self._caller_of = caller_of
        self._seals = elicitation.ElicitationSigner()
        self._views: list[OfferView] = []
        """The offers at the last look."""
        self._offered: frozenset[str] = frozenset()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._changes = InMemorySubscriptionBus()
        self.server: Server[Any] = _Server(
            "hearthnet",
            version=__version__,
            title="HearthNet",
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._changes),
        )

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Notify clients of changed offers while the block lasts."""
        task = asyncio.create_task(self._watch(), name="mcp offers")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            before = self._offered
            if not before:
                continue  # no client has listed the tools yet
            try:
                await self._look()
            except HearthNetError as error:
                _log.info("what is offered cannot be seen now: %s", error)
                continue
            if self._offered != before:
                await self._notify_tools_changed()

    async def _look(self) -> None:
        """Read the present offers."""
        self._views = views = await self._bus.offers()
        self._offered = frozenset(str(view.capability) for view in views)

    async def _notify_tools_changed(self) -> None:
        await self._changes.publish(ToolsListChanged())
        for connection in list(self._connections):
            with contextlib.suppress(Exception):  # the client may have disconnected
                await connection.send_tool_list_changed()

    async def _list(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        caller = self._caller_of(context)
        # A session is made anew for each request; the connection behind it lasts.
        self._connections.add(context.session._connection)
        await self._look()
        await self._learn(caller)
        hidden = frozenset() if caller.chosen else UNLISTED
        listed = [
            _entry(tool, any_output=_is_modern(context))
            for tool in self._tools(caller).values()
            if tool.contract.id in self._offered and tool.contract.name not in hidden
        ]
        return types.ListToolsResult(tools=[entry for entry in listed if entry is not None])

    def _tools(self, caller: Caller) -> dict[str, McpTool]:
        """Return the tools of the caller by name: installed ones, and offered foreign ones."""
        peer, own, others = self._bus.peer, [], []
        provided = {
            (view.node, str(view.capability))
            for view in self._views
            if is_provider_defined(view.capability.name) and (caller.is_owner or view.offer.trust != SELF)
        }
        for node, name in sorted(provided):
            found = contract_fetch.cached_contract(name)
            if found is None or not (is_for_clients(found) and caller.covers(found.capability)):
                continue
            if node == peer.node_id:
                own.append(found)
            else:
                others.append(OtherHomesTool(found, node, home_of(peer, node)))
        installed = (one for one in contracts() if is_for_clients(one) and caller.covers(one.capability))
        return tools_of([*installed, *own], others, peer.node_id)

    async def _learn(self, caller: Caller) -> None:
        """Learn the offered contracts that came with no installation and that the caller may call."""
        await self._bus.fetch_contracts([view for view in self._views if caller.covers(view.capability)])

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> _Answer:
        with span.call_span(self._bus.peer.traces, context, params) as step:
            try:
                answer = await self._called(context, params, step)
            except MCPError as error:
                span.failed(step, str(error.code))
                raise
            if isinstance(answer, types.CallToolResult) and answer.is_error:
                span.failed(step)
            return answer

    async def _called(
        self, context: Context, params: types.CallToolRequestParams, step: SpanRecord
    ) -> _Answer:
        tool: McpTool | None = None
        try:
            caller = self._caller_of(context)
            tools = self._tools(caller)
            tool = _named(tools, params.name)
            if tool is None and caller.may_know(params.name):
                if not self._offered:
                    await self._look()
                await self._learn(caller)
                tools = self._tools(caller)
                tool = _named(tools, params.name)
            if tool is None:
                near = unknown_tool(params.name, tools)
                raise MCPError(types.INVALID_PARAMS, near.message, {"hearthnet/error": near.to_body()})
            span.name(step, params.name)
            with caller.held():
                return await self._answer(context, caller, tool, params)
        except MCPError:
            raise
        except Exception as error:
            done = unsent(tool.contract.id) if tool and tool.changes else nothing()
            return _failure(as_hearthnet_error(error), done)

    async def _answer(
        self,
        context: Context,
        caller: Caller,
        tool: McpTool,
        params: types.CallToolRequestParams,
    ) -> _Answer:
        arguments = params.arguments or {}
        if not tool.is_asked:
            return await self._send(context, caller, tool, tool.body(arguments, ""), tool.provider)
        caller.check_may_ask()
        if params.request_state is not None:
            sealed = self._seals.open(params.request_state, caller.id, tool.contract, now_ms())
            client_forms.check_approved(client_forms.elicited((params.input_responses or {}).get(_CONFIRM)))
            body, provider = tool.body(arguments, sealed.client_id), sealed.provider
            if digest(body) != sealed.digest or tool.provider not in ("", provider):
                raise HearthNetError("bad_request", "this is not the call that was shown; call again")
        else:
            client_id = ids.new_ulid()
            body = tool.body(arguments, client_id)
            key = client_id if tool.contract.idempotent == "client_id" else ""
            provider = tool.provider or await self._provider_of(tool.contract)
            question = types.ElicitRequestFormParams(
                message=elicitation.question(tool.contract, body, key, self._place(provider)),
                requested_schema=elicitation.SCHEMA,
            )
            if not client_forms.can_ask(context):
                needed: dict[str, Any] = {"requiredCapabilities": {"elicitation": {"form": {}}}}
                text = f"{tool.contract.id} {elicitation.CANNOT_ASK}"
                raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, text, needed)
            if _is_modern(context):
                seal = self._seals.seal(
                    caller.id, tool.contract, body, client_id, now_ms(), provider=provider
                )
                asked: types.InputRequests = {_CONFIRM: types.ElicitRequest(params=question)}
                return types.InputRequiredResult(input_requests=asked, request_state=seal)
            client_forms.check_approved(await client_forms.ask(context, question))
        return await self._send(context, caller, tool, body, provider)

    async def _provider_of(self, contract: Contract) -> str:
        """Return the node that an effect of an installed capability is for, `*` on a shared log."""
        peer = self._bus.peer
        return await provider_of(bound_to(contract), self._bus, peer.node_id, peer)

    def _place(self, provider: str) -> str:
        """Return the line that names the home of a call; the words before its name are never that name."""
        if provider == ANY_PROVIDER:
            return ""
        which = "this home" if provider == self._bus.peer.node_id else "ANOTHER home"
        return f"At {which}: {home_of(self._bus.peer, provider)}"

    async def _send(
        self,
        context: Context,
        caller: Caller,
        tool: McpTool,
        body: dict[str, Any],
        provider: str,
    ) -> types.CallToolResult:
        """Send a call to `provider`; an effect with the approval that was given for that node."""
        caller.count(tool.contract, body)
        contract, token = tool.contract, caller.token(tool.contract)
        approval = await caller.approval(contract, body, provider) if contract.side_effects else None
        node = "" if provider == ANY_PROVIDER else provider
        try:
            answered = await self._answered(
                context, tool, body, {"token": token, "approval": approval, "node": node}
            )
        except Exception as caught:  # of whatever kind: it was begun
            error = as_hearthnet_error(caught)
            return _failure(error, of_error(contract.id, error) if tool.changes else nothing())
        output, meta, home, entry = answered
        failed = isinstance(output, dict) and output.get("is_error") is True
        done = of_call(contract.id, home, entry, None if failed else "") if tool.changes else nothing()
        try:
            shown = tool_result(contract, output, stripped(meta), done, any_output=_is_modern(context))
            return types.CallToolResult.model_validate(shown, by_name=False)
        except Exception:  # whatever its provider answered, what happened is told
            _log.exception("the result of %s cannot be shown", contract.id)
            said = f"{contract.id} answered, but no MCP result can be made of it"
            return _failure(HearthNetError("internal_error", said), done)

    async def _answered(
        self, context: Context, tool: McpTool, body: dict[str, Any], options: CallOptions
    ) -> Answered:
        contract = tool.contract
        if not tool.takes_progress:
            reply = await self._bus.call(contract.id, body, **options)
            return Answered(reply.output, reply.meta, reply.provider, reply.entry)
        steps: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        reporting = asyncio.create_task(_report_progress(context.session, steps), name="mcp progress")
        try:
            stream = self._bus.stream(contract.id, body, **options)
            answered = await collect(contract.id, stream, steps.put_nowait)
            await steps.join()
        finally:
            reporting.cancel()
            await asyncio.wait({reporting})
        return answered


async def serve_stdio(home: Home) -> None:
    """Serve programs of the home's owner over stdin and stdout until stdin ends. Raises as `Bus.connect`."""
    async with await Bus.connect(home, name="mcp stdio") as bus:
        owner = OwnerCaller(bus)
        side = McpSide(bus, lambda context: owner)
        async with side.watching(), stdio_server() as (read, write):
            await side.server.run(read, write, side.server.create_initialization_options())


class _Server(Server[Any]):
    """A server that announces to every client that its list of tools may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the library's options, with `tools_changed` by default."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


async def _report_progress(session: ServerSession, steps: asyncio.Queue[dict[str, Any]]) -> None:
    """Pass progress on; the library drops it where the client did not request it."""
    last = -1.0
    while True:
        step = await steps.get()
        try:
            current = float(step.get("current", 0))
            if current > last:  # MCP's progress only grows
                last = current
                await session.report_progress(current, step.get("total") or None, step.get("stage") or None)
        except Exception as error:
            _log.info("progress was not told: %s", error)
        finally:
            steps.task_done()


def _is_modern(context: Context) -> bool:
    """Return whether the client uses the protocol of 2026-07-28 or a later one."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _failure(error: HearthNetError, happened: list[dict[str, Any]]) -> types.CallToolResult:
    return types.CallToolResult.model_validate(tool_failure(error, happened), by_name=False)


def _named(tools: dict[str, McpTool], name: str) -> McpTool | None:
    """Return the tool of this name, or for this capability of this home."""
    here = (one for one in tools.values() if not one.home)
    return tools.get(name) or next((one for one in here if one.contract.name == name), None)


def _entry(tool: McpTool, *, any_output: bool) -> types.Tool | None:
    """Return the entry of a tool; None if its contract, which may be a stranger's, makes none."""
    try:
        return types.Tool.model_validate(tool.listed(any_output=any_output), by_name=False)
    except Exception:  # whatever it is about, the other tools are listed
        _log.warning("%s is left out of the list of tools", tool.contract.id, exc_info=True)
        return None
