"""Snapshot of the mesh as known to this node. Pure; `sources.py` obtains the data.

Texts of peers are cut to a maximal size and brought into an order here, once.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from hearthnet import HearthNetError, OfferView
from hearthnet.bus import find_contract as find
from hearthnet.contracts import Contract
from hearthnet.core import rfc3339
from hearthnet.trust import Member, Roster
from hearthnet_mesh.visibility import HOME, Viewer

MOST_OFFERS: Final = 5_000
MOST_NODES: Final = 500
"""Nodes in one reply of `mesh.neighbours`."""
LONGEST: Final = 200
"""Characters of a name given by a peer."""


class Snapshot(msgspec.Struct, frozen=True):
    """State of the mesh: offers, last answer of each node (Unix ms), roster, and this node."""

    own: str
    roster: Roster
    offers: tuple[OfferView, ...] = ()
    seen: dict[str, int] = {}

    def visible(self, viewer: Viewer) -> list[OfferView]:
        """Return the offers of members visible to `viewer`, by capability, node and params."""
        found = [
            view
            for view in self.offers
            if self.roster.member(view.node) is not None
            and viewer.may_see(trust_of(view), {"corpus": corpus_of(view)})
        ]
        return sorted(found, key=lambda view: (str(view.capability), *view.key))[:MOST_OFFERS]

    def shared_corpora(self) -> frozenset[str | None]:
        """Return the corpora of this node that every member may search."""
        return frozenset(
            corpus_of(view) for view in self.offers if view.node == self.own and trust_of(view) != HOME
        )

    def online(self) -> frozenset[str]:
        """Return the nodes that have offers now, and this one."""
        return frozenset({view.node for view in self.offers} | {self.own})

    def members(self) -> list[Member]:
        """Return the members by name."""
        shown = self.roster.shown_name
        return sorted(self.roster.members, key=lambda one: (shown(one.node_id).casefold(), one.node_id))

    def manifest(self, member: Member) -> dict[str, Any]:
        """Return the known data of one member.

        `profile` is None, because nodes do not announce yet which kind of computer they are.
        """
        seen = self.seen.get(member.node_id)
        return {
            "node_id": member.node_id,
            "display_name": short(self.roster.shown_name(member.node_id)),
            "profile": None,
            "level": member.level,
            "added_at": member.added_at,
            "online": member.node_id in self.online(),
            "last_seen": None if seen is None else rfc3339(seen),
        }

    def neighbours(self, viewer: Viewer, *, online_only: bool) -> dict[str, Any]:
        """Return the output of `mesh.neighbours`."""
        offered: dict[str, set[str]] = {}
        for view in self.visible(viewer):
            offered.setdefault(view.node, set()).add(str(view.capability))
        nodes = []
        for member in self.members():
            about = self.manifest(member)
            if about["online"] or not online_only:
                del about["added_at"]
                nodes.append({**about, "capabilities": sorted(offered.get(member.node_id, ()))})
        return {"nodes": nodes[:MOST_NODES], "truncated": len(nodes) > MOST_NODES}

    def find_node(self, name: str) -> Member | None:
        """Return the member with this id, or the only one that is shown by this name."""
        named = self.roster.nodes_called(name)
        return self.roster.member(named[0]) if len(named) == 1 else None


def trust_of(view: OfferView) -> str:
    """Return the trust that a call of this offer requires, by the offer or its contract."""
    if view.offer.trust:
        return view.offer.trust
    contract = contract_of(view)
    return "member" if contract is None else contract.trust_required


def contract_of(view: OfferView) -> Contract | None:
    """Return the contract of an offer, or None if it is not known to this installation."""
    return find_contract(str(view.capability))


def find_contract(name: str) -> Contract | None:
    """Return the contract of `name` or `name@major.minor`, or None."""
    try:
        return find(name)
    except HearthNetError:
        return None


def short(text: str, longest: int = LONGEST) -> str:
    """Return a text of a peer on one line of at most `longest` characters."""
    line = " ".join(text[: longest * 2].split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def corpus_of(view: OfferView) -> str | None:
    """Return the corpus that an offer searches, or None."""
    name = view.params.get("corpus")
    return name if view.capability.name == "rag.query" and isinstance(name, str) else None


def models_of(view: OfferView) -> list[str]:
    """Return the names of models under which an offer can be called."""
    others = view.params.get("models")
    names = [view.params.get("model"), *(others if isinstance(others, list) else ())]
    return list(dict.fromkeys(short(name) for name in names if isinstance(name, str) and name))[:50]


def pairs_of(view: OfferView) -> list[tuple[str, str]]:
    """Return the pairs of languages that an offer translates."""
    listed = view.params.get("languages_pairs")
    pairs = [
        (short(pair[0], 16), short(pair[1], 16))
        for pair in (listed if isinstance(listed, list) else ())
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)
    ]
    return sorted(set(pairs))[:500]
