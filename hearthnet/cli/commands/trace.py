"""`hearthnet trace`: the steps of the node's processes, with their durations."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthnet.cli.workflows.trace_tree import Step, TreePosition
    from hearthnet.core.home import Home

_HEADINGS: Final = ("began", "process", "step", "with", "took", "outcome", "trace")
_TREE: Final = ("after", "process", "step", "with", "took", "outcome", "in", "out")
_SIDES: Final = {"caller": "calls ", "provider": "serves ", "run": ""}
_SHOWN_ID: Final = 12
_POLL_SECONDS: Final = 0.5
_WORKED: Final = "ok"


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
    import asyncio

    wanted = _given(capability=capability, code=_known(code))
    if trace_id is not None:
        _no_options(follow, capability, code)
        asyncio.run(_one(home, trace_id.strip().lower(), json))
    elif follow:
        asyncio.run(_follow(home, wanted, limit, json))
    else:
        asyncio.run(_list(home, wanted, limit, json))


def _given(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _known(code: str) -> str:
    """Return `code`; raise if there is no such code."""
    from hearthnet.cli.output.suggest import unknown
    from hearthnet.core.errors import CODES

    if code and code not in CODES | {_WORKED, "cancelled"}:
        raise unknown("outcome", code, CODES | {_WORKED, "cancelled"}, "")
    return code


def _no_options(follow: bool, capability: str, code: str) -> None:
    if follow or capability or code:
        raise click.UsageError("a trace is shown whole; leave out --follow, --capability and --code")


async def _list(home: Home, wanted: dict[str, str], limit: int, json: bool) -> None:
    from hearthnet.bus.bus import Bus
    from hearthnet.cli.workflows.trace_tree import CollectedSpans

    async with await Bus.connect(home, name="cli trace") as bus:
        steps = (await CollectedSpans(bus, home, wanted).new(limit))[-limit:]
    if json:
        terminal.json_page(steps)
    elif steps:
        _show(steps, bus.peer.node_id)
    else:
        terminal.line("no such step yet; ask for something, such as: hearthnet ask")


async def _follow(home: Home, wanted: dict[str, str], limit: int, json: bool) -> None:
    import asyncio

    from hearthnet.bus.bus import Bus
    from hearthnet.cli.workflows.trace_tree import MOST, CollectedSpans
    from hearthnet.core.node_state import read_node_state

    async with await Bus.connect(home, name="cli trace") as bus:
        seen = CollectedSpans(bus, home, wanted)
        steps = (await seen.new(limit))[-limit:]
        while True:
            for step in steps:
                if json:
                    terminal.json_line(step)
                else:
                    terminal.write("  ".join(_row(step, bus.peer.node_id)) + "\n")
            await asyncio.sleep(_POLL_SECONDS)
            read_node_state(home)
            steps = await seen.new(MOST)


async def _one(home: Home, trace_id: str, json: bool) -> None:
    from hearthnet.bus.bus import Bus
    from hearthnet.cli.workflows.trace_tree import MOST, CollectedSpans, only, tree

    async with await Bus.connect(home, name="cli trace") as bus:
        steps = await CollectedSpans(bus, home, {"trace": trace_id}).new(MOST)
    places = list(tree(only(steps, trace_id)))
    if json:
        terminal.json_page([{**place.step, "depth": place.depth} for place in places])
    else:
        _show_tree(places, bus.peer.node_id)


def _show(steps: Sequence[Step], own: str) -> None:
    terminal.table(_HEADINGS, [_row(step, own) for step in steps])


def _row(step: Step, own: str) -> tuple[str, ...]:
    began = datetime.fromtimestamp(step["at"] / 1e6)
    return (
        f"{began:%H:%M:%S}.{began.microsecond // 1000:03}",
        one_line(step["service"]),
        _what(step),
        _peer(step, own),
        _took(step["ms"]),
        step["code"],
        step["trace"][:_SHOWN_ID],
    )


def _show_tree(places: Sequence[TreePosition], own: str) -> None:
    first = min(place.step["at"] for place in places)
    last = max(place.step["at"] + place.step["ms"] * 1000 for place in places)
    began = datetime.fromtimestamp(first / 1e6)
    processes = len({place.step["instance"] for place in places})
    told = f"{counted(len(places), 'step')} in {processes} process{'es' * (processes != 1)}"
    took = _took((last - first) / 1000)
    terminal.line(f"trace {places[0].step['trace']}, {began:%d %b %H:%M:%S}: {told}, {took}\n")
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
    told = f" ({', '.join(more)})" if more else ""
    return f"{_SIDES[step['side']]}{one_line(step['capability'])}{told}"


def _peer(step: Step, own: str) -> str:
    from hearthnet.core import ids

    peer = step["peer"]
    if peer in ("", own):
        return "this node" if peer else "-"
    return ids.short_id(peer)


def _took(ms: float) -> str:
    """Return a time: `0.42 ms`, `12 ms`, `1.3 s`."""
    if ms >= 1000:
        return f"{ms / 1000:.1f} s"
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.2f} ms"
