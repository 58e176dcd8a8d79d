"""What a token costs on a call, from the sealed frame to the admitted call.

See: docs/protocol/tokens.md#verification.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hearthnet.bus.session.session import Session
from hearthnet.core import ids
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.config import LimitsConfig
from hearthnet.core.home import Home
from hearthnet.core.times import now_ms
from hearthnet.nats.client import NatsClient
from hearthnet.protocol import frame as frames
from hearthnet.protocol import subjects
from hearthnet.service.decorators import endpoints
from hearthnet.service.hosting import admission
from hearthnet.service.hosting.active_offers import ActiveOffer, OfferSet
from hearthnet.service.hosting.peer_rates import PeerRates
from hearthnet.trust.authorization.token import Scope, Verified, mint
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.keys import Identity
from tests.bench.figures import Figure, microseconds
from tests.helpers.members import take_in
from tests.helpers.probe import QUERY, ProbeService, query

_RUN = ids.new_ulid()
_RATES = PeerRates(LimitsConfig(0, 0, 0, 0))


def figures() -> list[Figure]:
    """A call without a token, under a known one and under a new one; opened and admitted, not run."""
    with TemporaryDirectory() as folder:
        cost = microseconds(_work(Home.resolve(Path(folder))), number=200)
    known = cost["known"] - cost["none"]
    return [
        Figure("token.call_without_us", cost["none"], "us", "", "open and admit a call without a token"),
        Figure("token.known_more_us", known, "us", "< 15", "more under a run token that was seen before"),
        Figure("token.new_more_us", cost["new"] - cost["none"], "us", "", "more under one never seen"),
        Figure("token.mint_us", cost["mint"], "us", "", "make and sign a run token"),
    ]


def _work(home: Home) -> dict[str, Callable[[], object]]:
    root, provider, caller = Identity.generate(), Identity.generate(), Identity.generate()
    founder = rosters.member(provider, "anchor", "provider", now_ms())
    roster = take_in(rosters.create(root, founder, "bench", now_ms()), provider, caller)
    asking, answering = (
        Session(who, roster, NatsClient("nats://127.0.0.1", who.login(), "bench"), home)
        for who in (caller, provider)
    )
    service = ProbeService()
    offered = endpoints(service)
    hosted = OfferSet(ActiveOffer(offered[offer.capability].contract, offer) for offer in service.offers())
    token = _token(caller, roster.community_id)

    def taken(subject: str, data: bytes) -> object:
        return admission.admit(
            answering, _RATES, offered, hosted, admission.open_directed(answering, subject, data)
        )

    def taken_anew(subject: str, data: bytes) -> object:
        answering.tokens = Verified()
        return taken(subject, data)

    without, under = _call(asking, answering, ""), _call(asking, answering, token)
    return {
        "none": lambda: taken(*without),
        "known": lambda: taken(*under),
        "new": lambda: taken_anew(*under),
        "mint": lambda: _token(caller, roster.community_id),
    }


def _token(caller: Identity, community: str) -> str:
    """A run token as the tool loop makes it, less its budget, which is charged later."""
    return mint(
        caller,
        subject=caller.node_id,
        audience=community,
        scope=Scope((QUERY,), {"corpus": ["probe"]}),
        now_ms=now_ms(),
        ttl_seconds=300,
        run=_RUN,
    )


def _call(caller: Session, provider: Session, token: str) -> tuple[str, bytes]:
    capability = parse_capability(QUERY)
    header = caller.sender.header(
        "call",
        ids.new_ulid(),
        to=provider.node_id,
        to_instance=provider.instance,
        capability=QUERY,
        deadline=30_000,
        run=_RUN,
        token=token,
    )
    inner = frames.plain(header, msgspec.json.encode(query()))
    subject = subjects.call(caller.node_id, provider.node_id, provider.instance, capability)
    return subject, frames.box(inner, caller.sender.keys.to(provider.node_id))
