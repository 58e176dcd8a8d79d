"""Trace spans of runs and tool calls, by OpenTelemetry's conventions for generative AI.

A resumed run continues the trace in which it began, in whatever process, with a link to the request that
resumed it: all of its calls are in one trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from hearthnet.agent.loop.events import Dispatch
from hearthnet.agent.persistence.run_record import RunRecord
from hearthnet.telemetry import names, steps
from hearthnet.telemetry.span import Detail, SpanRecord

RUN: Final = "invoke_agent"
_TOOL: Final = "execute_tool"
_LONGEST: Final = 200
"""The longest id of a call in a span: a model's server chooses the ids, and spans are kept in memory."""


@contextlib.contextmanager
def run_span(peer: Any, run: str, record: RunRecord | None) -> Iterator[None]:
    """Open the span of driving `run`; `record` keeps the trace in which the run began."""
    traces = getattr(peer, "traces", None)
    if traces is None:
        yield
        return
    above = record.traceparent if record is not None else ""
    resuming = steps.traceparent() if above else ""
    links = (resuming,) if resuming and resuming != above else ()
    detail = Detail(attributes={names.AI_OPERATION: RUN}, links=links)
    with traces.run(RUN, run, above=above, detail=detail) as entry:
        if record is not None and not above:
            record.traceparent = entry.traceparent
        yield


@contextlib.contextmanager
def tool_span(peer: Any, run: str, call: Dispatch) -> Iterator[SpanRecord | None]:
    """Open the span of one tool call, the parent of its calls in the mesh."""
    traces = getattr(peer, "traces", None)
    if traces is None:
        yield None
        return
    found = {names.AI_OPERATION: _TOOL, names.AI_TOOL: call.name, names.AI_TOOL_TYPE: "function"}
    found[names.AI_TOOL_CALL] = call.tool_call_id[:_LONGEST]
    with traces.run(f"{_TOOL} {call.name}", run, detail=Detail(attributes=found)) as entry:
        yield entry
