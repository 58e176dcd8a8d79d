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
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import duration, one_line, size
from hearthnet.core import ids
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.core.node_state import NodeState, ServiceState

_HEADINGS = ("service", "state", "since", "pid", "memory", "restarts", "offers")


@click.command("status")
@common_options
def status(home: Home, json: bool) -> None:
    """Show the state of the node and its services. Exit code 3 when no node runs."""
    from hearthnet.cli.workflows.diagnosis.clock import clock_page
    from hearthnet.core.node_state import read_node_state

    state = read_node_state(home)
    more = {"backup": _backups(home), "recoveries": _recoveries(home, state), "clock": clock_page(home)}
    terminal.result(json, _as_json(state) | more, lambda: _show(home, state))


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


def _backups(home: Home) -> dict[str, Any]:
    """Return the result of the last backup, the schedule, and the backup that this home was restored from."""
    import msgspec

    from hearthnet.backup.history import read_last
    from hearthnet.cli.input.settings_file import settings
    from hearthnet.core.config import BackupConfig
    from hearthnet.core.restore_mark import read_mark

    schedule, mark = BackupConfig(), None
    with contextlib.suppress(HearthNetError):
        schedule = settings(home).backup
    with contextlib.suppress(HearthNetError):
        mark = read_mark(home)
    return {
        "last": msgspec.to_builtins(read_last(home)),
        "schedule": msgspec.to_builtins(schedule),
        "restored": msgspec.to_builtins(mark),
    }


def _recoveries(home: Home, state: NodeState) -> list[dict[str, Any]]:
    """Return the recoveries of the owner by helpers that have begun; none where the roster cannot be read."""
    from hearthnet.cli.input.member_lookup import roster_of
    from hearthnet.cli.workflows.helping import begun_recoveries

    with contextlib.suppress(HearthNetError):
        return begun_recoveries(home, roster_of(home), state.node_id)
    return []


def _later(home: Home) -> str:
    """Return a line about events of a later version; empty where there are none, or no roster."""
    from hearthnet.cli.input.member_lookup import roster_of
    from hearthnet.cli.workflows.diagnosis.home_files import later_version

    with contextlib.suppress(HearthNetError):
        return later_version(roster_of(home))
    return ""


def _backup_lines(home: Home, now: int) -> list[str]:
    page = _backups(home)
    last, schedule, mark = page["last"], page["schedule"], page["restored"]
    lines = []
    if last["time"]:
        lines.append(f"last backup: {format_time(last['time'], now)}, in {last['folder']}")
    elif schedule["folder"]:
        lines.append("last backup: none yet")
    if schedule["folder"] and schedule["every_hours"]:
        lines.append(f"a backup every {schedule['every_hours']} h to {schedule['folder']}")
    if last["error"]:
        lines.append(f"the backup of {format_time(last['tried_at'], now)} was not made: {last['error']}")
    if mark is not None:
        waits = "" if mark["heard_from"] or mark["alone"] else "; it has not heard from another member since"
        lines.append(f"restored from the backup of {format_time(mark['time'], now)}{waits}")
    return lines


def _show(home: Home, state: NodeState) -> None:
    from hearthnet.cli.workflows.diagnosis.clock import clock_fault
    from hearthnet.cli.workflows.diagnosis.home_files import LATER_REMEDY
    from hearthnet.cli.workflows.helping import shown_recovery

    now = now_ms()
    ready = terminal.styled("ready", "green") if state.ready else terminal.styled("starting", "yellow")
    terminal.line(
        f"{one_line(state.display_name)} ({ids.short_id(state.node_id)}), HearthNet {state.version}: {ready}"
    )
    up = f"up {duration(now - state.started_at)}, pid {state.pid}, {_memory(state.pid)}"
    server = state.server
    terminal.line(f"{up}; server {server.url}, pid {server.pid}, {_memory(server.pid)}")
    terminal.line(f"other homes: {server.homes}")
    later = _later(home)
    if later:
        terminal.line(f"{later}; {LATER_REMEDY}")
    off = clock_fault(home)
    if off is not None:
        terminal.line(one_line(f"{off.cause}; {off.remedy}"))
    for text in _backup_lines(home, now):
        terminal.line(one_line(text))
    for begun in _recoveries(home, state):
        terminal.line(shown_recovery(begun, now))
    terminal.line("")
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
