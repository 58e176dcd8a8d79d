"""Signed contracts of packages, as a process offers them to other homes (docs/decisions/0187)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from hearthnet.contracts import Contract
from hearthnet.contracts.namespaces import is_home_only
from hearthnet.contracts.packages import PackagedContract, packaged_contracts, signature_path
from hearthnet.core.canonical_json import digest
from hearthnet.core.errors import HearthNetError
from hearthnet.service.call import Statistics
from hearthnet.service.decorators import Endpoint, Offer
from hearthnet.trust.authorization.authority import SELF
from hearthnet.trust.contract_signature import (
    ContractSignature,
    check_contract,
    decode,
    shared_contract,
)

_log = logging.getLogger(__name__)


class SharedEndpoint(NamedTuple):
    """An endpoint under its name between homes, and the signature of its contract."""

    endpoint: Endpoint
    signature: ContractSignature


def shared_endpoints(endpoints: Iterable[Endpoint]) -> dict[str, SharedEndpoint]:
    """Return those of `endpoints` that other homes may call, by their capability at home."""
    found = {}
    for endpoint in endpoints:
        contract = endpoint.contract
        if contract.trust_required != SELF and is_home_only(contract.name):
            signature = _signature(contract)
            if signature is not None:
                shared = shared_contract(contract, signature.key)
                renamed = msgspec.structs.replace(endpoint, contract=shared, statistics=Statistics())
                found[contract.id] = SharedEndpoint(renamed, signature)
    return found


def shared_offers(offers: Iterable[Offer], endpoints: dict[str, SharedEndpoint]) -> list[Offer]:
    """Return the offers to other homes beside `offers`, which are for this node alone."""
    return [
        msgspec.structs.replace(offer, capability=endpoints[offer.capability].endpoint.contract.id)
        for offer in offers
        if offer.capability in endpoints and offer.trust != SELF
    ]


def _signature(contract: Contract) -> ContractSignature | None:
    """Return the signature of a contract that its package brings; None if it has none that is valid."""
    packaged = packaged_contracts().found.get(contract.capability)
    if packaged is None or packaged.digest != digest(msgspec.to_builtins(contract)):
        return None
    try:
        return packaged_signature(packaged)
    except HearthNetError as error:
        _log.error("%s", error.message)
        return None


def packaged_signature(packaged: PackagedContract) -> ContractSignature | None:
    """Return the signature beside a contract of a package; None if there is none.

    Raises:
        HearthNetError: `invalid_signature` with the remedy if it does not fit, or the shared name is too
            long.
    """
    data = packaged.signature()
    if data is None:
        return None
    try:
        signature = decode(msgspec.json.decode(data))
        check_contract(signature, packaged.contract)
        shared_contract(packaged.contract, signature.key)
    except (msgspec.DecodeError, HearthNetError) as error:
        what = f"cannot offer {packaged.contract.id} of {packaged.package} to other homes"
        raise HearthNetError(
            "invalid_signature",
            f"{what}: {signature_path(packaged.path)}: {error}; sign it anew: hearthnet contract sign",
        ) from error
    return signature
