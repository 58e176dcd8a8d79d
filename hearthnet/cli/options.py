"""Options that several commands share, and what the end of a command has to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from hearthnet.home import Home


@dataclass
class Settings:
    """How errors are to be reported, once a command has failed."""

    json: bool = False
    frames: bool = False
    """stdout holds frames and nothing else."""
    home: Path | None = None


def home_at(path: Path | None) -> Home:
    """The data folder that the option `--home` means, HEARTHNET_HOME where it is not given."""
    from hearthnet.home import Home

    return Home.resolve(path)


def settings_of(context: click.Context) -> Settings:
    """The settings of this invocation."""
    return context.ensure_object(Settings)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Notes in the settings what was asked for, before the command runs; `--home` becomes a `Home`."""
    setattr(settings_of(context), str(parameter.name), value)
    return home_at(value) if parameter.name == "home" else value


class Commands(click.Group):
    """Commands under one word; the word alone says which there are."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Prints the help, and that is all, where nothing follows."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


home_option: Final = click.option(
    "--home",
    metavar="DIR",
    type=click.Path(path_type=Path),
    callback=_remember,
    is_eager=True,
    help="The node's data folder. Default: $HEARTHNET_HOME, else the user's data folder.",
)
json_option: Final = click.option(
    "--json", is_flag=True, callback=_remember, is_eager=True, help="Print JSON, for scripts."
)
frames_option: Final = click.option(
    "--frames",
    is_flag=True,
    callback=_remember,
    is_eager=True,
    help="Print one JSON frame a line on stdout, and nothing else.",
)
