"""Tokens: signed, narrow, short-lived authority (wire.md, "Tokens"; conventions.md 12)."""

from __future__ import annotations

import json
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import OKPKey

from hearthnet import ids
from hearthnet.errors import HearthNetError
from hearthnet.trust import token
from hearthnet.trust.keys import Identity
from hearthnet.trust.token import MAX_BYTES, MAX_TTL_SECONDS, SCHEME, SKEW_SECONDS, Claims, Scope

ANNA, BERTA, CARLA = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
NOW = 1_795_292_100
SCOPE = Scope(("rag.query@1.0", "market.list"), {"corpus": ["system"], "input.k": [3, 5]})
HEADER = {"alg": "EdDSA", "typ": "hntoken", "v": 1}


def mint(scope: Scope = SCOPE, ttl: int = 300, run: str = "r") -> str:
    """A token of Anna's for Berta in Carla's community."""
    return token.mint(
        ANNA,
        subject=BERTA.node_id,
        audience=CARLA.node_id,
        scope=scope,
        now_ms=NOW * 1000,
        ttl_seconds=ttl,
        run=run,
    )


TOKEN = mint()
CLAIMS: dict[str, Any] = json.loads(ids.unb64(TOKEN.split(".")[1]))


def forged(payload: bytes, header: object = HEADER, signer: Identity = ANNA) -> str:
    """A token with any header and payload, properly signed."""
    content = f"{ids.b64(json.dumps(header, separators=(',', ':')).encode())}.{ids.b64(payload)}"
    return f"{SCHEME}{content}.{ids.b64(signer.sign_raw(content.encode()))}"


def claiming(**changes: Any) -> str:
    """A properly signed token with changed claims; None takes one away."""
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return forged(json.dumps(claims).encode())


@pytest.mark.req("TRUST-4")
def test_a_token_says_who_lets_whom_do_what_where_and_until_when() -> None:
    claims = token.decode(TOKEN)
    assert (claims.iss, claims.sub, claims.aud) == (ANNA.node_id, BERTA.node_id, CARLA.node_id)
    assert (claims.iat, claims.nbf, claims.exp) == (NOW, NOW, NOW + 300)
    assert ids.is_ulid(claims.jti)
    assert (claims.scope, claims.run) == (SCOPE, "r")
    assert TOKEN.startswith("hntoken://v1/")
    assert token.decode(mint()).jti != claims.jti


@pytest.mark.req("TRUST-4")
def test_pyjwt_verifies_it() -> None:
    key = Ed25519PublicKey.from_public_bytes(ids.public_key(ANNA.node_id))
    compact = TOKEN.removeprefix(SCHEME)
    read = jwt.api_jws.decode_complete(compact, key, algorithms=["EdDSA"])
    assert json.loads(read["payload"]) == CLAIMS
    assert read["header"] == HEADER
    other = Ed25519PublicKey.from_public_bytes(ids.public_key(BERTA.node_id))
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.api_jws.decode(compact, other, algorithms=["EdDSA"])
    claims = jwt.decode(
        compact,
        key,
        algorithms=["EdDSA"],
        audience=CARLA.node_id,
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
    )
    assert claims == CLAIMS


@pytest.mark.req("TRUST-4")
def test_joserfc_verifies_it() -> None:
    public: dict[str, str | list[str]] = {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": ids.b64(ids.public_key(ANNA.node_id)),
    }
    registry = jws.JWSRegistry(algorithms=["EdDSA"], strict_check_header=False)
    key = OKPKey.import_key(public)
    # RFC 9864 prefers the name Ed25519 to EdDSA, which our format fixes; the check itself is the same.
    with pytest.warns(SecurityWarning, match="RFC 9864"):
        read = jws.deserialize_compact(TOKEN.removeprefix(SCHEME), key, registry=registry)
    assert json.loads(read.payload) == CLAIMS
    assert read.headers() == HEADER


@pytest.mark.req("TRUST-4")
def test_a_token_made_by_another_library_is_ours_too() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
    payload = json.dumps(CLAIMS, separators=(",", ":")).encode()
    made = jwt.api_jws.encode(payload, key, algorithm="EdDSA", headers={"typ": "hntoken", "v": 1})
    read = jwt.get_unverified_header(made)
    assert read == HEADER
    header, body, _ = made.split(".")
    assert ids.b64(json.dumps(HEADER, separators=(",", ":")).encode()) == header
    assert token.decode(SCHEME + made) == token.decode(TOKEN)
    assert body == TOKEN.split(".")[1]


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize("ttl", [0, -1, MAX_TTL_SECONDS + 1])
def test_a_token_lives_a_day_at_most(ttl: int) -> None:
    assert token.decode(mint(ttl=MAX_TTL_SECONDS)).exp == NOW + MAX_TTL_SECONDS
    with pytest.raises(HearthNetError, match="a token lives 1 to 86400 seconds") as caught:
        mint(ttl=ttl)
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-5")
def test_a_token_has_a_largest_size() -> None:
    with pytest.raises(HearthNetError, match="name fewer capabilities") as caught:
        mint(Scope(tuple(f"experimental.number_{number}@1.0" for number in range(60))))
    assert caught.value.code == "payload_too_large"
    largest = next(size for size in range(2000) if len(mint(run="x" * size)) >= MAX_BYTES - 1)
    assert len(mint(run="x" * largest)) <= MAX_BYTES
    assert token.decode(mint(run="x" * largest))


@pytest.mark.req("TRUST-5")
def test_a_scope_that_names_no_capability_is_not_minted() -> None:
    with pytest.raises(HearthNetError, match=r"'rag\.\*' is not a capability"):
        mint(Scope(("rag.*",)))


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    "text",
    [
        "",
        TOKEN.removeprefix(SCHEME),
        TOKEN.replace("v1", "v2", 1),
        TOKEN.rpartition(".")[0],
        TOKEN + ".x",
        TOKEN + "=",
        TOKEN + "A" * MAX_BYTES,
        TOKEN + "\n",
        TOKEN.replace("://", "://v1/"),
        "hntoken://v1/..",
        TOKEN.replace(".", ".é", 1),
        TOKEN.rpartition(".")[0] + ".é",
    ],
    ids=range(12),
)
def test_what_has_not_the_form_is_refused(text: str) -> None:
    with pytest.raises(HearthNetError) as caught:
        token.decode(text)
    assert caught.value.code in ("bad_request", "token_invalid")


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none", "typ": "hntoken", "v": 1},
        {"alg": "HS256", "typ": "hntoken", "v": 1},
        {"alg": "EdDSA", "typ": "JWT", "v": 1},
        {"alg": "EdDSA", "typ": "hntoken", "v": 2},
        {"alg": "EdDSA", "typ": "hntoken", "v": 1, "kid": "x"},
        {"typ": "hntoken", "alg": "EdDSA", "v": 1},
        {},
    ],
    ids=str,
)
def test_the_token_does_not_choose_its_algorithm(header: dict[str, Any]) -> None:
    with pytest.raises(HearthNetError, match="header is not ours") as caught:
        token.decode(forged(json.dumps(CLAIMS).encode(), header))
    assert caught.value.code == "token_invalid"


@pytest.mark.req("TRUST-5")
@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii", categories=["L", "N"]))
def test_any_changed_character_is_refused(place: int, letter: str) -> None:
    changed = TOKEN[:place] + letter + TOKEN[place + 1 :]
    if changed == TOKEN:
        return
    with pytest.raises(HearthNetError) as caught:
        token.decode(changed)
    assert caught.value.code in ("bad_request", "token_invalid")


@pytest.mark.req("TRUST-5")
def test_nobody_issues_in_anothers_name() -> None:
    with pytest.raises(HearthNetError, match="not signed by its issuer") as caught:
        token.decode(forged(json.dumps(CLAIMS).encode(), signer=BERTA))
    assert caught.value.code == "token_invalid"


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    "changes",
    [
        {"max_calls_total": 1},
        {"cnf": {"jwk": {}}},
        {"scope": {"capabilities": [], "corpora": ["system"]}},
        {"scope": {"capabilities": [], "rate_limit_per_minute": 0}},
        {"scope": {"capabilities": [], "max_calls_total": 0}},
        {"scope": {"capabilities": [], "max_effects": -1}},
        {"scope": {"capabilities": [], "max_effects": 1_000_001}},
        {"scope": {"capabilities": ["rag.*"]}},
        {"scope": {"capabilities": ["rag.query@1"]}},
        {"scope": {"capabilities": "rag.query"}},
        {"scope": {"params_constraints": {}}},
        {"scope": {"capabilities": [], "params_constraints": {"corpus": "system"}}},
        {"scope": None},
        {"iss": "ed25519:x"},
        {"iss": ANNA.node_id + "="},
        {"iss": None},
        {"sub": None},
        {"aud": None},
        {"aud": [CARLA.node_id]},
        {"exp": None},
        {"exp": -1},
        {"nbf": -1},
        {"exp": 2**53},
        {"exp": 1.5},
        {"exp": "never"},
        {"jti": "x"},
        {"jti": "../" * 8 + "ab"},
    ],
    ids=str,
)
def test_claims_that_are_unknown_or_say_nothing_are_refused(changes: dict[str, Any]) -> None:
    assert token.decode(claiming()).iss == ANNA.node_id
    with pytest.raises(HearthNetError, match="claims are malformed") as caught:
        token.decode(claiming(**changes))
    assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-5", "WIRE-13")
def test_claims_have_one_meaning() -> None:
    good = json.dumps(CLAIMS).encode()
    for payload in (
        good.replace(b'"exp"', b'"exp": 0, "exp"'),
        good.replace(b'"corpus"', b'"corpus": ["personal"], "corpus"'),
        b"[" * 1400,
        b"\xff",
        b"null",
        good + b"{}",
    ):
        with pytest.raises(HearthNetError, match="claims are malformed") as caught:
            token.decode(forged(payload))
        assert caught.value.code == "bad_request"


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize("exp", [NOW, NOW - 1, NOW + MAX_TTL_SECONDS + 1, 2**53 - 1])
def test_a_life_that_no_honest_issuer_gives_is_refused(exp: int) -> None:
    with pytest.raises(HearthNetError, match="up to a day") as caught:
        token.decode(claiming(exp=exp))
    assert caught.value.code == "token_invalid"


def use(now: int = NOW, caller: Identity = BERTA, community: Identity = CARLA) -> None:
    """Shows the token."""
    claims: Claims = token.decode(TOKEN)
    token.check_use(claims, caller=caller.node_id, community=community.node_id, now_ms=now * 1000)


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize("now", [NOW - SKEW_SECONDS, NOW, NOW + 300, NOW + 299 + SKEW_SECONDS])
def test_it_may_be_shown_in_its_life_with_a_minute_for_clocks(now: int) -> None:
    use(now)


@pytest.mark.req("TRUST-5")
@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("token_expired", {"now": NOW - SKEW_SECONDS - 1}),
        ("token_expired", {"now": NOW + 300 + SKEW_SECONDS}),
        ("token_expired", {"now": 0}),
        ("unauthorized", {"community": BERTA}),
        ("invalid_signature", {"caller": ANNA}),
        ("invalid_signature", {"caller": CARLA}),
    ],
    ids=range(6),
)
def test_outside_its_life_its_community_or_its_holder_it_is_nothing(
    code: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(HearthNetError) as caught:
        use(**arguments)
    assert caught.value.code == code


@pytest.mark.req("TRUST-5")
def test_a_token_for_all_is_not_known_here() -> None:
    bearer = token.decode(claiming(sub="*"))
    with pytest.raises(HearthNetError, match="from a bridge only") as caught:
        token.check_use(bearer, caller=BERTA.node_id, community=CARLA.node_id, now_ms=NOW * 1000)
    assert caught.value.code == "unauthorized"


def test_what_is_empty_takes_no_room() -> None:
    content = ids.unb64(mint(Scope(("rag.query",)), run="").split(".")[1])
    assert b"run" not in content
    assert b"params_constraints" not in content
    assert msgspec.json.decode(content)["scope"] == {"capabilities": ["rag.query"]}
