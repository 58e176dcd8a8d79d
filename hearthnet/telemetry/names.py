"""The names under which spans, metrics and their attributes appear.

Where OpenTelemetry's conventions for remote calls have a name it is theirs, else it begins with `hearthnet.`.
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

# Metrics
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
"""In place of a method once there are too many of them, as the conventions want it."""
WORKED: Final = "ok"
"""The status of a call without an error code."""
SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""Bounds of the histograms: a market listing takes a millisecond, a model minutes."""
