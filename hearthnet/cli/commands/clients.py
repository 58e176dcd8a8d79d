"""`hearthnet clients` and `hearthnet link`: who reaches the gateway (docs/gateway.md, "Clients")."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from hearthnet.cli.input.local_call import on_bus, running_node
from hearthnet.cli.input.member_lookup import roster_of
from hearthnet.cli.input.options import Commands, common_options
from hearthnet.cli.input.settings_file import settings
from hearthnet.cli.output import terminal
from hearthnet.cli.output.durations import Span
from hearthnet.cli.output.suggest import ambiguous, unknown
from hearthnet.cli.output.text import duration, one_line
from hearthnet.core.errors import HearthNetError
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms

if TYPE_CHECKING:
    from hearthnet.bus.bus import Bus
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.gateway.auth.client_store import StoredClient
    from hearthnet.trust.authorization.token import Scope

_DAY: Final = 86_400
_HEADINGS: Final = ("id", "name", "guest", "key", "may call", "ends in")
_EFFECTS: Final = 100
_OF_CORPORA: Final = ("rag.query", "rag.list_documents")


@click.group("clients", cls=Commands)
def command() -> None:
    """Manage programs and guests that reach the mesh through this node's gateway.

    \b
    hearthnet clients add editor --scope llm.chat
    hearthnet clients add agent --scope 'experimental.mcp.notes.*'
    hearthnet clients list
    hearthnet clients remove editor
    """


@command.command()
@click.argument("name")
@click.option(
    "--scope",
    multiple=True,
    metavar="CAPABILITY",
    help="What it may call, such as llm.chat, or experimental.mcp.NAME.* for all tools of an MCP server. "
    "May be given several times. Default: all that a guest may.",
)
@click.option(
    "--corpus",
    multiple=True,
    metavar="NAME",
    help="A corpus that it may search, also one that is not shared, and nothing else. May be given several "
    "times.",
)
@click.option("--guest", metavar="NAME", help="Whose conversations it sees. Default: its own alone.")
@click.option("--key", metavar="ED25519", help="Its public key, by which it signs for itself.")
@click.option(
    "--effects",
    type=click.IntRange(0, 1000),
    help=f"At most so many effects an hour at each node. Default: {_EFFECTS} without a key, any number with.",
)
@click.option("--per-minute", type=click.IntRange(min=1), help="At most so many calls a minute.")
@click.option("--for", "seconds", type=Span(60, 3650 * _DAY), default="90d", show_default=True)
@common_options
def add(
    name: str,
    scope: tuple[str, ...],
    corpus: tuple[str, ...],
    guest: str | None,
    key: str | None,
    effects: int | None,
    per_minute: int | None,
    seconds: int,
    home: Home,
    json: bool,
) -> None:
    """Let a program or a guest called NAME in, and print its key, which is shown once.

    Corpora that are not shared are hidden from it, but for those of --corpus, and with --guest owner.

    The key goes where a program asks for an API key, or into a header: Authorization: Bearer KEY. Without a
    public key of its own, the gateway confirms effects in its name.
    """
    import functools

    from hearthnet.bus.session.keyring import load_identity
    from hearthnet.cli.commands.ingest import check_name
    from hearthnet.cli.workflows.home_person import check_guest
    from hearthnet.gateway.auth.client_store import ClientStore, api_key
    from hearthnet.gateway.auth.client_tokens import check_room

    check_guest(home, guest or "")
    if corpus and scope:
        raise click.UsageError("--corpus is a scope by itself; leave out --scope")
    for one in corpus:
        check_name(one)
    identity, community = load_identity(home.device_key), roster_of(home).community_id
    _check_scope(home, scope)
    entry, secret = ClientStore(home).add(
        name,
        guest or "",
        key=key or "",
        scope=_scope(tuple(dict.fromkeys(scope)), corpus, effects, per_minute, bool(key)),
        life_ms=seconds * 1000,
        check=functools.partial(check_room, identity, community),
    )
    node = running_node(home)
    url = "" if node is None else node.gateway_url
    if json:
        terminal.json_page(_row(entry) | {"secret": api_key(entry, secret), "url": url or None})
        return
    terminal.line(api_key(entry, secret))
    terminal.info(f"for {one_line(name)} ({entry.id}); it is not shown again")
    if url:
        terminal.info(f"the gateway is at {url}; the base URL of the OpenAI API is {url}/v1")


@command.command("list")
@common_options
def list_(home: Home, json: bool) -> None:
    """Show all clients, including pages that were opened by a link."""
    from hearthnet.gateway.auth.client_store import ClientStore

    entries, now = ClientStore(home).entries(), now_ms()
    terminal.listing(
        json,
        [_row(entry) for entry in entries],
        _HEADINGS,
        [_cells(entry, now) for entry in entries],
        "there is no client; make one with: hearthnet clients add NAME, or: hearthnet link",
    )


@command.command()
@click.argument("client")
@common_options
def remove(client: str, home: Home, json: bool) -> None:
    """Shut the gateway to a client, by its name or id, from its next request on."""
    from hearthnet.gateway.auth.client_store import ClientStore

    book = ClientStore(home)
    entry = _one(client, book.entries())
    book.remove(entry.id)
    terminal.result(
        json,
        {"id": entry.id, "name": entry.name, "removed": True},
        f"{one_line(entry.name)} ({entry.id}) is no client any more",
    )


def _check_scope(home: Home, names: tuple[str, ...]) -> None:
    """Check that a client could call each of `names`; for tools that were added, ask the mesh."""
    from hearthnet.core.node_state import read_node_state
    from hearthnet.gateway.api.capabilities import check_installed, check_offered, is_shared
    from hearthnet.trust.authorization.token import Scope

    async def offered(bus: Bus) -> list[OfferView]:
        found: list[OfferView] = []
        for name in unsure:
            found += await bus.offers(suits=partial(_covers, Scope((name,))))
        return found

    servers = settings(home).mcp.servers
    unsure = [name for name in check_installed(names) if not is_shared(name, servers)]
    if unsure:
        read_node_state(home)  # raises if no node runs
        check_offered(unsure, on_bus(home, offered), servers)


def _covers(scope: Scope, view: OfferView) -> bool:
    return scope.covers(view.capability)


def _scope(
    names: tuple[str, ...],
    corpora: tuple[str, ...],
    effects: int | None,
    per_minute: int | None,
    has_key: bool,
) -> Scope:
    """Return the scope of the client, with its limits."""
    from hearthnet.trust.authorization.token import Scope

    most = _EFFECTS if effects is None and not has_key else effects
    allowed: dict[str, list[Any]] = {"corpus": list(dict.fromkeys(corpora))} if corpora else {}
    names = _OF_CORPORA if corpora else names
    return Scope(names, allowed, rate_limit_per_minute=per_minute, max_effects=most)


def _one(text: str, entries: list[StoredClient]) -> StoredClient:
    """Return the client with the id or name `text`; raise if there is none, or several."""
    found = [entry for entry in entries if text in (entry.id, entry.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ambiguous("client", text, [entry.id for entry in found])
    names = [entry.name for entry in entries]
    raise unknown("client", text, names, "there is none at all; see: hearthnet clients add --help")


def _row(entry: StoredClient) -> dict[str, Any]:
    """Return a client for scripts, without its secret."""
    import msgspec

    row: dict[str, Any] = msgspec.to_builtins(entry)
    del row["secret"]
    return row


def _cells(entry: StoredClient, now: int) -> tuple[str, ...]:
    may = ", ".join(entry.scope.capabilities) or "all a guest may"
    if corpora := entry.scope.params_constraints.get("corpus"):
        may = f"{may} in {', '.join(map(str, corpora))}"
    left = duration(entry.expires_at - now) if entry.expires_at > now else "over"
    key = entry.key[:20] if entry.key else "-"
    return (entry.id, one_line(entry.name), one_line(entry.principal), key, one_line(may), left)


@click.command("link")
@click.option(
    "--guest",
    metavar="NAME",
    default="owner",
    show_default=True,
    help="Whose conversations the page shows: letters, digits, '.', '-' and '_'.",
)
@common_options
def link(guest: str, home: Home, json: bool) -> None:
    """Print a link that opens this node's page.

    It works once, within ten minutes, and on this computer only. Exit code 3 when no node runs.
    """
    from hearthnet.cli.workflows.home_person import check_guest
    from hearthnet.gateway.auth.login_links import LIFE_MS, LinkBook
    from hearthnet.trust.authorization.token import check_principal

    check_principal(guest)
    check_guest(home, guest)
    found = LinkBook(home).link(gateway_url(home), guest)
    if json:
        terminal.json_page({"url": found, "guest": guest, "expires_at": now_ms() + LIFE_MS})
    else:
        terminal.line(found)
        terminal.info("opens once, within ten minutes, on this computer")


def gateway_url(home: Home) -> str:
    """Return where the gateway of the running node is.

    Raises:
        HearthNetError: With exit status 3 if no node runs; `not_found` if it has no gateway.
    """
    from hearthnet.core.node_state import read_node_state

    url = read_node_state(home).gateway_url
    if not url:
        raise HearthNetError(
            "not_found",
            f"no gateway runs here; see [gateway] in {home.config_file}, and: hearthnet logs gateway",
        )
    return url
