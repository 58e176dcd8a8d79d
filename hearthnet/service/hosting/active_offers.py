"""The offers of a process: with the number of running calls, and of packages' contracts to other homes.

A contract of a package is offered to other homes under its signature (docs/decisions/0187).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.contracts.contract import Contract
from hearthnet.contracts.match import matched_fields
from hearthnet.contracts.namespaces import is_home_only
from hearthnet.contracts.packages import PackagedContract, packaged_contracts, signature_path
from hearthnet.core.canonical_json import digest
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol import subjects
from hearthnet.protocol.offer import LIFETIME_MS, OfferRecord
from hearthnet.service.decorators import Endpoint, Offer, Statistics
from hearthnet.service.sharing.places import Places
from hearthnet.service.sharing.shared_service import SharedService
from hearthnet.trust.authorization.authority import HOME, SELF, CallRequirement, guest_of, is_to_home
from hearthnet.trust.authorization.token import Claims
from hearthnet.trust.community.roster import RANK
from hearthnet.trust.contract_signature import ContractSignature, check_contract, decode, shared_contract

_STRICTNESS: Final = {**RANK, HOME: len(RANK), SELF: len(RANK) + 1}
_UNKNOWN: Final = len(_STRICTNESS)
_MOST_KNOWN: Final = 256
_log = logging.getLogger(__name__)


class OfferSet:
    """All present offers of a process; the lookup by capability is cached."""

    def __init__(self, hosted: Iterable[ActiveOffer], terms: SharedService | None = None) -> None:
        """Take the offers, and the terms under which other homes may call them."""
        self.terms = terms
        self._hosted = list(hosted)
        self._serving: dict[str, list[ActiveOffer]] = {}

    def serving(self, capability: str) -> list[ActiveOffer]:
        """Return the offers that answer calls of `name@major.minor`.

        Raises:
            HearthNetError: `not_found` if there is none.
        """
        known = self._serving.get(capability)
        if known is not None:
            return known
        wanted = parse_capability(capability)
        found = [entry for entry in self._hosted if entry.capability.serves(wanted)]
        if not found:
            raise HearthNetError("not_found", f"{wanted} is not offered by this process any more")
        if len(self._serving) < _MOST_KNOWN:
            self._serving[capability] = found
        return found


class ActiveOffer:
    """An offer and its load.

    Raises:
        HearthNetError: `bad_request` for params or trust that the contract does not allow.
    """

    def __init__(self, contract: Contract, offer: Offer) -> None:
        contract.check_offer(offer.params)
        demanded = _STRICTNESS.get(offer.trust, _UNKNOWN)
        if offer.trust and demanded < _STRICTNESS.get(contract.trust_required, _UNKNOWN):
            raise HearthNetError(
                "bad_request",
                f"an offer of {contract.id} demands {contract.trust_required} or more, never less",
            )
        self.contract = contract
        places = offer.max_concurrent or contract.max_concurrent
        self.offer = msgspec.structs.replace(offer, max_concurrent=places)
        self.trust = offer.trust or contract.trust_required
        """The level that its callers need."""
        self.capability = parse_capability(offer.capability)
        self.topic = subjects.topic(self.capability)
        self.fits = contract.matcher(offer.params)
        """Tells whether the offer can answer a request body."""
        self._fields = matched_fields(contract.match, offer.params)
        self.places: Places[Any] = Places(places)
        """Held and waited for by calls (service/hosting/call_execution.py)."""
        self._demand: CallRequirement | None = None
        self.is_closed = False
        """Whether the terms of sharing keep it from other homes now."""
        self.least_level = ""
        """The level that the terms of sharing require of other homes."""

    @property
    def in_flight(self) -> int:
        """The number of running calls."""
        return self.places.in_flight

    @property
    def is_public(self) -> bool:
        """Whether other nodes may learn of the offer."""
        return self.trust != SELF and not (self.is_to_home or self.is_closed)

    @property
    def is_to_home(self) -> bool:
        """Whether the offer is for the home alone, or for one person of it."""
        return is_to_home(self.trust)

    @property
    def is_shown(self) -> bool:
        """Whether the owner's lists show the offer: what one person alone has, they do not."""
        return not guest_of(self.trust)

    def is_there_for(self, node: str, caller: str, claims: Claims | None) -> bool:
        """Return whether the offer of `node` to its home exists for this caller."""
        if caller != node:
            return False
        guest = guest_of(self.trust)
        return not guest if claims is None else claims.is_of_home(node, self._fields, guest)

    def demand(self, node: str) -> CallRequirement:
        """Return the demand of a call of this offer of `node`."""
        if self._demand is None:
            contract = self.contract
            self._demand = CallRequirement(
                capability=contract.capability,
                trust=self.trust,
                node=node,
                side_effects=contract.side_effects,
                own_key=contract.approval == "own_key",
            )
        return self._demand

    def record(self, instance: str, service: str, version: str) -> OfferRecord:
        """Return the record to announce now."""
        issued = now_ms()
        return OfferRecord(
            capability=self.offer.capability,
            instance=instance,
            schema_hash=self.contract.schema_hash,
            params=self.offer.params,
            max_concurrent=self.offer.max_concurrent,
            in_flight=self.in_flight,
            issued_at=issued,
            expires_at=issued + LIFETIME_MS,
            trust=self._announced_trust(),
            service=service,
            version=version,
            packs=True,
        )

    def _announced_trust(self) -> str:
        """Return the trust to announce: calls of this home are not under terms, and do not look at it."""
        if _STRICTNESS.get(self.least_level, 0) > _STRICTNESS.get(self.trust, _UNKNOWN):
            return self.least_level
        return self.offer.trust

    def __str__(self) -> str:
        """Return the capability and its matched params: `rag.query@1.0 corpus=system`."""
        matched = dict.fromkeys(rule.offer for rule in self.contract.match.values())
        params = {name: self.offer.params.get(name) for name in matched}
        return " ".join(
            [
                self.offer.capability,
                *(f"{name}={value}" for name, value in params.items() if isinstance(value, str)),
            ]
        )


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
        if offer.capability in endpoints and offer.trust != SELF and not is_to_home(offer.trust)
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
