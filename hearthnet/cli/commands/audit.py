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
    hearthnet audit prove 12 --output proof.jsonl
    hearthnet audit verify log.jsonl
    """


@command.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, help="How many calls, the newest (20).")
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
@click.option("--from", "first", type=click.IntRange(min=1), metavar="ENTRY", help="The first entry.")
@click.option("--to", "last", type=click.IntRange(min=1), metavar="ENTRY", help="The last entry.")
@click.option(
    "--max-mb", type=click.IntRange(1, 1_000_000), default=1_000, help="At most so many megabytes (1000)."
)
@common_options
def export(file: Path, first: int | None, last: int | None, max_mb: int, home: Home, json: bool) -> None:
    """Write the log, or a part of it, to FILE (`-` for stdout), with a signed head.

    The file can be verified without this node.
    """
    from hearthnet.cli.workflows.audit_trail import Part, export_to

    quiet = json or str(file) == "-"
    shown = False

    def progress(done: int, total: int) -> None:
        nonlocal shown
        if not quiet:
            shown = terminal.status_line(f"exporting {100 * done // total} %")

    try:
        done = export_to(home, file, Part(first or 0, last or 0, max_mb * 1_000_000), progress)
    finally:
        if shown:
            terminal.clear_status()
    count, is_cut = done.last - done.first + 1, done.last < (last or done.end)
    go_on = f"the log goes on with entry {done.last + 1}: export it with --from {done.last + 1}"
    if str(file) == "-":
        if is_cut:
            terminal.info(go_on)
    elif json:
        page = {"path": str(file), "entries": count, "first": done.first, "last": done.last}
        terminal.json_page({**page, "more": is_cut})
    else:
        entries = f"{count} {'entry' if count == 1 else 'entries'}"
        terminal.line(f"{entries} in {one_line(str(file))}; see: hearthnet audit verify FILE")
        if is_cut:
            terminal.line(go_on)


@command.command()
@click.argument("entry", type=click.IntRange(min=1))
@click.option(
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    default=Path("-"),
    metavar="FILE",
    help="Where to write the proof. Default: stdout.",
)
@common_options
def prove(entry: int, output: Path, home: Home, json: bool) -> None:
    """Write a proof of ENTRY that anybody can verify, without this node, a home or a network.

    It holds the entry, the other one of its call, and a head that this node signs for them. Of a call it
    shows the arguments.
    """
    from hearthnet.cli.workflows.audit_proof import prove_to

    proven = prove_to(home, entry, output)
    if str(output) != "-":
        page = {"path": str(output), "entries": proven}
        terminal.result(json, page, f"in {one_line(str(output))}; see: hearthnet audit verify FILE")


@command.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@roster_option("an exported log")
@common_options
def verify(file: Path | None, roster: Path | None, home: Home, json: bool) -> None:
    """Verify that the log is complete and unaltered.

    Without FILE it is the log of the running node. An exported log in FILE needs no node, a proof no home
    either. The first problem is reported with its entry, and the exit code is 4.
    """
    from hearthnet.bus.session.keyring import load_roster
    from hearthnet.cli.workflows.audit_proof import is_proof, verify_proof
    from hearthnet.cli.workflows.audit_trail import verify_file, verify_running

    if file is not None and is_proof(file):
        proof = verify_proof(file, None if roster is None else load_roster(roster))
        terminal.result(json, proof.as_json(), lambda: terminal.line("\n".join(proof.text())))
        return
    if file is None:
        members = roster_of(home)
        verdict = asyncio.run(verify_running(home, members))
    else:
        members = load_roster(roster or home.roster)
        verdict = verify_file(file, members)
    terminal.result(json, verdict.as_json(), lambda: _print_verdict(verdict, members))


def _print_verdict(verdict: Verdict, roster: Roster) -> None:
    now, first = now_ms(), verdict.first
    calls = counted(verdict.calls, "call")
    until = "" if verdict.as_of is None else f", as it was {format_time(verdict.as_of, now)}"
    kind = "part" if verdict.part else "whole" if first == 1 else f"whole from entry {first} on"
    terminal.line(
        f"{kind}: {verdict.entries} entries of {calls}, by {principal_name(verdict.node, roster)}{until}"
    )
    if verdict.part:
        terminal.line(f"entries {first} to {first + verdict.entries - 1}; says nothing about others")
    if point := verdict.checkpoint:
        when, before = format_time(point.time, now), f"entries 1 to {first - 1}"
        terminal.line(
            f"{before} were removed {when} by retention ({point.rule}): checkpoint {point.sequence}"
        )
    for began in verdict.open:
        what = f"{one_line(began.capability)} for {principal_name(began.principal, roster)}"
        terminal.line(
            f"entry {began.sequence}: {what} began {format_time(began.time, now)} and has not ended"
        )
