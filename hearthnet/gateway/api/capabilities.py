"""The capabilities that a client may call, their present offers, and the check of a new client's scope.

A scope is checked before its client exists (docs/gateway.md, Scopes). The form of a name, and capabilities
that no token carries, are refused at once. A tool that was added to a node is known by an offer to other
nodes, or by a shared server of the settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hearthnet.bus.bus import find_contract
from hearthnet.bus.calls.contract_fetch import cached_contract
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.match import matched_fields
from hearthnet.contracts.namespaces import is_home_only, is_provider_defined
from hearthnet.contracts.registry import contracts
from hearthnet.core.errors import HearthNetError
from hearthnet.trust.authorization.authority import HOME, SELF, UNDELEGABLE
from hearthnet.trust.authorization.token import Scope, is_let_in, whole_server

if TYPE_CHECKING:
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.core.config import McpServerConfig

_OF_CONTRACT: Final = (
    *("name", "version", "summary", "side_effects", "idempotent", "trust_required", "timeout_seconds"),
    *("request_schema", "response_schema", "stream_schema"),
)
_OF_OFFER: Final = ("instance", "service", "params", "max_concurrent", "in_flight", "expires_at")


def visible(views: Iterable[OfferView], principal: str, scope: Scope, own: str) -> list[OfferView]:
    """Return those of `views` that a client may learn of; those to the home of `own` are for few."""
    return [
        view for view in views if view.offer.trust != HOME or is_let_in(principal, scope, own, _fields(view))
    ]


def _fields(view: OfferView) -> dict[str, Any]:
    return matched_fields(find_contract(str(view.capability)).match, view.params)


def described(scope: Scope, views: Iterable[OfferView], name: str = "") -> list[dict[str, Any]]:
    """Return a description of each capability within `scope`, sorted by name.

    `name` selects one. Capabilities that came with no installation are included where they are in `views` and
    their contract was learned.
    """
    offers: dict[str, list[OfferView]] = {}
    for view in views:
        offers.setdefault(str(view.capability), []).append(view)
    provided = [
        found for one in sorted(offers) if is_provider_defined(one) and (found := cached_contract(one))
    ]
    return [
        _page(contract, offers.get(contract.id, []))
        for contract in (*contracts(), *provided)
        if covered(scope, contract) and name in ("", contract.name, contract.id)
    ]


def covered(scope: Scope, contract: Contract) -> bool:
    """Return whether a client with this scope may call this capability."""
    return is_for_clients(contract) and scope.covers(contract.capability)


def is_for_clients(contract: Contract) -> bool:
    """Return whether a client's token can carry this capability: it is not for the node itself."""
    name = contract.name
    return not (contract.trust_required == SELF or name in UNDELEGABLE or is_home_only(name))


def may_answer_whole(contract: Contract) -> bool:
    """Return whether `input.stream` selects streaming; foreign tools use it as an argument."""
    fields = contract.request_schema["properties"]["input"].get("properties", {})
    return "stream" in fields and not is_provider_defined(contract.name)


def _page(contract: Contract, views: list[OfferView]) -> dict[str, Any]:
    page = {"capability": contract.id, **{name: getattr(contract, name) for name in _OF_CONTRACT}}
    offers = [
        {"node": view.node, **{name: getattr(view.offer, name) for name in _OF_OFFER}} for view in views
    ]
    return {**page, "streams": contract.stream_schema is not None, "offers": offers}


_PREFIX: Final = "experimental.mcp."


def installed(name: str) -> Contract | None:
    """Return the contract that an entry of a scope names; None for the tools of an MCP server.

    Raises:
        HearthNetError: `not_found` for an unknown capability; `bad_request` for an entry that no
            scope can have.
    """
    Scope((name,)).check()
    return None if is_provider_defined(name) else find_contract(name)


def check_installed(names: Iterable[str]) -> list[str]:
    """Check `names`; return those that are not installed here and may exist in the mesh.

    Raises:
        HearthNetError: `not_found` for an unknown capability; `bad_request` for a malformed name and a
            wildcard for anything but one MCP server; `unauthorized` for a capability that no client may call.
    """
    foreign = []
    for name in names:
        contract = installed(name)
        if contract is None:
            foreign.append(name)
        elif not is_for_clients(contract):
            raise HearthNetError(
                "unauthorized", f"{name} is for the node itself; no client can call it, so leave it out"
            )
    return foreign


def is_shared(name: str, servers: Iterable[McpServerConfig]) -> bool:
    """Return whether `name` means one of these servers as a whole, and the server is shared."""
    return whole_server(name) in {f"{_PREFIX}{one.name}" for one in servers if one.share}


def check_offered(
    names: Iterable[str], views: Sequence[OfferView], servers: Sequence[McpServerConfig]
) -> None:
    """Check that a client could call the tools in `names`.

    `views` are all offers, `servers` the MCP servers of this node.

    Raises:
        HearthNetError: `not_found` for a tool that no node offers; `unauthorized` for one that is offered
            only to its node itself.
    """
    for name in names:
        scope = Scope((name,))
        found = [view for view in views if scope.covers(view.capability)]
        if not any(view.offer.trust != SELF for view in found):
            _check_configured(name, servers, offered=bool(found))


def _check_configured(name: str, servers: Sequence[McpServerConfig], *, offered: bool) -> None:
    """Raise the error of `check_offered` for a name without an offer to others, if any."""
    if is_home_only(name) and offered:
        raise HearthNetError(
            "unauthorized", f"{name} is in a namespace of its own: it is for this node alone, not for clients"
        )
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
