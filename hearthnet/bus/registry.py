"""The offers this process knows of, and until when (wire.md, "Offers, routing, health")."""

from __future__ import annotations

from typing import Any

import msgspec

from hearthnet.types import Capability, parse_capability
from hearthnet.wire.offer import OfferRecord


class OfferView(msgspec.Struct, frozen=True):
    """An offer together with the node that signed it."""

    node: str
    capability: Capability
    offer: OfferRecord

    @property
    def params(self) -> dict[str, Any]:
        """What the offer says of itself: model, corpus, languages ..."""
        return self.offer.params

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes an offer the same one when it is announced again."""
        offer = self.offer
        return (
            self.node,
            offer.instance,
            offer.capability,
            msgspec.json.encode(offer.params, order="sorted").decode(),
        )


class Registry:
    """Offers by topic (`rag.query.v1`); an expired one counts as gone."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[tuple[str, str, str, str], OfferView]] = {}

    def update(self, node: str, offers: tuple[OfferRecord, ...], *, withdrawn: bool) -> None:
        """Takes what `node` announced. Offers with a malformed capability raise `bad_request`."""
        for offer in offers:
            view = OfferView(node, parse_capability(offer.capability), offer)
            known = self._topics.setdefault(f"{view.capability.name}.v{view.capability.major}", {})
            if withdrawn:
                known.pop(view.key, None)
            elif offer.issued_at >= _issued(known.get(view.key)):
                known[view.key] = view

    def offers(self, topic: str, now_ms: int) -> list[OfferView]:
        """The live offers of `topic`; the dead ones are forgotten on the way."""
        known = self._topics.get(topic, {})
        for key in [key for key, view in known.items() if view.offer.expires_at <= now_ms]:
            del known[key]
        return list(known.values())

    def everything(self, now_ms: int) -> list[OfferView]:
        """Every live offer, by capability, node and instance."""
        views = [view for topic in list(self._topics) for view in self.offers(topic, now_ms)]
        return sorted(views, key=lambda view: view.key[2:] + view.key[:2])

    def drop_instance(self, node: str, instance: str) -> None:
        """Forgets a process that the server says is gone."""
        for known in self._topics.values():
            for key in [key for key in known if key[:2] == (node, instance)]:
                del known[key]


def _issued(view: OfferView | None) -> int:
    return 0 if view is None else view.offer.issued_at
