"""Options that several commands share, and their values for the reporting of errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from hearthnet.core.home import Home
from hearthnet.core.times import CLOCK


@dataclass
class CommandSettings:
    """The way in which errors are reported, once a command has failed."""

    json: bool = False
    frames: bool = False
    """Set if stdout has frames and nothing else."""
    home: Path | None = None


def settings_of(context: click.Context) -> CommandSettings:
    """Return the settings of this invocation."""
    return context.ensure_object(CommandSettings)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Store the option before the command runs; `--home` becomes a `Home`, by whose time it goes."""
    setattr(settings_of(context), str(parameter.name), value)
    if parameter.name != "home":
        return value
    home = Home.resolve(value)
    CLOCK.follow(home)
    return home


class Commands(click.Group):
    """A group of commands; without a command it prints its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help and exit if there are no arguments."""
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

only_option: Final = click.option(
    "--only",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only calls with this value in a field of params, or of the input as input.FIELD.",
)


def roster_option(source: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--roster` of a command that verifies `source`."""
    return click.option(
        "--roster",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help=f"The members of the community that {source} is from. Default: those of this home.",
    )


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--home` and `--json`, which nearly every command has."""
    return home_option(json_option(command))
