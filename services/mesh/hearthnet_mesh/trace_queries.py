"""Calls recorded by this node's processes (`node.trace.list`), as one viewer sees them.

The functions are pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Final

import msgspec

from hearthnet_mesh.visibility import Viewer

RECENT: Final = 100
"""Number of an offer's last calls from which its health is computed."""
WORKED: Final = "ok"


class TraceStep(msgspec.Struct, frozen=True):
    """One recorded step; a call has at most one step of each side."""

    at: int
    side: str
    capability: str
    peer: str
    call: str
    trace: str
    parent: str
    handler: str
    run: str
    code: str
    ms: float
    bytes_in: int
    bytes_out: int


class ObservedCall(msgspec.Struct, frozen=True, order=True):
    """One call; `at` is in microseconds since 1970, `code` is ok, cancelled or a wire code."""

    at: int
    id: str
    capability: str
    caller: str
    provider: str
    code: str
    ms: float
    run: str
    trace: str
    bytes_in: int
    bytes_out: int


def calls(steps: Iterable[TraceStep], viewer: Viewer) -> list[ObservedCall]:
    """Return the calls that `viewer` made itself, oldest first; calls of others are not shown."""
    if not viewer.is_node:
        return []
    found: dict[str, ObservedCall] = {}
    for step in steps:
        if step.side == "provider" and step.peer == viewer.caller:
            found.setdefault(step.call or f"{step.trace} {step.at}", _observed(step, step.peer, viewer.own))
        elif step.side == "caller" and viewer.is_self and step.peer:
            # The caller's record takes precedence: it includes the whole time of the call.
            found[step.call or f"{step.trace} {step.at}"] = _observed(step, viewer.own, step.peer)
    return sorted(found.values())


def call_edges(steps: Iterable[TraceStep], viewer: Viewer) -> set[tuple[str, str]]:
    """Return pairs of this node's capabilities in which one called the other.

    Only this node itself may see them.
    """
    if not viewer.is_self:
        return set()
    every = list(steps)
    serving = {step.handler: step.capability for step in every if step.side == "provider" and step.handler}
    return {
        (serving[step.parent], step.capability)
        for step in every
        if step.side == "caller" and step.parent in serving
    }


def health(known: Iterable[ObservedCall]) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the share of successful calls and their median time in ms, by (node, capability).

    Only the last `RECENT` calls of each count.
    """
    by: defaultdict[tuple[str, str], list[ObservedCall]] = defaultdict(list)
    for one in known:
        by[one.provider, one.capability].append(one)
    return {
        place: (
            round(sum(one.code == WORKED for one in last[-RECENT:]) / len(last[-RECENT:]), 3),
            round(median(one.ms for one in last[-RECENT:]), 3),
        )
        for place, last in by.items()
    }


def runs(known: Iterable[ObservedCall]) -> dict[str, list[ObservedCall]]:
    """Return the calls of each run of the tool loop, in the order of the first call of each."""
    by: defaultdict[str, list[ObservedCall]] = defaultdict(list)
    for one in known:
        if one.run:
            by[one.run].append(one)
    return by


def _observed(step: TraceStep, caller: str, provider: str) -> ObservedCall:
    return ObservedCall(
        at=step.at, id=step.call, capability=step.capability, caller=caller, provider=provider,
        code=step.code, ms=round(step.ms, 3), run=step.run, trace=step.trace, bytes_in=step.bytes_in,
        bytes_out=step.bytes_out,
    )  # fmt: skip
