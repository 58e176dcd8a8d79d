"""Whether what a client is to call can work at all, told before the client exists (docs/gateway.md, Scopes).

The form of a name, and that no token carries a capability, are known at once. A tool that somebody added is
known by an offer that serves others than its node, or by a shared server of the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from hearthnet.bus.bus import find_contract
from hearthnet.contracts import is_told
from hearthnet.errors import HearthNetError
from hearthnet.gateway.capabilities import covered
from hearthnet.trust.authority import SELF
from hearthnet.trust.token import Scope, whole_server

if TYPE_CHECKING:
    from hearthnet.bus import OfferView
    from hearthnet.config import McpServerConfig

_PREFIX: Final = "experimental.mcp."


def check_installed(names: Iterable[str]) -> list[str]:
    """The names among `names` that are not installed here, and have to be looked for in the mesh.

    Raises `not_found` for a capability that there is not, `bad_request` for what is none and for a wildcard
    of anything but one MCP server, `unauthorized` for what no client may call.
    """
    foreign = []
    for name in names:
        if "*" in name and whole_server(name) is None:
            raise HearthNetError(
                "bad_request",
                f"{name[:80]!r} is no scope: a wildcard stands for all tools of one MCP server, as in "
                "experimental.mcp.NAME.*; name other capabilities one by one",
            )
        Scope((name,)).check()
        if is_told(name):
            foreign.append(name)
            continue
        contract = find_contract(name)
        if not covered(Scope((name,)), contract):
            raise HearthNetError(
                "unauthorized", f"{name} is for the node itself; no client can call it, so leave it out"
            )
    return foreign


def is_shared(name: str, servers: Iterable[McpServerConfig]) -> bool:
    """Whether `name` stands for one of these servers, whole, and others than the node may call its tools."""
    return whole_server(name) in {f"{_PREFIX}{one.name}" for one in servers if one.share}


def check_offered(
    names: Iterable[str], views: Sequence[OfferView], servers: Sequence[McpServerConfig]
) -> None:
    """Raises where no client could call a tool in `names`: `views` are all offers, `servers` this node's own.

    `not_found` for what nobody offers, `unauthorized` for what is offered to the node itself alone.
    """
    for name in names:
        scope = Scope((name,))
        found = [view for view in views if scope.covers(view.capability)]
        if not any(view.offer.trust != SELF for view in found):
            _check_configured(name, servers, offered=bool(found))


def _check_configured(name: str, servers: Sequence[McpServerConfig], *, offered: bool) -> None:
    """As `check_offered`, where no offer serves others."""
    server = whole_server(name) or name.rpartition(".")[0]
    known = {f"{_PREFIX}{one.name}": one for one in servers}
    config = known.get(server)
    if offered or (config is not None and not config.share):
        raise HearthNetError(
            "unauthorized",
            f"{name} is for this node alone, and no client can call it; share the server first: set "
            "share = true for it in hearthnet.toml, or add it again with hearthnet mcp add --share",
        )
    if whole_server(name) is None:
        whole = f"; for all tools of its server, name {server}.*" if config is not None else ""
        raise HearthNetError("not_found", f"nobody offers {name} now; see: hearthnet caps{whole}")
    shared = [f"{prefix}.*" for prefix, one in known.items() if one.share]
    hint = f"there is {', '.join(shared)}" if shared else "see: hearthnet mcp list"
    raise HearthNetError("not_found", f"nobody offers tools as {name} now; {hint}")
