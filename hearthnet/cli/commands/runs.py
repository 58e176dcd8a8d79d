"""`hearthnet runs`: saved runs of the tool loop, and decisions about their calls."""

from __future__ import annotations

import asyncio

import click

from hearthnet.cli.input.options import Commands, common_options, frames_option, home_option, settings_of
from hearthnet.core.home import Home

_CONFIRM = "Say yes without being asked at the terminal."


@click.group("runs", cls=Commands)
def command() -> None:
    """Show the calls that models made or want to make, and decide about them.

    A question whose model called something is kept for a day, also when its process or the node ends.

    \b
    hearthnet runs list
    hearthnet runs show RUN
    hearthnet runs approve RUN
    hearthnet runs resume RUN
    """


@command.command("list")
@common_options
def list_runs(home: Home, json: bool) -> None:
    """Show the runs of the last day, newest first.

    The state of each says how many of its calls wait for a decision.
    """
    from hearthnet.cli.workflows.run_commands import list_all

    asyncio.run(list_all(home, json=json))


@command.command()
@click.argument("run")
@common_options
def show(run: str, home: Home, json: bool) -> None:
    """Show the calls of RUN: what would be sent, who decided when and how, and the result."""
    from hearthnet.cli.workflows.run_commands import show_one

    asyncio.run(show_one(home, run, json=json))


@command.command()
@click.argument("run")
@click.argument("call", required=False)
@click.option("--edit", metavar="FILE", help="Send these arguments instead: one JSON object; - for stdin.")
@click.option("--arguments", metavar="JSON", help="The same, written here.")
@click.option("--yes", "confirmed", is_flag=True, help=_CONFIRM)
@common_options
@click.pass_context
def approve(
    context: click.Context,
    run: str,
    call: str | None,
    edit: str | None,
    arguments: str | None,
    confirmed: bool,
    home: Home,
    json: bool,
) -> int:
    """Allow one CALL of RUN, exactly as it is shown.

    CALL may be left out where only one waits. With --edit or --arguments other arguments are sent than the
    model chose: all of them, in the form in which `hearthnet runs show RUN --json` has `arguments`. They are
    checked, and shown first like the model's own.

    If no process drives the run, this alone sends nothing; then continue with: hearthnet runs resume RUN
    """
    from hearthnet.cli.workflows.run_commands import approve_call

    if edit is not None and arguments is not None:
        raise click.UsageError("give --edit or --arguments, not both", context)
    source = arguments if edit is None else (edit if edit == "-" else f"@{edit}")
    option = "--arguments" if edit is None else "--edit"
    return asyncio.run(approve_call(home, run, call, source, option, confirmed=confirmed, json=json))


@command.command()
@click.argument("run")
@click.argument("call", required=False)
@click.option("--reason", default="", help="Why; the model is told.")
@common_options
def deny(run: str, call: str | None, reason: str, home: Home, json: bool) -> int:
    """Refuse one CALL of RUN. It is never sent.

    The model gets the refusal when the run continues.
    """
    from hearthnet.cli.workflows.run_commands import deny_call

    return asyncio.run(deny_call(home, run, call, reason, json=json))


@command.command()
@click.argument("run")
@frames_option
@home_option
@click.pass_context
def resume(context: click.Context, run: str, frames: bool, home: Home) -> int:
    """Continue RUN: approved calls are sent, denied ones are not, and the model answers.

    Calls without a decision are asked about here, as in `hearthnet ask`. A process that drove the run until
    now stops.
    """
    from hearthnet.cli.workflows.ask_flow import resume as go_on

    return asyncio.run(go_on(home, run, settings_of(context)))


@command.command()
@click.argument("run")
@common_options
def cancel(run: str, home: Home, json: bool) -> None:
    """End RUN; its waiting calls are never sent."""
    from hearthnet.cli.workflows.run_commands import cancel_one

    asyncio.run(cancel_one(home, run, json=json))
