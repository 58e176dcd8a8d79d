"""A community of three, what they offer, and who looks at it."""

from __future__ import annotations

from typing import Any, Final

from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.contracts.registry import contracts
from hearthnet.core.capability_name import parse_capability
from hearthnet.core.times import now_ms
from hearthnet.protocol.offer import LIFETIME_MS, OfferRecord
from hearthnet.trust.authorization.token import Claims, Scope, decode, mint
from hearthnet.trust.community import roster as rosters
from hearthnet.trust.community.roster import Roster
from hearthnet.trust.keys import Identity
from hearthnet_mesh.snapshot import Snapshot
from hearthnet_mesh.trace_queries import TraceStep
from hearthnet_mesh.visibility import Viewer
from tests.helpers.members import raise_to, take_in

ROOT, KITCHEN, CELLAR, ATTIC, STRANGER = (Identity(bytes([number]) * 32) for number in range(1, 6))
SEEN: Final = 1_795_292_100_000


def community() -> Roster:
    """Kitchen founded it; Cellar is trusted, and Attic a plain member."""
    first = rosters.member(KITCHEN, "anchor", "Kitchen", now_ms())
    held = rosters.create(ROOT, first, "Home", now_ms())
    held = take_in(held, KITCHEN, CELLAR, "Cellar")
    held = take_in(held, KITCHEN, ATTIC, "Attic")
    return raise_to(held, KITCHEN, CELLAR, "trusted")


ROSTER: Final = community()


def offer(node: Identity, capability: str, trust: str = "", **params: Any) -> OfferView:
    """One offer of `node`, as an answer to a find shows it."""
    known = {contract.id: contract.schema_hash for contract in contracts()}
    record = OfferRecord(
        capability=capability, instance="testtest", schema_hash=known.get(capability, "none"), params=params,
        max_concurrent=4, in_flight=1, issued_at=SEEN, expires_at=SEEN + LIFETIME_MS, trust=trust,
        service="s",
    )  # fmt: skip
    return OfferView(node.node_id, parse_capability(capability), record)


OFFERS: Final = (
    offer(KITCHEN, "mesh.describe@1.0"),
    offer(KITCHEN, "rag.query@1.0", corpus="system"),
    offer(KITCHEN, "rag.query@1.0", "self", corpus="personal"),
    offer(KITCHEN, "rag.list_corpora@1.0"),
    offer(KITCHEN, "market.post@1.0"),
    offer(KITCHEN, "llm.models.reload@1.0"),
    offer(CELLAR, "rag.query@1.0", corpus="manuals"),
    offer(CELLAR, "llm.chat@2.0", model="qwen3", models=["qwen3", "big", 7], ctx=8192, backend="ollama"),
    offer(CELLAR, "trans.text@1.0", languages_pairs=[["de", "en"], ["en", "de"], ["odd"], "odd"]),
    offer(CELLAR, "experimental.weather@1.0"),
    offer(STRANGER, "experimental.stranger@1.0"),
)
SNAPSHOT: Final = Snapshot(
    KITCHEN.node_id,
    ROSTER,
    OFFERS,
    {KITCHEN.node_id: SEEN, CELLAR.node_id: SEEN, ATTIC.node_id: SEEN - 60_000},
)


def viewer(by: Identity = KITCHEN, claims: Claims | None = None) -> Viewer:
    """`by` looks at what Kitchen knows, by itself or under a token."""
    principal = by.node_id
    if claims is not None:
        principal = f"{claims.iss}/{claims.principal}" if claims.principal else claims.iss
    level = ROSTER.level(principal.partition("/")[0])
    return Viewer(by.node_id, principal, level, KITCHEN.node_id, claims)


def token(
    issuer: Identity, holder: Identity, *capabilities: str, principal: str = "", **constraints: list[Any]
) -> Claims:
    """What a token of `issuer` for `holder` says."""
    scope = Scope(capabilities, dict(constraints))
    text = mint(
        issuer, subject=holder.node_id, audience=ROSTER.community_id, scope=scope, now_ms=now_ms(),
        ttl_seconds=60, principal=principal,
    )  # fmt: skip
    return decode(text)


def step(side: str, capability: str, peer: Identity, call: str, **more: Any) -> TraceStep:
    """One step of a trace."""
    given: dict[str, Any] = {
        "at": SEEN * 1000, "trace": "0" * 32, "parent": "", "handler": "", "run": "", "code": "ok", "ms": 2.0,
        "bytes_in": 1, "bytes_out": 2, **more,
    }  # fmt: skip
    return TraceStep(side=side, capability=capability, peer=peer.node_id, call=call, **given)
