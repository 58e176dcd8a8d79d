"""`hearthnet link`: makes a one-time link to the gateway's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hearthnet.cli.input.options import common_options
from hearthnet.cli.output import terminal
from hearthnet.core.errors import HearthNetError

if TYPE_CHECKING:
    from hearthnet.core.home import Home


@click.command("link")
@click.option(
    "--guest",
    metavar="NAME",
    default="owner",
    show_default=True,
    help="Whose conversations the page shows: letters, digits, '.', '-' and '_'.",
)
@common_options
def command(guest: str, home: Home, json: bool) -> None:
    """Print a link that opens this node's page.

    It works once, within ten minutes, and on this computer only. Exit code 3 when no node runs.
    """
    from hearthnet.core.node_state import read_node_state
    from hearthnet.core.times import now_ms
    from hearthnet.gateway.auth import login_links
    from hearthnet.trust.authorization.token import check_principal

    check_principal(guest)
    url = read_node_state(home).gateway_url
    if not url:
        raise HearthNetError(
            "not_found",
            f"no gateway runs here; see [gateway] in {home.config_file}, and: hearthnet logs gateway",
        )
    found = login_links.link(url, login_links.LinkBook(home).make(guest))
    if json:
        terminal.json_page({"url": found, "guest": guest, "expires_at": now_ms() + login_links.LIFE_MS})
    else:
        terminal.line(found)
        terminal.info("opens once, within ten minutes, on this computer")
