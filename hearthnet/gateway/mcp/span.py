"""The trace span of a tool call, by OpenTelemetry's conventions for MCP servers.

A message's own `_meta.traceparent` (SEP-414 of MCP) names its trace: one HTTP connection may carry messages
of many traces, and a session's messages are handled by tasks that began with its first one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hearthnet.bus.session.tracing import Traces
from hearthnet.gateway.http.server_span import STEP
from hearthnet.telemetry import names
from hearthnet.telemetry.span import Detail, SpanRecord

_METHOD: Final = "tools/call"
_LONGEST: Final = 200
"""The longest id in a span: clients choose their ids, and 10,000 spans are kept in memory."""


@contextlib.contextmanager
def call_span(traces: Traces, context: Any, params: Any) -> Iterator[SpanRecord]:
    """Open the span of a tool call, by default below the HTTP request that carried it.

    Its name is without the tool until `name` is called: clients invent names without end.
    """
    request = getattr(context, "request", None)
    carrier: SpanRecord | None = request.scope.get(STEP) if request is not None else None
    meta = params.meta if isinstance(params.meta, Mapping) else {}
    named = traces.foreign(str(meta.get("traceparent", "")))
    around = carrier.traceparent if carrier is not None else ""
    found = {
        names.MCP_METHOD: _METHOD,
        names.MCP_VERSION: context.protocol_version,
        names.MCP_REQUEST: str(context.request_id)[:_LONGEST],
        names.MCP_TRANSPORT: "pipe" if request is None else "tcp",
        names.AI_OPERATION: "execute_tool",
    }
    session = request.headers.get("mcp-session-id", "") if request is not None else ""
    if session:
        found[names.MCP_SESSION] = session[:_LONGEST]
    links = (around,) if named and around else ()
    detail = Detail(kind="server", attributes=found, links=links)
    with traces.run(_METHOD, "", above=named or around, detail=detail) as entry:
        yield entry


def name(entry: SpanRecord, tool: str) -> None:
    """Add the tool to the span, once it is known to exist."""
    entry.capability = f"{_METHOD} {tool}"
    if entry.detail is not None:
        entry.detail.attributes[names.AI_TOOL] = tool


def failed(entry: SpanRecord, kind: str = names.TOOL_ERROR) -> None:
    """Record a failed call; `kind` is the number of the JSON-RPC error, if there was one."""
    entry.code = "internal_error"
    if entry.detail is not None:
        entry.detail.attributes[names.ERROR] = kind
