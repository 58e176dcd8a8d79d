"""Steps of traces for runs and their tool calls, by OpenTelemetry's conventions for generative AI.

A run that is resumed, by whichever process, continues the trace that it began in, with a link to the request
that resumed it: all of its calls are found in one place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from hearthnet.telemetry import names, steps
from hearthnet.telemetry.entry import Detail, Entry
from hearthnet.tools.events import Dispatch, ToolFailed
from hearthnet.tools.run_record import RunRecord

RUN: Final = "invoke_agent"
_TOOL: Final = "execute_tool"
_LONGEST: Final = 200
"""A model's server makes up the ids of calls, and steps are kept in memory."""


@contextlib.contextmanager
def run_span(peer: Any, run: str, record: RunRecord | None) -> Iterator[None]:
    """One driving of `run`; `record` is what is saved of it, which keeps the trace that it began in."""
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
def tool_span(peer: Any, run: str, call: Dispatch) -> Iterator[Entry | None]:
    """One call of a tool, with the calls of the mesh that it takes."""
    traces = getattr(peer, "traces", None)
    if traces is None:
        yield None
        return
    found = {names.AI_OPERATION: _TOOL, names.AI_TOOL: call.name, names.AI_TOOL_TYPE: "function"}
    found[names.AI_TOOL_CALL] = call.tool_call_id[:_LONGEST]
    with traces.run(f"{_TOOL} {call.name}", run, detail=Detail(attributes=found)) as entry:
        yield entry


def note(entry: Entry | None, outcome: Any) -> None:
    """Notes at its step how a tool's call ended."""
    if entry is not None and isinstance(outcome, ToolFailed):
        entry.code = outcome.code
