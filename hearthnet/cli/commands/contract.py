"""`hearthnet contract`: the contracts of a package (docs/contracts.md#contracts-of-packages)."""

from __future__ import annotations

from pathlib import Path

import click

from hearthnet.cli.commands.contract_sign import key, sign
from hearthnet.cli.input.options import Commands
from hearthnet.cli.output import terminal
from hearthnet.cli.output.text import one_line


@click.group("contract", cls=Commands)
def command() -> None:
    """Contracts of a package of your own: what authors of services need."""


@command.command("freeze")
@click.argument("source", metavar="MODULE[:SERVICE]")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where to write. Default: the folder contracts beside the module.",
)
@click.option("--check", is_flag=True, help="Write nothing; end with 1 where a file is missing or differs.")
def freeze(source: str, out: Path | None, check: bool) -> None:
    """Write each contract of a service to NAME@VERSION.json.

    A service whose contract differs from its file does not start. MODULE is a module that can be imported,
    or a file such as hello.py.
    """
    from hearthnet.core.errors import OTHER, HearthNetError
    from hearthnet.service.authoring import frozen
    from hearthnet.service.hosting.loading import load_service

    differs = False
    functions = list(load_service(source).functions())
    if not functions:
        raise HearthNetError("not_found", f"the service of {source} has no functions to freeze")
    for capability in functions:
        file = frozen.frozen_file(capability, out)
        try:
            state = (frozen.frozen_state if check else frozen.freeze)(capability, out)
        except OSError as error:
            message = f"{file} cannot be read or written: {error.strerror}; name another folder with --out"
            raise HearthNetError("bad_request", message) from error
        differs = differs or state != "unchanged"
        terminal.line(f"{state.ljust(9)}  {one_line(str(file))}")
    if check and differs:
        terminal.error("not frozen as they are; write them with: hearthnet contract freeze")
        click.get_current_context().exit(OTHER)


command.add_command(key)
command.add_command(sign)
