"""`mesh.describe`: all information about one thing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hearthnet import HearthNetError, OfferView
from hearthnet.contracts import Contract
from hearthnet.trust import Member
from hearthnet_mesh.inventory import known_tools
from hearthnet_mesh.schemas import Kind
from hearthnet_mesh.snapshot import (
    Snapshot,
    contract_of,
    corpus_of,
    find_contract,
    models_of,
    pairs_of,
    short,
    trust_of,
)
from hearthnet_mesh.visibility import Viewer

MOST_OFFERS: Final = 500
_FIELDS: Final = (
    "id", "summary", "stability", "trust_required", "side_effects", "idempotent", "timeout_seconds",
    "schema_hash", "request_schema", "response_schema", "stream_schema", "errors", "examples",
)  # fmt: skip
Health = Mapping[tuple[str, str], tuple[float, float]]


class Thing(msgspec.Struct, frozen=True):
    """The target of a name: a member, or a set of offers with the contract of calls to it."""

    kind: Kind
    name: str
    offers: tuple[OfferView, ...]
    contract: Contract | None = None
    member: Member | None = None


def find(snapshot: Snapshot, viewer: Viewer, name: str) -> Thing:
    """Return the thing called `name`.

    The kinds are tried in this order: capability, node, tool, corpus, model, pair of languages.

    Raises:
        HearthNetError: `not_found` if no such thing is visible to `viewer`.
    """
    views = snapshot.visible(viewer)
    thing = (
        _capability(views, name)
        or _node(snapshot, views, name)
        or _tool(views, name)
        or _named([view for view in views if viewer.may_call(view.capability, view.params)], name)
    )
    if thing is None:
        raise HearthNetError(
            "not_found",
            f"nothing here is called {short(name, 80)!r}; look for it with mesh.search",
            details={"path": "/input/name"},
        )
    return thing


def describe(
    snapshot: Snapshot, viewer: Viewer, thing: Thing, health: Health, relations: int
) -> dict[str, Any]:
    """Return the output of `mesh.describe`."""
    why_not, contract = _why_not(viewer, thing), thing.contract
    return {
        "kind": thing.kind,
        "name": thing.name,
        "contract": None if contract is None else {field: getattr(contract, field) for field in _FIELDS},
        "manifest": None if thing.member is None else snapshot.manifest(thing.member),
        "offers": [_offer(view, health) for view in thing.offers[:MOST_OFFERS]],
        "allowed": not why_not,
        "why_not": why_not or None,
        "relations": relations,
    }


def _capability(views: list[OfferView], name: str) -> Thing | None:
    offers = tuple(view for view in views if name in (str(view.capability), view.capability.name))
    contract = find_contract(name) or (contract_of(offers[0]) if offers else None)
    if contract is None and not offers:
        return None
    called = str(offers[0].capability) if contract is None else contract.id
    return Thing("capability", called, offers or _serving(views, contract), contract)


def _serving(views: list[OfferView], contract: Contract | None) -> tuple[OfferView, ...]:
    return tuple(view for view in views if contract and view.capability.serves(contract.capability))


def _node(snapshot: Snapshot, views: list[OfferView], name: str) -> Thing | None:
    member = snapshot.find_node(name)
    if member is None:
        return None
    its = tuple(view for view in views if view.node == member.node_id)
    return Thing("node", member.node_id, its, member=member)


def _tool(views: list[OfferView], name: str) -> Thing | None:
    for tool in known_tools():
        if tool.name == name and tool.bound_capability is not None:
            contract = find_contract(tool.bound_capability)
            return Thing("tool", name, _serving(views, contract), contract)
    return None


def _named(views: list[OfferView], name: str) -> Thing | None:
    """Find a thing named in the params of offers."""
    corpora = tuple(view for view in views if corpus_of(view) == name)
    if corpora:
        return Thing("corpus", name, corpora, contract_of(corpora[0]))
    models = tuple(view for view in views if name in models_of(view))
    if models:
        return Thing("model", name, models, contract_of(models[0]))
    pairs = tuple(view for view in views if tuple(name.split("-", 1)) in pairs_of(view))
    return Thing("language_pair", name, pairs, contract_of(pairs[0])) if pairs else None


def _why_not(viewer: Viewer, thing: Thing) -> str:
    """Return the reason that the caller may not call any offer of the thing, or ""."""
    if thing.kind == "node":
        return "" if thing.offers else "it offers nothing now"
    contract = thing.contract
    reasons = [_reason(viewer, view) for view in thing.offers]
    if contract is not None and not reasons:
        trust, effects = contract.trust_required, contract.side_effects
        refused = viewer.why_not(contract.capability, trust, viewer.own, side_effects=effects)
        return refused or f"nobody offers {contract.id} now"
    return "" if "" in reasons else reasons[0]


def _reason(viewer: Viewer, view: OfferView) -> str:
    contract = contract_of(view)
    effects = contract is not None and contract.side_effects
    return viewer.why_not(view.capability, trust_of(view), view.node, side_effects=effects)


def _offer(view: OfferView, health: Health) -> dict[str, Any]:
    worked, p50_ms = health.get((view.node, str(view.capability)), (None, None))
    return {
        "node": view.node,
        "capability": str(view.capability),
        "params": view.params,
        "health": worked,
        "p50_ms": p50_ms,
        "in_flight": view.offer.in_flight,
        "max_concurrent": view.offer.max_concurrent,
    }
