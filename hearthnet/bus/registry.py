"""The offers this process knows of, and until when (wire.md, "Offers, routing, health")."""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

import msgspec

from hearthnet.ids import short_id
from hearthnet.types import Capability, parse_capability
from hearthnet.wire import subjects
from hearthnet.wire.offer import LIFETIME_MS, OfferRecord

_log = logging.getLogger(__name__)
MOST_OFFERS: Final = 512
"""How many offers of one node are kept; more are not heard."""
MOST_PARAMS: Final = 16_384
"""Characters of JSON that the params of one offer may take."""
_Key = tuple[str, str, str, str]


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
    def key(self) -> _Key:
        """What makes an offer the same one when it is announced again."""
        offer = self.offer
        return (
            self.node,
            offer.instance,
            offer.capability,
            msgspec.json.encode(offer.params, order="sorted").decode(),
        )


class _Entry(NamedTuple):
    """An offer, and until when it counts."""

    view: OfferView
    until_ms: int


class Registry:
    """Offers by topic (`rag.query.v1`); an expired one counts as gone.

    What a peer says of time and size is bounded here: an offer counts for up to 30 s after it was heard,
    whatever its node takes for the time, and of one node only so many are kept, of so many bytes each.
    """

    def __init__(self) -> None:
        self._topics: dict[str, dict[_Key, _Entry]] = {}

    def update(self, node: str, offers: tuple[OfferRecord, ...], *, withdrawn: bool, heard_ms: int) -> None:
        """Takes what `node` announced. Offers with a malformed capability raise `bad_request`."""
        views = [OfferView(node, parse_capability(offer.capability), offer) for offer in offers]
        if withdrawn:
            for view in views:
                self._topics.get(subjects.topic(view.capability), {}).pop(view.key, None)
            return
        room = MOST_OFFERS - self._count(node, heard_ms)
        for view in views:
            room -= self._take(view, room > 0, heard_ms)

    def _take(self, view: OfferView, room: bool, heard_ms: int) -> bool:
        """Keeps `view` or passes it over; whether it takes a place that was free."""
        key = view.key
        known = self._topics.setdefault(subjects.topic(view.capability), {})
        before = known.get(key)
        if before is None and (not room or len(key[3]) > MOST_PARAMS):
            _log.info("%s offers more than is kept: %s", short_id(view.node), view.capability)
            return False
        if before is None or view.offer.issued_at >= before.view.offer.issued_at:
            # For as long as it says from now on, not until then: its node's clock may be a minute off.
            lasts = min(view.offer.expires_at - view.offer.issued_at, LIFETIME_MS)
            known[key] = _Entry(view, heard_ms + lasts)
        return before is None

    def offers(self, topic: str, now_ms: int) -> list[OfferView]:
        """The live offers of `topic`; the dead ones are forgotten on the way."""
        known = self._topics.get(topic, {})
        for key in [key for key, entry in known.items() if entry.until_ms <= now_ms]:
            del known[key]
        if not known:
            self._topics.pop(topic, None)
        return [entry.view for entry in known.values()]

    def _count(self, node: str, now_ms: int) -> int:
        """How many live offers of `node` are kept."""
        views = [view for topic in list(self._topics) for view in self.offers(topic, now_ms)]
        return sum(1 for view in views if view.node == node)

    def everything(self, now_ms: int) -> list[OfferView]:
        """Every live offer, by capability, node and instance."""
        views = [view for topic in list(self._topics) for view in self.offers(topic, now_ms)]
        return sorted(views, key=lambda view: view.key[2:] + view.key[:2])

    def drop_instance(self, node: str, instance: str) -> None:
        """Forgets a process that the server says is gone."""
        for known in self._topics.values():
            for key in [key for key in known if key[:2] == (node, instance)]:
                del known[key]
