"""`hearthnet operator`: logins for inspecting the services with NATS tools.

See: docs/operations.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.local_call import running_node
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.output import terminal
from hearthnet.cli.output.suggest import unknown
from hearthnet.cli.output.text import one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home

if TYPE_CHECKING:
    from hearthnet.supervisor.community.operators import Operator

_HEADINGS: Final = ("name", "login", "seed")
_LOGIN_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.1


@click.group("operator", cls=Commands)
def command() -> None:
    """Look at this home's services with NATS's own tools.

    \b
    hearthnet operator create anna
    hearthnet operator list
    hearthnet operator remove anna
    """


@command.command()
@click.argument("name")
@common_options
def create(name: str, home: Home, json: bool) -> None:
    """Make a login that may query the running services, and nothing else.

    NAME is up to 32 small letters, digits, - and _.
    """
    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.supervisor.community import operators
    from hearthnet.trust.authorization.permissions import OPERATOR_INBOX

    load_identity(home.device_key)  # raises if there is no home
    operator = operators.create(home, name)
    node = running_node(home)
    url = "" if node is None else node.server.url
    accepted = bool(url) and _becomes(operator, url, True)
    terminal.result(
        json,
        _as_json(operator) | {"url": url or None, "inbox_prefix": OPERATOR_INBOX},
        lambda: _print_operator(operator, url or "nats://127.0.0.1:4222"),
    )
    if not url:
        terminal.info("no node runs here: the login works once it does, at the address it then shows")
    elif not accepted:
        terminal.info(
            "the node has not taken the login yet; if it does not work soon, see: hearthnet logs up"
        )


@command.command("list")
@common_options
def list_(home: Home, json: bool) -> None:
    """List the operators; works without a running node."""
    from hearthnet.supervisor.community import operators

    found = operators.read(home, terminal.info)
    rows = [(each.name, each.login.public, one_line(str(each.seed_file))) for each in found]
    empty = "there is no operator; make one with: hearthnet operator create NAME"
    terminal.listing(json, [_as_json(operator) for operator in found], _HEADINGS, rows, empty)


@command.command()
@click.argument("name")
@common_options
def remove(name: str, home: Home, json: bool) -> None:
    """Take a login away, and disconnect its connections."""
    from hearthnet.supervisor.community import operators

    known = operators.names(home)
    if name not in known:
        raise unknown("operator", name, known, "there is none at all; see: hearthnet operator create --help")
    removed = [operator for operator in operators.read(home, terminal.info) if operator.name == name]
    operators.remove(home, name)
    node = running_node(home)
    ended = node is None or all(_becomes(operator, node.server.url, False) for operator in removed)
    terminal.result(json, {"name": name, "removed": True}, f"{name} is no operator any more")
    if not ended:
        terminal.info("the node still takes the login; see: hearthnet logs up")


def _becomes(operator: Operator, url: str, welcome: bool) -> bool:
    """Return whether the server soon accepts the login, or refuses it if not `welcome`."""
    import time

    end = time.monotonic() + _LOGIN_SECONDS
    while asyncio.run(_is_accepted(operator, url)) != welcome:
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


async def _is_accepted(operator: Operator, url: str) -> bool:
    from hearthnet.nats.client import NatsClient

    try:
        link = await NatsClient.connect(url, operator.login, "operator")
    except HearthNetError:
        return False
    await link.close()
    return True


def _as_json(operator: Operator) -> dict[str, Any]:
    return {"name": operator.name, "login": operator.login.public, "seed_file": str(operator.seed_file)}


def _print_operator(operator: Operator, url: str) -> None:
    """Print the address, the seed file, and a command to paste."""
    import shlex

    from hearthnet.trust.authorization.permissions import OPERATOR_INBOX

    file = one_line(str(operator.seed_file))
    terminal.line(f"{operator.name} may look at the services of this node")
    terminal.line(f"server         {url}")
    terminal.line(f"seed (secret)  {file}")
    terminal.line(f"inbox prefix   {OPERATOR_INBOX}")
    terminal.line("\nwith NATS's own command line:")
    options = f"--server {url} --nkey {shlex.quote(file)} --inbox-prefix {OPERATOR_INBOX}"
    terminal.line(f"  nats {options} micro ls")
