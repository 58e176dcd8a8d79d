"""Which tools a model was shown, chose, and left alone: names and numbers, never what was asked or answered.

A run says it in `done`, the process counts it for whoever exports metrics, and the runs that are kept add up
to what `hearthnet tools` shows.

See: docs/protocol/agent.md#done.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hearthnet.tools.state import RunState


class Selection(msgspec.Struct, frozen=True):
    """One run: how many tools its model was shown, how often it called which of them, and the others.

    A name that the model made up stands nowhere here.
    """

    shown: int
    chosen: dict[str, int]
    unused: list[str]


class Usage(msgspec.Struct):
    """One tool in many runs: in how many it was shown, how often it was called, in how many never."""

    shown: int = 0
    called: int = 0
    unused: int = 0


def selection_of(state: RunState) -> Selection:
    """What the model of a run made of the tools it was shown, so far."""
    shown = dict.fromkeys(state.shown)
    called: dict[str, int] = {}
    for record in state.records:
        if record.name in shown:
            called[record.name] = called.get(record.name, 0) + 1
    return Selection(len(shown), called, [name for name in shown if name not in called])


def usage_of(states: Iterable[RunState]) -> dict[str, Usage]:
    """The tools of these runs, by name."""
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
    """Counts an ended run where its process exports metrics."""
    traces = getattr(peer, "traces", None)
    if traces is not None and traces.on_selection is not None and state.shown:
        selection = selection_of(state)
        traces.on_selection(selection.chosen, selection.unused)
