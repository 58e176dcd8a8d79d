"""`hearthnet audit`: the record of calls with side effects, and its verification."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from hearthnet.cli.input.member_lookup import principal_name, roster_of
from hearthnet.cli.input.options import Commands, common_options, roster_option
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import format_time
from hearthnet.cli.output.text import counted, one_line
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.cli.workflows.audit_trail import Verdict
    from hearthnet.trust.community.roster import Roster

_HEADINGS: Final = ("entry", "time", "capability", "for", "consent", "outcome")


@click.group("audit", cls=Commands)
def command() -> None:
    """Show the calls with side effects, for whom they were made, and the proof of it.

    \b
    hearthnet audit list
    hearthnet audit export log.jsonl
    hearthnet audit verify log.jsonl
    """


@command.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=20, help="How many calls, the newest (20).")
@common_options
def list_calls(limit: int, home: Home, json: bool) -> None:
    """Show the newest calls with side effects, newest last."""
    from hearthnet.cli.workflows.audit_trail import newest

    calls = asyncio.run(newest(home, limit))
    roster, now = roster_of(home), now_ms()
    rows = [
        (
            str(call.began.sequence),
            format_time(call.began.time, now),
            one_line(call.began.capability),
            principal_name(call.began.principal or call.began.caller, roster),
            call.consent,
            call.outcome,
        )
        for call in calls
    ]
    empty = "nothing with side effects was called here yet"
    terminal.listing(json, [call.as_json() for call in calls], _HEADINGS, rows, empty)


@command.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@common_options
def export(file: Path, home: Home, json: bool) -> None:
    """Write the whole log to FILE (`-` for stdout), with a signed head.

    The file can be verified without this node.
    """
    from hearthnet.cli.workflows.audit_trail import export_to

    count = export_to(home, file)
    if str(file) == "-":
        return
    if json:
        terminal.json_page({"path": str(file), "entries": count})
    else:
        entries = f"{count} {'entry' if count == 1 else 'entries'}"
        terminal.line(f"{entries} in {one_line(str(file))}; see: hearthnet audit verify FILE")


@command.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@roster_option("an exported log")
@common_options
def verify(file: Path | None, roster: Path | None, home: Home, json: bool) -> None:
    """Verify that the log is complete and unaltered.

    Without FILE it is the log of the running node. An exported log in FILE needs no node. The first problem
    is reported with its entry, and the exit code is 4.
    """
    from hearthnet.bus.session.keyring import load_roster
    from hearthnet.cli.workflows.audit_trail import verify_file, verify_running

    if file is None:
        members = roster_of(home)
        verdict = asyncio.run(verify_running(home, members))
    else:
        members = load_roster(roster or home.roster)
        verdict = verify_file(file, members)
    terminal.result(json, verdict.as_json(), lambda: _print_verdict(verdict, members))


def _print_verdict(verdict: Verdict, roster: Roster) -> None:
    now = now_ms()
    calls = counted(verdict.calls, "call")
    until = "" if verdict.as_of is None else f", as it was {format_time(verdict.as_of, now)}"
    terminal.line(
        f"whole: {verdict.entries} entries of {calls}, by {principal_name(verdict.node, roster)}{until}"
    )
    for began in verdict.open:
        what = f"{one_line(began.capability)} for {principal_name(began.principal, roster)}"
        terminal.line(
            f"entry {began.sequence}: {what} began {format_time(began.time, now)} and has not ended"
        )
