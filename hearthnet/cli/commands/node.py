"""`hearthnet up`, `status` and `version`: the node and its state."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hearthnet import __version__
from hearthnet.cli.input.options import common_options, home_option, json_option
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import duration, one_line, size
from hearthnet.core import ids
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.core.node_state import NodeState, ServiceState

_HEADINGS = ("service", "state", "since", "pid", "memory", "restarts", "offers")


@click.command("status")
@common_options
def status(home: Home, json: bool) -> None:
    """Show the state of the node and its services. Exit code 3 when no node runs."""
    from hearthnet.core.node_state import read_node_state

    state = read_node_state(home)
    terminal.result(json, _as_json(state), lambda: _show(state))


def memory_bytes(pid: int | None) -> int | None:
    """Return the resident memory of a process; None if the system does not report it."""
    if pid is not None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _as_json(state: NodeState) -> dict[str, Any]:
    """Return the node's published state, with `memory_bytes` beside each pid."""
    import msgspec

    page: dict[str, Any] = msgspec.to_builtins(state)
    for process in (page, page["server"], *page["services"]):
        process["memory_bytes"] = memory_bytes(process["pid"])
    return page


def _show(state: NodeState) -> None:
    now = now_ms()
    ready = terminal.styled("ready", "green") if state.ready else terminal.styled("starting", "yellow")
    terminal.line(
        f"{one_line(state.display_name)} ({ids.short_id(state.node_id)}), HearthNet {state.version}: {ready}"
    )
    up = f"up {duration(now - state.started_at)}, pid {state.pid}, {_memory(state.pid)}"
    server = state.server
    terminal.line(f"{up}; server {server.url}, pid {server.pid}, {_memory(server.pid)}")
    terminal.line(f"other homes: {server.homes}\n")
    terminal.table(_HEADINGS, [row for service in state.services for row in _rows(service, now)])
    for service in state.services:
        if service.note:
            terminal.line(f"\n{service.name}: {one_line(service.note)}")
    for text in state.package_errors:
        terminal.line(f"\n{one_line(text)}")


def _rows(service: ServiceState, now: int) -> list[tuple[str, ...]]:
    first, *others = [one_line(offer) for offer in service.offers or [service.address or "-"]]
    known = (
        service.name,
        service.state,
        duration(now - service.since),
        "-" if service.pid is None else str(service.pid),
        _memory(service.pid),
        str(service.restarts),
    )
    return [(*known, first), *(("",) * len(known) + (offer,) for offer in others)]


def _memory(pid: int | None) -> str:
    count = memory_bytes(pid)
    return "-" if count is None else size(count)


@click.command("up")
@home_option
@click.option(
    "--ready-file",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A file that appears, with the node's addresses as JSON, when every service is ready.",
)
def up(home: Home, ready_file: Path | None) -> int:
    """Run this node and its services until Ctrl-C.

    The first run makes keys, settings and a community of one in the data folder. Processes that crash are
    started again.
    """
    from hearthnet.supervisor import run

    return run(home, ready_file)


@click.command("version")
@json_option
def version(json: bool) -> None:
    """Show the version."""
    terminal.result(json, {"version": __version__}, f"hearthnet {__version__}")
