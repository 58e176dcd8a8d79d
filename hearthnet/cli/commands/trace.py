"""`hearthnet trace`: the steps of the node's processes, with their durations, as a list or a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from hearthnet.cli.input.local_call import on_bus
from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.suggest import unknown
from hearthnet.cli.output.text import counted, one_line, size
from hearthnet.core import ids
from hearthnet.core.errors import CODES, HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus

MOST: Final = 1000
"""Steps of one process, at a time."""
_ANSWER_SECONDS: Final = 5.0
Step = dict[str, Any]
_HEADINGS: Final = ("began", "process", "step", "with", "took", "outcome", "trace")
_TREE: Final = ("after", "process", "step", "with", "took", "outcome", "in", "out")
_SIDES: Final = {"caller": "calls ", "provider": "serves ", "run": ""}
_ID_CHARACTERS: Final = 12
_POLL_SECONDS: Final = 0.5
_WORKED: Final = "ok"


class TreePosition(NamedTuple):
    """A step in a tree, and its depth."""

    step: Step
    depth: int


class CollectedSpans:
    """The steps of the node's processes, read repeatedly."""

    def __init__(self, bus: Bus, home: Home, filters: dict[str, str]) -> None:
        """Create the reader; `filters` are `trace`, `capability`, `code` of `node.trace.list`."""
        self._bus = bus
        self._home = home
        self._filters = filters
        self._newest: dict[str, int] = {}

    async def new(self, limit: int) -> list[Step]:
        """Return the steps since the last call, by start; at most `limit` of each process."""
        from hearthnet.core import process_lock

        known = [path.name for path in process_lock.everybody(self._home)]
        found = await asyncio.gather(
            *(self._of(instance, limit) for instance in known if process_lock.lives(self._home, instance))
        )
        return sorted((step for steps in found for step in steps), key=lambda step: int(step["at"]))

    async def _of(self, instance: str, limit: int) -> list[Step]:
        """Return the new steps of one process; none if it ends, or does not serve calls yet."""
        from hearthnet.bus.session.tracing import UNTRACED
        from hearthnet.core import process_lock

        fields = {**self._filters, "after": self._newest.get(instance, 0), "limit": limit}
        try:
            reply = await self._bus.call(
                UNTRACED,
                {"params": {}, "input": fields},
                node=self._bus.peer.node_id,
                instance=instance,
                timeout_seconds=_ANSWER_SECONDS,
            )
        except HearthNetError as error:
            if error.code == "bad_request":
                raise
            if process_lock.lives(self._home, instance) and instance not in self._newest:
                terminal.info(f"one process says nothing of its traces yet: {error.message}")
            return []
        output = reply.output
        self._newest[instance] = int(output["newest"])
        known = {"service": output["service"], "instance": output["instance"]}
        return [{**known, **step} for step in output["steps"]]


def only(steps: list[Step], prefix: str) -> list[Step]:
    """Return `steps` if they belong to one trace, whose id begins with `prefix`.

    Raises:
        HearthNetError: `not_found` if there are none; `bad_request` for several traces.
    """
    traces = list(dict.fromkeys(step["trace"] for step in steps))
    if len(traces) > 1:
        raise HearthNetError(
            "bad_request", f"{len(traces)} traces begin with {prefix}: {', '.join(traces[:5])}", alt=traces
        )
    if not traces:
        raise HearthNetError(
            "not_found",
            f"no process of this node remembers a trace {prefix}; each keeps its newest 10,000 steps until "
            "it ends; see: hearthnet trace",
        )
    return steps


def tree(steps: list[Step]) -> Iterator[TreePosition]:
    """Yield the steps of a trace, each under its parent, siblings by time.

    A step with an unknown parent (its process has ended, or is another home's) is at the top.
    """
    owners = {span: step for step in steps for span in (step["span"], step["handler"]) if span}
    below: dict[str, list[Step]] = {}
    for step in steps:
        owner = owners.get(step["parent"])
        below.setdefault("" if owner is None or owner is step else owner["span"], []).append(step)
    waiting = [TreePosition(step, 0) for step in reversed(below.pop("", []))]
    while waiting:
        place = waiting.pop()
        yield place
        children = below.pop(place.step["span"], [])
        waiting += [TreePosition(child, place.depth + 1) for child in reversed(children)]


@click.command("trace")
@click.argument("trace_id", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on printing steps as they end, until Ctrl-C.")
@click.option("--capability", metavar="NAME", default="", help="Only steps of this capability.")
@click.option("--code", metavar="CODE", default="", help="Only what ended so: ok, cancelled, timeout, ...")
@click.option(
    "--limit", "-n", type=click.IntRange(1, 1000), default=20, help="How many of the newest steps (20)."
)
@common_options
def command(
    trace_id: str | None, follow: bool, capability: str, code: str, limit: int, home: Home, json: bool
) -> None:
    """Show the calls that the node's processes made and served, newest last.

    With TRACE_ID, or the beginning of one, show that trace as a tree over all processes. A trace is one
    request with all calls that were made for it. Content is never kept.
    """
    _check_code(code)
    options = {"capability": capability, "code": code}
    filters = {name: value for name, value in options.items() if value}
    if trace_id is not None:
        if follow or filters:
            raise click.UsageError("a trace is shown whole; leave out --follow, --capability and --code")
        wanted_trace = trace_id.strip().lower()
        on_bus(home, lambda bus: _one(bus, home, wanted_trace, json), "cli trace")
    else:
        print_steps = _follow if follow else _list
        on_bus(home, lambda bus: print_steps(bus, home, filters, limit, json), "cli trace")


def _check_code(code: str) -> None:
    """Raise if there is no such code."""
    if code and code not in CODES | {_WORKED, "cancelled"}:
        raise unknown("outcome", code, CODES | {_WORKED, "cancelled"}, "")


async def _list(bus: Bus, home: Home, filters: dict[str, str], limit: int, json: bool) -> None:
    steps = (await CollectedSpans(bus, home, filters).new(limit))[-limit:]
    rows = [_row(step, bus.peer.node_id) for step in steps]
    empty = "no such step yet; ask for something, such as: hearthnet ask"
    terminal.listing(json, steps, _HEADINGS, rows, empty)


async def _follow(bus: Bus, home: Home, filters: dict[str, str], limit: int, json: bool) -> None:
    from hearthnet.core.node_state import read_node_state

    spans = CollectedSpans(bus, home, filters)
    steps = (await spans.new(limit))[-limit:]
    while True:
        for step in steps:
            if json:
                terminal.json_line(step)
            else:
                terminal.write("  ".join(_row(step, bus.peer.node_id)) + "\n")
        await asyncio.sleep(_POLL_SECONDS)
        read_node_state(home)
        steps = await spans.new(MOST)


async def _one(bus: Bus, home: Home, trace_id: str, json: bool) -> None:
    steps = await CollectedSpans(bus, home, {"trace": trace_id}).new(MOST)
    places = list(tree(only(steps, trace_id)))
    terminal.result(
        json,
        [{**place.step, "depth": place.depth} for place in places],
        lambda: _show_tree(places, bus.peer.node_id),
    )


def _row(step: Step, own: str) -> tuple[str, ...]:
    began = datetime.fromtimestamp(step["at"] / 1e6)
    return (
        f"{began:%H:%M:%S}.{began.microsecond // 1000:03}",
        one_line(step["service"]),
        _what(step),
        _peer(step, own),
        _took(step["ms"]),
        step["code"],
        step["trace"][:_ID_CHARACTERS],
    )


def _show_tree(places: Sequence[TreePosition], own: str) -> None:
    first = min(place.step["at"] for place in places)
    last = max(place.step["at"] + place.step["ms"] * 1000 for place in places)
    began = datetime.fromtimestamp(first / 1e6)
    processes = len({place.step["instance"] for place in places})
    counts = f"{counted(len(places), 'step')} in {processes} process{'es' * (processes != 1)}"
    took = _took((last - first) / 1000)
    terminal.line(f"trace {places[0].step['trace']}, {began:%d %b %H:%M:%S}: {counts}, {took}\n")
    terminal.table(
        _TREE,
        [
            (
                f"+{_took((step['at'] - first) / 1000)}",
                one_line(step["service"]),
                f"{'  ' * depth}{_what(step)}",
                _peer(step, own),
                _took(step["ms"]),
                step["code"],
                size(step["bytes_in"]),
                size(step["bytes_out"]),
            )
            for step, depth in places
        ],
    )


def _what(step: Step) -> str:
    """Return `calls rag.query@1.0`, with the numbers of tries and frames if above one."""
    more = [f"{step['attempts']} tries"] if step["attempts"] > 1 else []
    more += [counted(step["frames"], "frame")] if step["frames"] else []
    numbers = f" ({', '.join(more)})" if more else ""
    return f"{_SIDES[step['side']]}{one_line(step['capability'])}{numbers}"


def _peer(step: Step, own: str) -> str:
    peer = step["peer"]
    if peer in ("", own):
        return "this node" if peer else "-"
    return ids.short_id(peer)


def _took(ms: float) -> str:
    """Return a time: `0.42 ms`, `12 ms`, `1.3 s`."""
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2f} ms"
