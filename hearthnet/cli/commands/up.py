"""`hearthnet up`: runs the node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hearthnet.cli.input.options import home_option

if TYPE_CHECKING:
    from hearthnet.core.home import Home


@click.command("up")
@home_option
@click.option(
    "--ready-file",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A file that appears, with the node's addresses as JSON, when every service is ready.",
)
def command(home: Home, ready_file: Path | None) -> int:
    """Run this node and its services until Ctrl-C.

    The first run makes keys, settings and a community of one in the data folder. Processes that crash are
    started again.
    """
    from hearthnet.supervisor import run

    return run(home, ready_file)
