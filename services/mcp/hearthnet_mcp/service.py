"""The mcp service: runs the configured MCP servers and offers their tools (docs/mcp.md)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from hearthnet import Call, HearthNetError, NodeContext, Offer, Reply, Service, Stream
from hearthnet.contracts import compile_schema
from hearthnet.core import ConfigFollower, McpConfig, McpServerConfig
from hearthnet.service import Endpoint
from hearthnet_mcp import results
from hearthnet_mcp.server import McpServer
from hearthnet_mcp.tools import McpTool

_MOST_OFFERED: Final = 400
"""Tools of all servers together: other nodes accept a limited number of offers from all services of a node
(bus/routing/offer_registry.py).
"""
_MOST_WAITING: Final = 16
_LONGEST_NOTE: Final = 1_000


class McpService(Service):
    """The tools of MCP servers."""

    name: ClassVar[str] = "mcp"
    _settings: ConfigFollower[McpConfig]

    def __init__(self) -> None:
        super().__init__()
        self._servers: dict[str, tuple[McpServer, asyncio.Task[None]]] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._offers: list[Offer] = []
        self._following: list[asyncio.Task[None]] = []

    async def start(self, node: NodeContext) -> None:
        """Start the servers without waiting for them."""
        self._settings = ConfigFollower(node.home, "the MCP servers", lambda config: config.mcp)
        self._following = [asyncio.create_task(self._follow(), name="mcp settings")]

    def offers(self) -> list[Offer]:
        """Offer the tools that the running servers list now."""
        return self._offers

    def endpoints(self) -> list[Endpoint]:
        """Return the endpoints of the offered tools."""
        return list(self._endpoints.values())

    async def stop(self) -> None:
        """Stop the servers."""
        await _end(self._following)
        await _end([task for _, task in self._servers.values()])
        self._servers.clear()

    async def _follow(self) -> None:
        await self._use(self._settings.read())
        async for config in self._settings.changes():
            await self._use(config)

    async def _use(self, config: McpConfig | None) -> None:
        """Run the servers of `config` from now on; None leaves them unchanged."""
        if config is not None:
            await self._run(config.servers)
        self._refresh()

    async def _run(self, servers: Sequence[McpServerConfig]) -> None:
        """Start and stop servers; unchanged ones keep running."""
        configs = {server.name: server for server in servers}
        ended = [name for name, (server, _) in self._servers.items() if configs.get(name) != server.config]
        await _end([self._servers.pop(name)[1] for name in ended])
        for name, one in configs.items():
            if name not in self._servers:
                server = McpServer(one, self._refresh)
                self._servers[name] = server, asyncio.create_task(server.keep(), name=f"mcp {name}")

    def _refresh(self) -> None:
        """Recompute the offers; a tool that is still listed keeps its endpoint."""
        endpoints: dict[str, Endpoint] = {}
        offers: list[Offer] = []
        for server, tool in self._tools()[:_MOST_OFFERED]:
            capability = tool.contract.id
            known = self._endpoints.get(capability)
            endpoints[capability] = known or self._endpoint(server.config.name, tool)
            trust = "member" if server.config.share else "self"
            params = {"server": server.config.name, "tool": tool.name}
            offers.append(Offer(capability=capability, params=params, trust=trust))
        self._endpoints, self._offers = endpoints, offers
        self.note = self._status_note()
        self.offers_changed()

    def _endpoint(self, server: str, tool: McpTool) -> Endpoint:
        """Return the endpoint of one tool, bound to its contract."""
        promised = None if tool.promised is None else compile_schema(tool.promised)

        async def run(call: Call[dict[str, Any], dict[str, Any]], stream: Stream) -> Reply:
            if server not in self._servers:
                raise HearthNetError("not_found", f"the MCP server {server} does not run here any more")
            running, _ = self._servers[server]
            output = results.output(await _result(running, tool, call, stream), promised)
            await stream.send("result", output)
            return Reply(output)

        anything = dict[str, Any]
        return Endpoint(contract=tool.contract, method=run, params_type=anything, input_type=anything)

    def _tools(self) -> list[tuple[McpServer, McpTool]]:
        servers = [server for server, _ in self._servers.values()]
        return [(server, tool) for server in servers for tool in server.listing.tools]

    def _status_note(self) -> str | None:
        notes = [server.note for server, _ in self._servers.values()]
        if len(self._tools()) > _MOST_OFFERED:
            notes.append(f"only {_MOST_OFFERED} tools are offered in all")
        return "; ".join(filter(None, [self._settings.problem, *notes]))[:_LONGEST_NOTE] or None


async def _result(server: McpServer, tool: McpTool, call: Call[Any, Any], stream: Stream) -> dict[str, Any]:
    """Call the tool with exactly the input that was sent and approved."""
    waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_WAITING)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        # A slow reader misses steps instead of delaying the server.
        with contextlib.suppress(asyncio.QueueFull):
            waiting.put_nowait(results.progress(progress, total, message))

    relay = asyncio.create_task(_relay(waiting, stream), name="mcp progress")
    try:
        result = await server.call(tool, call.body["input"], call.allowed(), on_progress)
    finally:
        await _end([relay])
    while not waiting.empty():
        await stream.send("progress", waiting.get_nowait())
    return result


async def _relay(waiting: asyncio.Queue[dict[str, Any]], stream: Stream) -> None:
    while True:
        await stream.send("progress", await waiting.get())


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel `tasks` once and wait: a second cancellation would interrupt the end of a server's process."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
