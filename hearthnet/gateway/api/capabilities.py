"""The capabilities that a client may call, and their present offers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hearthnet.bus.calls.contract_fetch import cached_contract
from hearthnet.contracts import Contract, contracts, is_told
from hearthnet.trust.authorization.authority import SELF, UNDELEGABLE

if TYPE_CHECKING:
    from hearthnet.bus import OfferView
    from hearthnet.trust.authorization.token import Scope


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
    own = contract.trust_required == SELF or contract.name in UNDELEGABLE
    return not own and scope.covers(contract.capability)


def _page(contract: Contract, views: list[OfferView]) -> dict[str, Any]:
    return {
        "capability": contract.id,
        "name": contract.name,
        "version": f"{contract.major}.{contract.minor}",
        "summary": contract.summary,
        "side_effects": contract.side_effects,
        "idempotent": contract.idempotent,
        "trust_required": contract.trust_required,
        "streams": contract.stream_schema is not None,
        "timeout_seconds": contract.timeout_seconds,
        "request_schema": contract.request_schema,
        "response_schema": contract.response_schema,
        "stream_schema": contract.stream_schema,
        "offers": [_offer(view) for view in views],
    }


def _offer(view: OfferView) -> dict[str, Any]:
    offer = view.offer
    return {
        "node": view.node,
        "instance": offer.instance,
        "service": offer.service,
        "params": offer.params,
        "max_concurrent": offer.max_concurrent,
        "in_flight": offer.in_flight,
        "expires_at": offer.expires_at,
    }
