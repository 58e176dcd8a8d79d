"""An offer in the process that serves it, with the number of its running calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hearthnet.contracts.contract import Contract
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.errors import HearthNetError
from hearthnet.core.times import now_ms
from hearthnet.protocol.offer import LIFETIME_MS, OfferRecord
from hearthnet.service.decorators import Offer
from hearthnet.trust.authorization.authority import CallRequirement
from hearthnet.trust.community.roster import RANK

_SELF: Final = len(RANK)


_MOST_KNOWN: Final = 256


class OfferSet:
    """All present offers of a process; the lookup by capability is cached."""

    def __init__(self, hosted: Iterable[ActiveOffer]) -> None:
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
        if offer.trust and RANK.get(offer.trust, _SELF) < RANK.get(contract.trust_required, _SELF):
            raise HearthNetError(
                "bad_request",
                f"an offer of {contract.id} demands {contract.trust_required} or more, never less",
            )
        self.contract = contract
        self.offer = Offer(
            capability=offer.capability,
            params=offer.params,
            max_concurrent=offer.max_concurrent or contract.max_concurrent,
            trust=offer.trust,
        )
        self.capability = parse_capability(offer.capability)
        self.fits = contract.matcher(offer.params)
        """Tells whether the offer can answer a request body."""
        self.in_flight = 0
        self._demand: CallRequirement | None = None

    def demand(self, node: str) -> CallRequirement:
        """Return the demand of a call of this offer of `node`."""
        if self._demand is None:
            contract = self.contract
            self._demand = CallRequirement(
                capability=contract.capability,
                trust=self.offer.trust or contract.trust_required,
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
            trust=self.offer.trust,
            service=service,
            version=version,
            packs=True,
        )

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
