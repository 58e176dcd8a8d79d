"""The commands and their help.

Each command's module is imported when it is needed (docs/decisions/0020).
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click
from click import UsageError

from hearthnet.cli.input.options import Commands
from hearthnet.cli.output.suggest import unknown

_COMMANDS: Final = (
    "up",
    "status",
    "doctor",
    "link",
    "ask",
    "runs",
    "ingest",
    "corpus",
    "file",
    "translate",
    "market",
    "outbox",
    "caps",
    "call",
    "invite",
    "door",
    "members",
    "revoke",
    "person",
    "device",
    "recover",
    "helpers",
    "token",
    "grants",
    "share",
    "usage",
    "tools",
    "audit",
    "clients",
    "backup",
    "operator",
    "trace",
    "logs",
    "models",
    "mcp",
    "service",
    "contract",
    "version",
)
_MODULES: Final = {
    **dict.fromkeys(("up", "status", "version"), "node"),
    "link": "clients",
    "revoke": "members",
    **dict.fromkeys(("person", "device"), "person"),
}
"""The modules that have several commands, each under its name; any other is the `command` of its own."""
_HELP: Final = """Share what the computers of a household can do.

Start a node with `hearthnet up`. Then ask it something in another terminal:

\b
  hearthnet ask "How do I make rainwater safe to drink?" --corpus system
"""
_EPILOG: Final = """\b
Exit codes: 0 ok, 1 other error, 2 usage, 3 node not running, 4 refused,
5 not found, 6 timeout or partition, 7 confirmation needed and nobody to ask,
8 capacity or rate limit, 130 interrupted.
"""


class RootCommands(Commands):
    """The commands of `hearthnet`, in the order in which a new user needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names, for the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, from its module in `hearthnet.cli.commands`."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"hearthnet.cli.commands.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name if cmd_name in _MODULES else "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does; the error for an unknown command names the nearest ones."""
        name = args[0]
        if not name.startswith("-") and name not in _COMMANDS:
            raise UsageError(unknown("command", name, _COMMANDS, "").message, ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=RootCommands,
    name="hearthnet",
    help=_HELP,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def app() -> None:
    """Share what the computers of a household can do."""
