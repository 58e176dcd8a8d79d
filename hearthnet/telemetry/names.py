"""The names of spans, metrics and their attributes.

Names come from OpenTelemetry's conventions (for remote calls, HTTP, generative AI, MCP) if these have one;
all others begin with `hearthnet.`.
"""

from __future__ import annotations

from typing import Final

SCOPE: Final = "hearthnet.bus"
NAMESPACE: Final = "hearthnet"

# Resources
SERVICE_NAME: Final = "service.name"
SERVICE_NAMESPACE: Final = "service.namespace"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE: Final = "service.instance.id"
NODE: Final = "hearthnet.node"

# Attributes of spans and metrics
SYSTEM: Final = "rpc.system.name"
METHOD: Final = "rpc.method"
STATUS: Final = "rpc.response.status_code"
ERROR: Final = "error.type"
SIDE: Final = "hearthnet.side"
PATH: Final = "hearthnet.path"
TOOL: Final = "hearthnet.tool"

# Attributes of spans alone
PROVIDER: Final = "server.address"
CALLER: Final = "client.address"
CALL: Final = "hearthnet.call"
RUN: Final = "hearthnet.run"
ATTEMPTS: Final = "hearthnet.attempts"
FRAMES: Final = "hearthnet.stream.frames"
BYTES_IN: Final = "hearthnet.bytes_in"
BYTES_OUT: Final = "hearthnet.bytes_out"

# HTTP, at the gateway and towards servers of models
HTTP_METHOD: Final = "http.request.method"
HTTP_METHOD_ORIGINAL: Final = "http.request.method_original"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
HTTP_VERSION: Final = "network.protocol.version"
URL_FULL: Final = "url.full"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
CLIENT_ADDRESS: Final = "client.address"
USER_AGENT: Final = "user_agent.original"

# Generative AI: models, runs and their tools
AI_OPERATION: Final = "gen_ai.operation.name"
AI_PROVIDER: Final = "gen_ai.provider.name"
AI_MODEL: Final = "gen_ai.request.model"
AI_ANSWERED_BY: Final = "gen_ai.response.model"
AI_TOKENS_IN: Final = "gen_ai.usage.input_tokens"
AI_TOKENS_OUT: Final = "gen_ai.usage.output_tokens"
AI_TOKEN_TYPE: Final = "gen_ai.token.type"
AI_TOOL: Final = "gen_ai.tool.name"
AI_TOOL_TYPE: Final = "gen_ai.tool.type"
AI_TOOL_CALL: Final = "gen_ai.tool.call.id"

# MCP, in both directions
MCP_METHOD: Final = "mcp.method.name"
MCP_VERSION: Final = "mcp.protocol.version"
MCP_SESSION: Final = "mcp.session.id"
MCP_REQUEST: Final = "jsonrpc.request.id"
MCP_TRANSPORT: Final = "network.transport"
TOOL_ERROR: Final = "tool_error"
"""The `error.type` of an MCP tool that answered with an error."""

# Metrics
HTTP_SERVER_SECONDS: Final = "http.server.request.duration"
HTTP_CLIENT_SECONDS: Final = "http.client.request.duration"
AI_SECONDS: Final = "gen_ai.client.operation.duration"
AI_TOKENS: Final = "gen_ai.client.token.usage"
MCP_SERVER_SECONDS: Final = "mcp.server.operation.duration"
MCP_CLIENT_SECONDS: Final = "mcp.client.operation.duration"
CALLER_SECONDS: Final = "rpc.client.call.duration"
PROVIDER_SECONDS: Final = "rpc.server.call.duration"
CALLS: Final = "hearthnet.calls"
IN_FLIGHT: Final = "hearthnet.calls.in_flight"
PATHS: Final = "hearthnet.calls.by_path"
STREAM_FRAMES: Final = "hearthnet.stream.frames"
TOOLS_SHOWN: Final = "hearthnet.tools.shown"
TOOLS_CALLED: Final = "hearthnet.tools.called"
TOOLS_UNUSED: Final = "hearthnet.tools.unused"
DROPPED: Final = "hearthnet.frames.dropped"

OTHER: Final = "_OTHER"
"""Replaces the method once there are too many of them, as the conventions require."""
WORKED: Final = "ok"
"""The status of a call without an error code."""
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Bounds of the histograms: a market listing takes a millisecond, a model minutes."""
