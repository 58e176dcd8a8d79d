"""Counts of the tools that a model was shown, called and ignored.

They hold names and numbers, never questions or answers. A run reports its own in `done`, the process counts
them for an exporter of metrics, and the stored runs add up to the output of `hearthnet tools`.

See: docs/protocol/agent.md#done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hearthnet.agent.loop.state import RunState


class Selection(msgspec.Struct, frozen=True):
    """The tools of one run: the number shown, the calls by name, and the unused ones.

    Names that the model invented are not included.
    """

    shown: int
    chosen: dict[str, int]
    unused: list[str]


class Usage(msgspec.Struct):
    """One tool in many runs: runs that showed it, calls, and runs that did not use it."""

    shown: int = 0
    called: int = 0
    unused: int = 0


def selection_of(state: RunState) -> Selection:
    """Return the use of tools in a run so far."""
    shown = dict.fromkeys(state.shown)
    called: dict[str, int] = {}
    for record in state.records:
        if record.name in shown:
            called[record.name] = called.get(record.name, 0) + 1
    return Selection(len(shown), called, [name for name in shown if name not in called])


def usage_of(states: Iterable[RunState]) -> dict[str, Usage]:
    """Return the use of tools in these runs, by name."""
    found: dict[str, Usage] = {}
    for state in states:
        selection = selection_of(state)
        for name in dict.fromkeys(state.shown):
            usage = found.setdefault(name, Usage())
            usage.shown += 1
            usage.called += selection.chosen.get(name, 0)
            usage.unused += name not in selection.chosen
    return found


def count(peer: Any, state: RunState) -> None:
    """Count an ended run if its process exports metrics."""
    traces = getattr(peer, "traces", None)
    if traces is not None and traces.on_selection is not None and state.shown:
        selection = selection_of(state)
        traces.on_selection(selection.chosen, selection.unused)
