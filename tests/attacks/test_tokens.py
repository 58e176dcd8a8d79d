"""Tokens that were forged, stretched, lent on or shown by another, and the code that each gets."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections import Counter
from typing import Any

import msgspec
import pytest

from hearthnet.bus.bus import Bus
from hearthnet.bus.routing.offer_registry import OfferView
from hearthnet.bus.session.keyring import load_identity
from hearthnet.core import ids
from hearthnet.core.times import now_ms
from hearthnet.trust.authorization.token import SCHEME, Scope, mint
from hearthnet.trust.keys import Identity
from tests.attacks.attacker import LIST, LIST_BODY, Attacker
from tests.attacks.conftest import Victim
from tests.helpers.mesh import Mesh
from tests.service.effect_worker import INGEST
from tests.service.workers import body as ingestion
from tests.service.workers import working

pytestmark = pytest.mark.asyncio
HEADER = {"alg": "EdDSA", "typ": "hntoken", "v": 1}
ALL = Scope(capabilities=("market.list@1.0", "market.post@1.0", "market.search@1.0"))


class Forge:
    """Tokens as an attacker would write them: any claims, any header, signed by whom it has the key of."""

    def __init__(self, victim: Victim, issuer: Identity, subject: str) -> None:
        now = int(time.time())
        self._issuer = issuer
        self.claims: dict[str, Any] = {
            "iss": issuer.node_id,
            "sub": subject,
            "aud": victim.community,
            "iat": now,
            "nbf": now,
            "exp": now + 600,
            "jti": ids.new_ulid(),
            "scope": {"capabilities": ["market.list@1.0"]},
        }

    def token(
        self, header: dict[str, Any] | None = None, signer: Identity | None = None, **claims: Any
    ) -> str:
        """A token with these claims changed (None takes one out)."""
        payload = {name: value for name, value in {**self.claims, **claims}.items() if value is not None}
        content = f"{_part(header or HEADER)}.{_part(payload)}"
        signature = (signer or self._issuer).sign_raw(content.encode())
        return f"{SCHEME}{content}.{ids.b64(signature)}"


def _part(value: Any) -> str:
    return ids.b64(msgspec.json.encode(value))


@pytest.fixture
def forge(victim: Victim, mallory: Attacker) -> Forge:
    """Tokens of carol, a member, for mallory."""
    return Forge(victim, victim.key("carol"), mallory.peer.node_id)


@pytest.mark.req("ATTACK-9")
async def test_an_honest_token_is_taken(mallory: Attacker, market: OfferView, forge: Forge) -> None:
    assert await mallory.call(market, LIST, LIST_BODY, token=forge.token()) == "ok"


_HOUR = 3600


@pytest.mark.req("ATTACK-9")
@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("expired", "token_expired"),
        ("not yet valid", "token_expired"),
        ("longer than a day", "token_invalid"),
        ("another audience", "unauthorized"),
        ("another subject", "invalid_signature"),
        ("everybody as subject", "unauthorized"),
        ("a foreign issuer", "unauthorized"),
        ("signed by the holder", "token_invalid"),
        ("no scope", "bad_request"),
        ("an unknown limit", "bad_request"),
        ("a claim too many", "bad_request"),
        ("no id", "bad_request"),
        ("over the size", "bad_request"),
    ],
)
async def test_a_token_that_is_not_for_this_is_refused(
    victim: Victim, mallory: Attacker, market: OfferView, forge: Forge, what: str, code: str
) -> None:
    now, stranger = int(time.time()), Identity.generate()
    token = {
        "expired": lambda: forge.token(nbf=now - 2 * _HOUR, iat=now - 2 * _HOUR, exp=now - _HOUR),
        "not yet valid": lambda: forge.token(nbf=now + _HOUR, exp=now + 2 * _HOUR),
        "longer than a day": lambda: forge.token(exp=now + 25 * _HOUR),
        "another audience": lambda: forge.token(aud=stranger.node_id),
        "another subject": lambda: forge.token(sub=victim.key("gateway").node_id),
        "everybody as subject": lambda: forge.token(sub="*"),
        "a foreign issuer": lambda: forge.token(iss=stranger.node_id, signer=stranger),
        "signed by the holder": lambda: forge.token(signer=mallory.peer.identity),
        "no scope": lambda: forge.token(scope=None),
        "an unknown limit": lambda: forge.token(scope={**forge.claims["scope"], "only_on_sundays": True}),
        "a claim too many": lambda: forge.token(admin=True),
        "no id": lambda: forge.token(jti="1"),
        "over the size": lambda: forge.token(
            scope={**forge.claims["scope"], "params_constraints": {"x": ["y" * 2048]}}
        ),
    }[what]()
    assert await mallory.call(market, LIST, LIST_BODY, token=token) == code


@pytest.mark.req("ATTACK-10")
@pytest.mark.parametrize(
    "scope",
    [
        {"capabilities": ["market.search@1.0"]},
        {"capabilities": ["market.list@2.0"]},
        {"capabilities": ["market.lis"]},
        {"capabilities": []},
        {"capabilities": ["market.list@1.0"], "params_constraints": {"input.category": ["offer"]}},
        {"capabilities": ["market.list@1.0"], "params_constraints": {"corpus": ["system"]}},
    ],
)
async def test_a_scope_that_does_not_cover_the_call_is_not_enough(
    mallory: Attacker, market: OfferView, forge: Forge, scope: dict[str, Any]
) -> None:
    for body in (LIST_BODY, {"params": {}, "input": {"category": "request"}}):
        assert (
            await mallory.call(market, LIST, body, token=forge.token(scope=scope))
            == "token_scope_insufficient"
        )


@pytest.mark.req("ATTACK-12")
async def test_a_token_adds_no_level_to_its_issuer(mesh: Mesh) -> None:
    """A member who may not bring documents gives a token for that: to itself, and to one who may."""
    issuer = load_identity(mesh.guest.device_key)
    async with await mesh.bus() as own, await mesh.guest_bus() as guest:
        with working(mesh) as workers:
            await workers.start(own)
            for holder in (guest, own):
                attacker = Attacker(holder)
                token = mint(
                    issuer,
                    subject=holder.peer.node_id,
                    audience=holder.peer.community,
                    scope=Scope(capabilities=(INGEST,)),
                    now_ms=now_ms(),
                    ttl_seconds=60,
                )
                view = await attacker.target(INGEST, mesh.identity.node_id)
                refused = await attacker.refusal(view, INGEST, ingestion(), token=token, signed=True)
                assert refused.code == "unauthorized"
                assert refused.message == "rag.ingest@1.0 takes level trusted; the caller's is member"
        assert workers.effects == []


@pytest.mark.req("ATTACK-11")
async def test_a_token_issues_no_token(victim: Victim, mallory: Attacker, forge: Forge) -> None:
    auth = await mallory.target("community.sync@1.0", victim.node)
    body = {
        "params": {},
        "input": {
            "client_id": ids.new_ulid(),
            "subject": mallory.peer.node_id,
            "scope": {"capabilities": ["market.list@1.0"]},
        },
    }
    scope = {"capabilities": ["auth.token.issue@1.0"]}
    own = Forge(victim, victim.identity, mallory.peer.node_id)
    for given in ("", forge.token(scope=scope), own.token(scope=scope)):
        refused = await mallory.refusal(auth, "auth.token.issue@1.0", body, token=given, signed=True)
        assert refused.code == "unauthorized"
        assert refused.message == "auth.token.issue@1.0 serves only its own node"
    # Nor does one that the node issued to itself, as those of its runs are.
    itself = Forge(victim, victim.identity, victim.node)
    async with await Bus.join(victim.home, victim.url, "own") as bus:
        refused = await Attacker(bus).refusal(
            auth, "auth.token.issue@1.0", body, token=itself.token(scope=scope), signed=True
        )
    assert refused.code == "unauthorized"
    assert "is not called under a token" in refused.message


@pytest.mark.req("ATTACK-13")
@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none", "typ": "hntoken", "v": 1},
        {"alg": "HS256", "typ": "hntoken", "v": 1},
        {"alg": "ES256", "typ": "hntoken", "v": 1},
        {"alg": "EdDSA", "typ": "JWT", "v": 1},
        {"alg": "EdDSA", "typ": "hntoken", "v": 2},
        {"alg": "EdDSA", "typ": "hntoken", "v": 1, "jwk": {"kty": "OKP"}},
        {"typ": "hntoken", "alg": "EdDSA", "v": 1},
    ],
)
async def test_another_header_is_no_token(
    mallory: Attacker, market: OfferView, forge: Forge, header: dict[str, Any]
) -> None:
    assert await mallory.call(market, LIST, LIST_BODY, token=forge.token(header)) == "token_invalid"


@pytest.mark.req("ATTACK-13")
async def test_the_public_key_is_no_secret_of_a_mac(
    victim: Victim, mallory: Attacker, market: OfferView, forge: Forge
) -> None:
    key = ids.public_key(victim.key("carol").node_id)
    for algorithm in ("EdDSA", "HS256", "HS512"):
        content = forge.token({**HEADER, "alg": algorithm}).removeprefix(SCHEME).rpartition(".")[0]
        macs = [
            hmac.new(key, content.encode(), digest).digest() for digest in (hashlib.sha256, hashlib.sha512)
        ]
        for signature in (*macs, b"", bytes(64)):
            token = f"{SCHEME}{content}.{ids.b64(signature)}"
            assert await mallory.call(market, LIST, LIST_BODY, token=token) == "token_invalid"


@pytest.mark.req("ATTACK-14")
async def test_a_budget_is_not_overspent_by_calls_at_once(
    victim: Victim, mallory: Attacker, market: OfferView
) -> None:
    scope = Scope(capabilities=ALL.capabilities, max_calls_total=7)
    token = mint(
        victim.key("carol"),
        subject=mallory.peer.node_id,
        audience=victim.community,
        scope=scope,
        now_ms=now_ms(),
        ttl_seconds=60,
    )
    second = await victim.attacker()
    try:
        racers = (mallory, second) * 20
        # Few enough at a time that the market has a place for each.
        codes: Counter[str] = Counter()
        for start in range(0, len(racers), 4):
            group = racers[start : start + 4]
            codes.update(
                await asyncio.gather(*(racer.call(market, LIST, LIST_BODY, token=token) for racer in group))
            )
    finally:
        await second.bus.close()
    assert codes == {"ok": 7, "token_scope_insufficient": 33}


@pytest.mark.req("ATTACK-14")
async def test_a_rate_is_kept_and_the_caller_told_when_to_come_again(
    mallory: Attacker, market: OfferView, forge: Forge
) -> None:
    token = forge.token(scope={"capabilities": ["market.list@1.0"], "rate_limit_per_minute": 3})
    assert [await mallory.call(market, LIST, LIST_BODY, token=token) for _ in range(3)] == ["ok"] * 3
    for _ in range(2):
        refused = await mallory.refusal(market, LIST, LIST_BODY, token=token)
        assert refused.code == "rate_limited"
        assert 0 < (refused.retry_after_ms or 0) <= 60_000
