"""One connection to one MCP server over stdio, by the library `mcp`, imported late.

This is the only module that imports it. The server's messages are examined before the library validates them,
because it rejects a whole list of tools for one invalid tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import anyio

from hearthnet import HearthNetError, __version__
from hearthnet.core import first_error
from hearthnet.telemetry import describe_span, traceparent

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp.client._transport import ReadStream
    from mcp.client.session import IncomingMessage
    from mcp.client.stdio import StdioServerParameters
    from mcp.shared.dispatcher import ProgressFnT
    from mcp.shared.message import SessionMessage

_log = logging.getLogger(__name__)
START_SECONDS: Final = 120.0
"""Time that a server may take to answer at first: its program may have to be downloaded."""
LIST_SECONDS: Final = 30.0
_MOST_PAGES: Final = 50
_OUTPUT_SCHEMA: Final = "outputSchema"


class Session:
    """A server that answers.

    `changed` is set when its list of tools has changed, or when it has ended, which `closed` tells.
    """

    client: Client
    """The library's client, once the server has answered."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.closed = False
        self.broken: list[str] = []
        """Invalid tools of its list, one line each, since this was last cleared."""
        self.promises: dict[str, Any] = {}
        """The last listed schemas of results' values, by tool."""

    def _promised(self, tool: str) -> dict[str, Any]:
        return {_OUTPUT_SCHEMA: self.promises[tool]} if tool in self.promises else {}

    async def tools(self) -> list[dict[str, Any]]:
        """Return the listed tools in the names of the MCP schema.

        Raises:
            HearthNetError: as for `call`.
        """
        listed: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            async with _translate_errors(self):
                async with asyncio.timeout(LIST_SECONDS):
                    page = await self.client.list_tools(cursor=cursor)
            dumped = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            listed += [{**tool, **self._promised(str(tool["name"]))} for tool in dumped]
            cursor = page.next_cursor
            if not cursor:
                break
        return listed

    async def call(
        self, tool: str, arguments: dict[str, Any], seconds: float, on_progress: ProgressFnT
    ) -> dict[str, Any]:
        """Call `tool` and return its result in the names of the MCP schema.

        A cancelled call is cancelled at the server. The server receives the trace of the call as
        `_meta.traceparent` (SEP-414 of MCP).

        Raises:
            HearthNetError: `timeout` if the server did not reply in time; `partition` if it ended;
                `bad_request` for invalid params; `not_implemented` for an unknown method; `internal_error`
                for any other failure, or an invalid result.
        """
        async with _translate_errors(self):
            _describe(tool, self.client.protocol_version)
            context = traceparent()
            meta: Any = {"traceparent": context} if context else None
            result = await self.client.call_tool(
                tool,
                arguments,
                read_timeout_seconds=seconds,
                progress_callback=on_progress,
                meta=meta,
            )
        dumped: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        if dumped.get("isError"):
            _describe(tool, self.client.protocol_version, {"error.type": "tool_error"})
        return dumped

    async def on_message(self, message: IncomingMessage) -> None:
        """Handle a notification of the server."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.changed.set()

    async def listen(self) -> None:
        """Subscribe to changes of the list, if the protocol version requires it, until cancelled."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        tools = self.client.server_capabilities.tools
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (tools and tools.list_changed):
            return
        try:
            async with self.client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    self.changed.set()
        except Exception as error:
            _log.info("changes to its list of tools are not followed: %s", error)


@contextlib.asynccontextmanager
async def opened(name: str, command: tuple[str, ...], variables: dict[str, str]) -> AsyncIterator[Session]:
    """Start the program and wait until it answers; end it on exit.

    Its stderr is that of this process.

    Raises:
        HearthNetError: `not_found` if it cannot be started; otherwise as for `Session.call`.
    """
    # The import takes more than a second: on the event loop it would delay all other work of this process.
    await asyncio.to_thread(importlib.import_module, "mcp.client.stdio")
    from mcp import Client, StdioServerParameters
    from mcp_types import Implementation

    session = Session()
    server = StdioServerParameters(command=command[0], args=list(command[1:]), env=variables)
    client = Client(
        _transport(server, session),
        client_info=Implementation(name="hearthnet", version=__version__),
        message_handler=session.on_message,
        cache=None,
    )
    async with contextlib.AsyncExitStack() as stack:
        async with _translate_errors(session), asyncio.timeout(START_SECONDS):
            session.client = await stack.enter_async_context(client)
        listening = asyncio.create_task(session.listen(), name=f"{name} listens")
        try:
            yield session
        finally:
            listening.cancel()
            await asyncio.wait({listening})


@contextlib.asynccontextmanager
async def _transport(server: StdioServerParameters, session: Session) -> AsyncIterator[Any]:
    """The library's transport, with the server's messages filtered by `_mend`."""
    from mcp.client.stdio import stdio_client

    async with stdio_client(server) as (said, write), anyio.create_task_group() as tasks:
        passed, read = anyio.create_memory_object_stream[Any](0)

        async def look_through(source: ReadStream[SessionMessage | Exception]) -> None:
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async with passed:
                    async for item in source:
                        _mend(item, session)
                        await passed.send(item)
            session.closed = True
            session.changed.set()

        tasks.start_soon(look_through, said)
        try:
            yield read, write
        finally:
            read.close()
            tasks.cancel_scope.cancel()


def _describe(tool: str, version: str, more: dict[str, Any] | None = None) -> None:
    """Describe the current span of the call as a request to an MCP server."""
    found = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": version,
        "network.transport": "pipe",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
    }
    describe_span(f"tools/call {tool}", "client", {**found, **(more or {})})


def _mend(item: SessionMessage | Exception, session: Session) -> None:
    """Remove invalid tools from a list, and set the schemas of results aside.

    The library would raise for a result that does not fit its schema, and lose a result of a call that had
    effects.
    """
    result = getattr(getattr(item, "message", None), "result", None)
    if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
        return
    from mcp_types import Tool
    from pydantic import ValidationError

    valid = []
    for tool in result["tools"]:
        try:
            Tool.model_validate(tool, by_name=False)
        except ValidationError as error:
            named = tool.get("name") if isinstance(tool, dict) else None
            first = error.errors(include_url=False, include_input=False)[0]
            place = "/".join(map(str, first["loc"]))
            session.broken.append(f"{str(named)[:80]!r} is left out: {place}: {first['msg']}")
        else:
            session.promises.pop(tool["name"], None)
            if _OUTPUT_SCHEMA in tool:
                session.promises[tool["name"]] = tool[_OUTPUT_SCHEMA]
            valid.append({key: value for key, value in tool.items() if key != _OUTPUT_SCHEMA})
    result["tools"] = valid


@contextlib.asynccontextmanager
async def _translate_errors(session: Session) -> AsyncIterator[None]:
    """Translate the library's exceptions.

    Raises:
        HearthNetError: as listed at `Session.call` and `opened`.
    """
    from mcp import MCPError
    from pydantic import ValidationError

    try:
        yield
    except Exception as raised:
        match first_error(raised):  # the library works in task groups
            case MCPError() as error:
                raise _error_of(error, session) from raised
            case TimeoutError():
                raise HearthNetError("timeout", "the MCP server did not answer in time") from raised
            case anyio.ClosedResourceError() | anyio.BrokenResourceError():
                raise _ended() from raised
            case FileNotFoundError() | PermissionError() | NotADirectoryError() as error:
                raise HearthNetError(
                    "not_found", f"the command cannot be run: {error.strerror}: {error.filename}"
                ) from raised
            case RuntimeError() | ValidationError() as error:
                _log.warning("an answer of the MCP server is none: %s", error)
                raise HearthNetError(
                    "internal_error", "the MCP server's answer is not as MCP has it"
                ) from raised
        raise


def _error_of(error: MCPError, session: Session) -> HearthNetError:
    from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT

    if error.code == CONNECTION_CLOSED and session.closed:
        return _ended()
    codes = {REQUEST_TIMEOUT: "timeout", INVALID_PARAMS: "bad_request", METHOD_NOT_FOUND: "not_implemented"}
    message = " ".join(error.message.split())[:500] or "no reason"
    return HearthNetError(codes.get(error.code, "internal_error"), f"the MCP server says: {message}")


def _ended() -> HearthNetError:
    return HearthNetError(
        "partition",
        "the MCP server ended before it answered; it is started again",
        details={"rule": "backend_gone"},
    )
