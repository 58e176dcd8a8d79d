"""`hearthnet service`: a service of your own.

See: docs/services.md#a-package.
"""

from __future__ import annotations

from pathlib import Path

import click

from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import one_line


@click.group("service")
def command() -> None:
    """Begin a service of your own."""


@command.command("new")
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Where its folder is made. Default: here.",
)
def new(name: str, folder: Path) -> None:
    """Write a package with one capability and its test to the new folder NAME."""
    from hearthnet.cli.workflows.new_service import write_service

    place = write_service(name, folder)
    terminal.line(one_line(str(place)))
    terminal.info("install it with its test tools, then run its test: pip install -e '.[test]' && pytest")
