"""`hearthnet doctor`: the problems of a home, each with its cause and a remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import counted, one_line
from hearthnet.core.errors import OTHER
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.cli.workflows.diagnosis import Problem


@click.command("doctor")
@common_options
@click.pass_context
def command(context: click.Context, home: Home, json: bool) -> None:
    """Check this home: print its problems, each with its cause and a remedy.

    Looks at folder, settings, disk, keys, clock, backups, programs, models, ports, certificates, addresses
    and the link to another home; and, if the node runs, at its server, services and gateway. It changes
    nothing. Exit code 1 if there is a fault; warnings alone are 0.
    """
    import msgspec

    from hearthnet.cli.workflows.diagnosis import CHECKS, diagnose

    problems: list[Problem] = []
    for problem in diagnose(home):
        problems.append(problem)
        if not json:
            _print(problem)
    faults = sum(problem.severity == "fault" for problem in problems)
    if json:
        terminal.json_page(
            {"home": str(home.path), "faults": faults, "problems": msgspec.to_builtins(problems)}
        )
    elif not problems:
        terminal.line(f"{counted(len(CHECKS), 'check')}, nothing is wrong")
    else:
        terminal.line(f"{counted(faults, 'fault')}, {counted(len(problems) - faults, 'warning')}")
    context.exit(OTHER if faults else 0)


def _print(problem: Problem) -> None:
    mark = terminal.styled(problem.severity, "red" if problem.severity == "fault" else "yellow")
    terminal.line(f"{mark}: {one_line(problem.cause)} [{problem.check}]")
    terminal.line(f"  {one_line(problem.remedy)}")
