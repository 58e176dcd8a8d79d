"""`hearthnet version`: prints the version."""

from __future__ import annotations

import click

from hearthnet import __version__
from hearthnet.cli.input.options import json_option
from hearthnet.cli.output import terminal


@click.command("version")
@json_option
def command(json: bool) -> None:
    """Show the version."""
    terminal.result(json, {"version": __version__}, f"hearthnet {__version__}")
