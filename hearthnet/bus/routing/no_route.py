"""The error messages for calls without a candidate (the choice itself: bus/routing/routing_table.py)."""

# See: docs/protocol/discovery.md#nobody-to-ask.
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.routing.routing_table import RoutingEntry, same_schema
from hearthnet.contracts.contract import Contract
from hearthnet.contracts.match import fits, nearest, pairs_in, value_at
from hearthnet.core.errors import NOT_SHARED_WITH, HearthNetError, Overloaded, Unauthorized, Unavailable
from hearthnet.core.ids import short_id

PLACE_FREE_MS: Final = 250
_LEAST_WAIT_MS: Final = 100
_MOST_NAMED: Final = 8
"""Maximum of nodes that an error names."""
_SILENT_MS: Final = 3_000
"""Longer than a caller waits by itself: it has waited."""


class AllSlotsBusy(Overloaded):
    """Raised when calls of this process take all places, so that none was sent."""


def why_unavailable(
    contract: Contract, fitting: Iterable[RoutingEntry], now_ms: int
) -> HearthNetError | None:
    """Return the error if fitting offers exist, but none can be called now; None otherwise."""
    waits = []
    for entry in fitting:
        if entry.health.may_be_called:
            places = entry.view.offer.max_concurrent
            return AllSlotsBusy(
                f"all {places} places of {contract.id} are taken by this program; try again in a moment",
                retry_after_ms=PLACE_FREE_MS,
            )
        waits.append(max(_LEAST_WAIT_MS, entry.health.until_ms - now_ms))
    if not waits:
        return None
    return Unavailable(
        f"too many calls of {contract.id} failed; it is tried again in {min(waits) / 1000:.0f} s",
        retry_after_ms=min(waits),
        rule="provider_failing",
    )


def silent(contract: Contract) -> HearthNetError:
    """Return the error if a subscriber to finds of the capability has not answered."""
    return Unavailable(
        f"who may offer {contract.id} does not answer; try again in a moment",
        retry_after_ms=_SILENT_MS,
        rule="provider_silent",
    )


def only_elsewhere(contract: Contract, nodes: list[str]) -> HearthNetError:
    """Return the error if other `nodes` offer a provider's contract, and the call named none of them."""
    return HearthNetError(
        "not_found",
        f"this node does not offer {contract.id} now, and what others offer under that name is called only "
        f"where the call names the node: {', '.join(map(short_id, nodes[:_MOST_NAMED]))}; see: hearthnet "
        "call --node",
        details={"providers": nodes[:_MOST_NAMED]},
    )


def above_own_level(contract: Contract, view: OfferView) -> HearthNetError:
    """Return the error if all who offer it do so to members of a higher level than this node's."""
    return Unauthorized(
        f"{short_id(view.node)} offers {contract.id} to {view.offer.trust} members alone; ask its owner",
        rule=NOT_SHARED_WITH,
    )


def why_no_match(
    contract: Contract, body: dict[str, Any], offers: list[OfferView], node: str
) -> HearthNetError:
    """Return the error if no offer answers `body`, with the offered alternatives.

    `offers` are those of `node` if one was named.
    """
    same_version = [view for view in offers if view.capability.serves(contract.capability)]
    if not same_version:
        who = f"{short_id(node)} does not offer" if node else "nobody in the mesh offers"
        return HearthNetError("not_found", f"{who} {contract.id} now; see: hearthnet caps")
    if not any(same_schema(contract, view) for view in same_version):
        return HearthNetError(
            "schema_mismatch", f"{contract.id} is offered only with another contract; upgrade the older side"
        )
    unpaired = _no_pair(contract, body, same_version)
    if unpaired is not None:
        return unpaired
    asked = {rule.offer: value_at(path, body) for path, rule in contract.match.items() if rule.rule != "pair"}
    wanted = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
    offered = sorted({_describe(view, asked) for view in same_version})
    return HearthNetError(
        "not_found",
        f"no offer of {contract.id} fits {wanted}; offered: {'; '.join(offered)}",
        details={"offered": offered},
    )


def _no_pair(contract: Contract, body: dict[str, Any], offers: list[OfferView]) -> HearthNetError | None:
    """Return the error with similar pairs if an offer fits in all but the pair."""
    for field, rule in contract.match.items():
        if rule.rule != "pair":
            continue
        rest = {name: other for name, other in contract.match.items() if name != field}
        fitting = [view for view in offers if fits(rest, body, view.params)]
        first, second = value_at(rule.after or "", body), value_at(field, body)
        if not fitting or second is None:
            continue
        known = pairs_in(pair for view in fitting for pair in rule.offered(view.params))
        words, details = nearest(None if first == rule.whatever else first, second, known)
        wanted = f"{field.partition('.')[2]} {second!r}"
        if rule.after is not None and first != rule.whatever:
            wanted = f"{rule.after.partition('.')[2]} {first!r} {wanted}"
        return HearthNetError(
            "not_found", f"no offer of {contract.id} goes {wanted}; {words}", details={"nearest": details}
        )
    return None


def _describe(view: OfferView, asked: dict[str, Any]) -> str:
    """Return the offer's values of the requested params, or of all matched params if none is."""
    names = [name for name, value in asked.items() if value is not None] or list(asked)
    return ", ".join(f"{name} {view.params.get(name)!r}" for name in names)
