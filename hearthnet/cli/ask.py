from __future__ import annotations

import click


@click.command("ask")
def command(text: str) -> None:
    pass
