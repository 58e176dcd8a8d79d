"""The capabilities that a client may call, and their present offers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from hearthnet.bus.calls.contract_fetch import cached_contract
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.dynamic import is_told
from hearthnet.contracts.namespaces import is_home_only
from hearthnet.contracts.registry import contracts
from hearthnet.trust.authorization.authority import SELF, UNDELEGABLE

if TYPE_CHECKING:
    from hearthnet.bus.routing.offer_registry import OfferView
    from hearthnet.trust.authorization.token import Scope

_OF_CONTRACT: Final = (
    *("name", "version", "summary", "side_effects", "idempotent", "trust_required", "timeout_seconds"),
    *("request_schema", "response_schema", "stream_schema"),
)
_OF_OFFER: Final = ("instance", "service", "params", "max_concurrent", "in_flight", "expires_at")


def described(scope: Scope, views: Iterable[OfferView], name: str = "") -> list[dict[str, Any]]:
    """Return a description of each capability within `scope`, sorted by name.

    `name` selects one. Capabilities that came with no installation are included where they are in `views` and
    their contract was learned.
    """
    offers: dict[str, list[OfferView]] = {}
    for view in views:
        offers.setdefault(str(view.capability), []).append(view)
    told = [found for one in sorted(offers) if is_told(one) and (found := cached_contract(one))]
    return [
        _page(contract, offers.get(contract.id, []))
        for contract in (*contracts(), *told)
        if covered(scope, contract) and name in ("", contract.name, contract.id)
    ]


def covered(scope: Scope, contract: Contract) -> bool:
    """Return whether a client may call this capability.

    Capabilities for the node itself are never callable by clients.
    """
    own = contract.trust_required == SELF or contract.name in UNDELEGABLE or is_home_only(contract.name)
    return not own and scope.covers(contract.capability)


def _page(contract: Contract, views: list[OfferView]) -> dict[str, Any]:
    page = {"capability": contract.id, **{name: getattr(contract, name) for name in _OF_CONTRACT}}
    offers = [
        {"node": view.node, **{name: getattr(view.offer, name) for name in _OF_OFFER}} for view in views
    ]
    return {**page, "streams": contract.stream_schema is not None, "offers": offers}
